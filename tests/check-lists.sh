#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The lists of Makefile.am and its fragments are kept by hand: names every file that is in none of
# them, and would thus be missing from the library, from `make check` or from `make dist`. $srcdir is the source tree.
set -u
cd "${srcdir:-.}" || exit 99

words=" $(cat Makefile.am ./*/*.mk | tr -s '[:space:]' ' ') "

# Whether a path stands in a list as a whole word.
listed() {
  case $words in
    *" $1 "*) ;;
    *) return 1 ;;
  esac
}

missing=$(find lib lm mpi onnx kernels include tests tools examples bench doc python -type f ! -name '.*' \
  ! -name '*.o' ! -name '*.lo' ! -name '*.log' ! -name '*.trs' ! -name '*.pyc' ! -path '*/.*' 2>/dev/null |
  while read -r file; do
    case $file in
      lib/kernel_texts.c | include/kiln/elementwise.h* | include/kiln/reductions.h* | \
        include/kiln/typemap.h | onnx/onnx.pb-c.[ch] | onnx/onnx.proto) ;; # made by make
      include/kiln/version.h* | doc/Doxyfile*) ;; # made by configure
      *.mk) grep -q "^include $file" Makefile.am || echo "$file" ;;
      # A program's only source is named by the program.
      *.c) listed "$file" || listed "${file%.c}" || echo "$file" ;;
      # A folder of data may be listed as a whole, one of the top level not: targets have such names.
      */*/*) listed "$file" || listed "${file%/*}" || echo "$file" ;;
      *) listed "$file" || echo "$file" ;;
    esac
  done)
# A name says which file of the library it is, in a backtrace, too.
twice=$(find lib -name '*.[ch]' | sed 's|.*/||' | sort | uniq -d)
if [ -n "$twice" ]; then
  echo "names of two files of lib: $twice"
  exit 1
fi
# What `make check` leaves out, `make check-long` has to know.
partly=$(sed -n '/^partly_long_tests/,/[^\\]$/p' tests/local.mk | grep -o 'tests/[a-z/_]*' | sort)
with_long=$(grep -lE '^(Parameterized)?Test\([a-z_0-9]+, slow_' tests/*/test_*.c | sed 's/\.c$//' | sort)
if [ "$partly" != "$with_long" ]; then
  printf '%s\n' 'partly_long_tests of tests/local.mk:' "$partly" 'with tests named slow_:' "$with_long"
  exit 1
fi
# What check-faults puts into a copy of the tree has to fit it, whoever moves what.
if command -v patch >/dev/null; then
  for fault in tests/faults/*.patch; do
    patch -p1 -F2 -s --dry-run <"$fault" >/dev/null || { echo "$fault does not apply"; exit 1; }
  done
fi
if [ -n "$missing" ]; then
  echo "not in Makefile.am:"
  echo "$missing"
  exit 1
fi
echo "every file is in Makefile.am"
