#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What test programs share is read by whoever debugs one of them: names each source file of tests,
# programs apart, that is longer than 400 lines. $srcdir is the source tree.
set -u
cd "${srcdir:-.}" || exit 99
most_lines=400

long=$(find tests -name '*.[ch]' ! -name 'test_*.c' | sort |
  while read -r file; do
    lines=$(($(wc -l <"$file")))
    [ $lines -le $most_lines ] || echo "$file: $lines lines"
  done)
[ -z "$long" ] || {
  printf 'above %d lines, to be split where an idea ends:\n%s\n' $most_lines "$long"
  exit 1
}
echo "every support file has at most $most_lines lines"
