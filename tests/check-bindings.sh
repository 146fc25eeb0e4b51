#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kiln/kiln.hpp, kiln/onnx.hpp for libkiln-onnx and kiln/lm.hpp for libkiln-lm have every function of the public headers, those
# of tables apart (which make themselves) and those of tests/bindings, so that they do not lag
# behind. $srcdir is the source tree.
set -u
cd "${srcdir:-.}" || exit 99

# Declarations without comments, the first kiln_x( of each.
functions=$(cat include/kiln/*.h | tr '\n' ' ' | sed 's|/\*[^*]*\*\**\([^/*][^*]*\*\**\)*/||g' |
  grep -oE 'KILN_API [^;{]*' | sed -E 's/.*/&/; s/^[^(]*[ *](kiln_[a-z0-9_]+)\(.*/\1/' |
  grep -E '^kiln_[a-z0-9_]+$' | sort -u)
[ "$(echo "$functions" | wc -l)" -gt 200 ] || { echo "no functions found"; exit 1; }
left=$(grep -v '^#' tests/bindings)
faults=0
for name in $functions; do
  here=$(cat include/kiln/kiln.hpp include/kiln/lm.hpp include/kiln/onnx.hpp | grep -cw "$name")
  if echo "$left" | grep -qx "$name"; then
    [ "$here" -eq 0 ] || { echo "$name is in a .hpp: take it out of tests/bindings"; faults=1; }
  elif [ "$here" -eq 0 ]; then
    echo "$name is neither in a .hpp nor in tests/bindings"
    faults=1
  fi
done
for name in $left; do
  echo "$functions" | grep -qx "$name" || { echo "tests/bindings: $name is no function"; faults=1; }
done
[ "$faults" -eq 0 ] && echo "C++ has every function that it is to have"
exit "$faults"
