#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every function that a public header declares is a row of tests/fuzz/calls.def. $srcdir is the
# source tree. (Those of generated headers are rows through the tables that the headers come from.)
set -u
cd "${srcdir:-.}" || exit 99
folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT

for header in include/kiln/*.h include/kiln/*.h.in; do
  case $header in
    */elementwise.h | */reductions.h | */version.h) ;; # in a source tree that is configured itself
    */lm.h | */onnx.h) ;; # of libraries of their own, which are fed hostile files
    */mpi.h) ;; # of another one, whose calls need other ranks
    *) cat "$header" ;;
  esac
done | awk -f tests/declared.awk | sort -u >"$folder/declared"
sed -n 's/^CALL[A-Z_]*(\(kiln_[a-z0-9_]*\),.*/\1/p' tests/fuzz/calls.def | sort >"$folder/called"

status=0
if comm -23 "$folder/declared" "$folder/called" | sed 's/^/not in tests\/fuzz\/calls.def: /' | grep .; then
  status=1
fi
if uniq -d "$folder/called" | sed 's/^/twice in tests\/fuzz\/calls.def: /' | grep .; then
  status=1
fi
for table in elementwise.def reduce.def; do
  if ! grep -q "^#include \"ops/$table\"" tests/fuzz/calls.def; then
    echo "tests/fuzz/calls.def does not include lib/ops/$table"
    status=1
  fi
done
echo "$(wc -l <"$folder/declared") functions declared"
exit $status
