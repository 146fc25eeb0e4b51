#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# README's picture is of README's table. $srcdir is the source tree.
set -u
cd "${srcdir:-.}" || exit 99
python3 -c '' 2>/dev/null || exit 77
drawn=$(mktemp) || exit 99
trap 'rm -f "$drawn"' EXIT
python3 bench/table.py --plot "$drawn" --title 'times as fast as PyTorch' README.md || exit 1
cmp "$drawn" doc/ratios.svg && exit 0
echo "README's table has changed: make picture"
exit 1
