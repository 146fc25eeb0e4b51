#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A tag means one thing: names every struct, enum or union of kiln's, kiln_x or kiln__x, that is
# defined in two places. $srcdir is the source tree.
set -u
cd "${srcdir:-.}" || exit 99

grep -nE '(^|[^_[:alnum:]])(struct|enum|union)[[:space:]]+kiln_[_a-z0-9]+[[:space:]]*\{' \
  include/kiln/*.h include/kiln/*.hpp lib/*/*.[ch] lm/*.[ch] mpi/*.[ch] onnx/*.[ch] tools/*.[ch] |
  awk '
    {
      split($0, part, ":")
      place = part[1] ":" part[2]
      match($0, /(struct|enum|union)[ \t]+kiln_[_a-z0-9]+/)
      tag = substr($0, RSTART, RLENGTH)
      sub(/^[a-z]+[ \t]+/, "", tag)
      count++
      if (tag in first) {
        printf "%s: %s is defined in %s, too\n", place, tag, first[tag]
        bad++
      } else
        first[tag] = place
    }
    END {
      printf "%d tags looked at\n", count
      exit bad > 0 || count < 200
    }'
