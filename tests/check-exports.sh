#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shared libraries export exactly what the public headers declare, and Debian's lists of symbols
# have it, where there is debian/, which is not distributed; of libkiln-mpi there is no package.
# check-exports.sh [LIBRARY]: else .libs/libkiln.so of this build, and libkiln-lm.so, libkiln-mpi.so
# and libkiln-onnx.so, if there are such beside it; $srcdir is the source tree.
set -u
library=${1:-.libs/libkiln.so}
if [ ! -f "$library" ]; then
  echo "no shared library in this build"
  exit 77
fi
folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT

for file in "$library" "${library%.so}-lm.so" "${library%.so}-mpi.so" "${library%.so}-onnx.so"; do
  [ ! -f "$file" ] || ${NM:-nm} -D --defined-only "$file"
done | awk '$(NF - 1) != "A" { sub(/@.*/, "", $NF); print $NF }' | sort -u >"$folder/exported"
for header in "${srcdir:-.}"/include/kiln/*.h include/kiln/*.h; do
  case $header in
    */lm.h) [ ! -f "${library%.so}-lm.so" ] || cat "$header" ;;
    */mpi.h) [ ! -f "${library%.so}-mpi.so" ] || cat "$header" ;;
    */onnx.h) [ ! -f "${library%.so}-onnx.so" ] || cat "$header" ;;
    *) [ ! -f "$header" ] || cat "$header" ;;
  esac
done | awk -f "$(dirname "$0")/declared.awk" | sort -u >"$folder/declared"

status=0
complain() {
  if sed "s/^/$1: /" | grep .; then
    status=1
  fi
}
grep -v '^kiln_[a-z]' "$folder/exported" >"$folder/foreign"
comm -23 "$folder/declared" "$folder/exported" >"$folder/absent"
comm -13 "$folder/declared" "$folder/exported" >"$folder/secret"
complain 'exported, but not by our name' <"$folder/foreign"
complain 'declared, but not exported' <"$folder/absent"
complain 'exported, but not declared' <"$folder/secret"

debian=${srcdir:-.}/debian
if [ -d "$debian" ]; then
  for package in libkiln0 libkiln-lm0 libkiln-onnx0; do
    part=${package#libkiln}
    [ -f "${library%.so}${part%0}.so" ] || continue
    sed -n 's/^ \(kiln_[a-z0-9_]*\)@.*/\1/p' "$debian/$package.symbols"
  done | sort -u >"$folder/listed"
  sed -i '/^kiln_mpi_/d' "$folder/declared"
  comm -23 "$folder/declared" "$folder/listed" >"$folder/unlisted"
  comm -13 "$folder/declared" "$folder/listed" >"$folder/gone"
  complain "declared, but not in Debian's symbols" <"$folder/unlisted"
  complain "in Debian's symbols, but not declared" <"$folder/gone"
fi
echo "$(wc -l <"$folder/exported") symbols exported, $(wc -l <"$folder/declared") declared"
exit $status
