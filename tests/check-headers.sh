#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every public header compiles alone, as strict C11 and as C++11 (those of C++ as C++17), and a program that
# uses them compiles as both. $srcdir is the source tree; $CC, $CXX and $OPENCL_CFLAGS may be set, and
# $MPI_CFLAGS is where there is MPI.
set -u
source=${srcdir:-.}
folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT
status=0
of_mpi=$(echo "${MPI_CFLAGS-}" | sed 's/-I/-isystem /g')

# compile LANGUAGE FILE: with the words of $compiler
compile() {
  # shellcheck disable=SC2086
  $compiler -Wall -Wextra -Wpedantic -Werror -Iinclude -I"$source/include" ${OPENCL_CFLAGS-} \
    $of_mpi -fsyntax-only -x "$1" "$2" || {
    echo "$1: ${header:-$2} does not compile"
    status=1
  }
}

# Bindings have no macros: each initialiser of kiln.h is one of lib/api/initializers.c, too.
own=$(find "$source/include/kiln" -name '*.h' ! -name lm.h ! -name mpi.h ! -name onnx.h)
# shellcheck disable=SC2013,SC2086
for macro in $(sed -n 's/^#define \(KILN_[A-Z_]*_INIT\).*/\1/p' $own); do
  grep -q "\b$macro\b" "$source/lib/api/initializers.c" || {
    echo "$macro has no function that does the same"
    status=1
  }
done

# compile_all LANGUAGE [ENDING]: twice each, for its guards
compile_all() {
  count=0
  for path in "$source"/include/kiln/*."${2-h}" include/kiln/*."${2-h}"; do
    [ -f "$path" ] || continue
    case $path in
      */mpi.h) [ -n "${MPI_CFLAGS-}" ] || continue ;;
    esac
    header=kiln/${path##*/}
    printf '#include <%s>\n#include <%s>\ntypedef int not_empty;\n' "$header" "$header" \
      >"$folder/alone"
    compile "$1" "$folder/alone"
    count=$((count + 1))
  done
  header=
  [ $# -gt 1 ] || compile "$1" "$source/tests/headers.cc"
  echo "$1: $count headers"
}

compiler="${CC:-cc} -std=c11"
compile_all c
for candidate in "${CXX-}" c++ g++ clang++; do
  if [ -n "$candidate" ] && command -v "${candidate%% *}" >/dev/null; then
    compiler="$candidate -std=c++11"
    compile_all c++
    compiler="$candidate -std=c++17"
    compile_all c++ hpp
    exit $status
  fi
done
echo "no C++ compiler"
exit $status
