#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What tests/run-test keeps of PoCL's cache for later tests. $srcdir is the source tree.
set -u
run=$(cd "${srcdir:-.}" && pwd)/tests/run-test
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export KILN_TEST_STORE="$folder/store"
unset KILN_TEST_UNDER KILN_TEST_OCLGRIND KILN_TEST_LAYER
number=0
echo 1..6

# A program that does what the lines of the standard input say in its cache of PoCL's.
program() {
  # shellcheck disable=SC2016
  { printf '#!/bin/sh\ncd "$POCL_CACHE_DIR" || exit 1\n'; cat; } >"$folder/$1"
  chmod +x "$folder/$1"
  sh "$run" "$folder/$1" >"$folder/output" 2>&1
}

expect() {
  number=$((number + 1))
  if [ "$2" = "$3" ]; then
    echo "ok $number - $1"
  else
    echo "not ok $number - $1"
    printf '# wanted: %s\n# found: %s\n' "$2" "$3"
  fi
}

stored() {
  (cd "$KILN_TEST_STORE" && find . -type f | sort | tr '\n' ' ')
}

program makes <<'END'
mkdir -p AB/CD/map && echo one >AB/CD/program.bc && echo one >AB/CD/map/map.so
echo log >AB/CD/build.log && echo half >tempfile_1.so
END
expect 'whole kernels of a test that passed are kept, and nothing else' \
  './pocl/AB/CD/map/map.so ./pocl/AB/CD/program.bc ' "$(stored)"

program fails <<'END'
mkdir -p EF/GH && echo bad >EF/GH/program.bc
exit 1
END
expect 'nothing of one that failed' \
  './pocl/AB/CD/map/map.so ./pocl/AB/CD/program.bc ' "$(stored)"

program finds <<'END'
grep -q one AB/CD/program.bc && mkdir AB/CD/new && echo two >AB/CD/new/new.so
END
expect 'the next one begins with them and adds its own' \
  './pocl/AB/CD/map/map.so ./pocl/AB/CD/new/new.so ./pocl/AB/CD/program.bc ' "$(stored)"

program replaces <<'END'
rm AB/CD && mkdir -p AB/CD/map && echo three >AB/CD/program.bc
END
expect 'a program that is there stays' one "$(cat "$KILN_TEST_STORE/pocl/AB/CD/program.bc")"

mv "$KILN_TEST_STORE" "$folder/moved"
KILN_TEST_STORE=$folder/moved
program finds_elsewhere <<'END'
grep -q one AB/CD/program.bc && mkdir AB/CD/more && echo four >AB/CD/more/more.so
END
expect 'a store may move' four "$(cat "$KILN_TEST_STORE/pocl/AB/CD/more/more.so")"

program cache_kills <<'END'
[ ! -e AB ] && mkdir -p IJ && echo half >IJ/program.bc
END
expect 'tests of caches begin with nothing and leave nothing' \
  "ok - cache_kills none" "$(grep ^ok "$folder/output") $([ -e "$KILN_TEST_STORE/pocl/IJ" ] || echo none)"
