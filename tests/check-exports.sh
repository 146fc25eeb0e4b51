#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The shared library exports exactly what the public headers declare.
# check-exports.sh [LIBRARY]: else .libs/libkiln.so of this build; $srcdir is the source tree.
set -u
library=${1:-.libs/libkiln.so}
if [ ! -f "$library" ]; then
  echo "no shared library in this build"
  exit 77
fi
folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT

${NM:-nm} -D --defined-only "$library" | awk '{ print $NF }' | sort -u >"$folder/exported"
# A declaration may go on over lines: every name( from KILN_API to the semicolon, the first one.
cat "${srcdir:-.}"/include/kiln/*.h include/kiln/*.h 2>/dev/null |
  awk '
    /^[ \t]*#/ { next }
    /^KILN_API/ { text = ""; inside = 1 }
    inside { text = text " " $0 }
    inside && /;/ {
      inside = 0
      if (match(text, /kiln_[a-z0-9_]+\(/))
        print substr(text, RSTART, RLENGTH - 1)
    }' | sort -u >"$folder/declared"

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
echo "$(wc -l <"$folder/exported") symbols exported, $(wc -l <"$folder/declared") declared"
exit $status
