#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kiln/kiln.hpp: compiled without a warning, with exceptions and without, by each compiler of C++
# that is here, and run.
build=$(pwd)
source=$(cd "${srcdir:-.}" && pwd)
. "$source/tests/shell-tests"
cd "$folder" || exit 99

# KILN_TEST_CC is a C compiler with its options. Sanitizers and coverage are those of the library,
# and only its own compiler's fit.
# shellcheck disable=SC2086
kind=$(printf '%s\n' ${KILN_TEST_CC-} | grep -E '^(-fsanitize|--coverage|-m32)' | tr '\n' ' ')
candidates='g++ clang++'
case "$kind:${KILN_TEST_CC-}" in
  :*) ;;
  *clang*) candidates=clang++ ;;
  *) candidates=g++ ;;
esac

onnx=
[ ! -f "$build/libkiln-onnx.la" ] || onnx=libkiln-onnx.la
lm=
[ ! -f "$build/libkiln-lm.la" ] || lm=libkiln-lm.la
export KILN_SOURCE="$source"

warnings='-Wall -Wextra -Wpedantic -Wshadow -Werror'

# compiled COMPILER SOURCE OPTION...: in the build folder, whose name may have spaces.
compiled() (
  compiler=$1 file=$2
  shift 2
  cd "$build" || exit
  # shellcheck disable=SC2086
  ./libtool --silent --mode=link --tag=CC $compiler -std=c++17 $kind $warnings \
    "$@" -Iinclude -I"$source/include" "$file" \
    $onnx $lm libkiln.la -lpthread -o "$folder/program"
)

# runs COMPILER SOURCE OPTION...
runs() {
  compiled "$@" && ./program && echo "as it should"
}

# reads COMPILER SOURCE OPTION...: without a program.
reads() (
  cd "$build" || exit
  # shellcheck disable=SC2086
  "$@" -std=c++17 $kind $warnings -fsyntax-only -Iinclude -I"$source/include" && echo "as it should"
)

found=
for compiler in $candidates; do
  if command -v "$compiler" >/dev/null; then
    found="$found $compiler"
  fi
done
if [ -z "$found" ]; then
  echo "no C++ compiler"
  exit 77
fi
# Programs of the first compiler run; of the next, those that throw.
does=runs
for compiler in $found; do
  check "$compiler: without exceptions" 0 '^as it should' \
    $does "$compiler" "$source/tests/cplusplus.cpp" -fno-exceptions -fno-rtti
  check "$compiler: with the program's own exceptions alone" 0 '^as it should' \
    $does "$compiler" "$source/tests/cplusplus.cpp"
  check "$compiler: with exceptions" 0 '^as it should' \
    runs "$compiler" "$source/tests/cplusplus.cpp" -DKILN_EXCEPTIONS
  if [ -n "$onnx" ]; then
    check "$compiler: models in files, without exceptions" 0 '^as it should' \
      $does "$compiler" "$source/tests/onnx/cplusplus.cpp" -fno-exceptions -fno-rtti
    check "$compiler: models in files, with exceptions" 0 '^as it should' \
      $does "$compiler" "$source/tests/onnx/cplusplus.cpp" -DKILN_EXCEPTIONS
  fi
  if [ -n "$lm" ]; then
    check "$compiler: language models, without exceptions" 0 '^as it should' \
      $does "$compiler" "$source/tests/lm/cplusplus.cpp" -fno-exceptions -fno-rtti
    check "$compiler: language models, with exceptions" 0 '^as it should' \
      $does "$compiler" "$source/tests/lm/cplusplus.cpp" -DKILN_EXCEPTIONS
  fi
  check "$compiler: the example" 0 '^10 24 30 48$' runs "$compiler" "$source/examples/hello.cpp"
  does=reads
done

finish
