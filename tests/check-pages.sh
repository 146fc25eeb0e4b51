#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a newcomer reads first: each source file has a head, a comment that says what it is for, and
# doc/ARCHITECTURE.md stays short: 1,500 words, none of its paragraphs above 100. $srcdir is the
# source tree.
set -u
cd "${srcdir:-.}" || exit 99
page=doc/ARCHITECTURE.md most_words=1500 most_of_paragraph=100

# The head comes behind the licence's line and before the first line of code.
headless=$(find lib lm mpi onnx tools tests bench -name '*.c' ! -name kernel_texts.c ! -name '*pb-c.c' |
  sort | xargs awk '
    function leave() { if (name != "" && !headed) print name }
    FNR == 1 { leave(); name = FILENAME; headed = 0; looking = 1 }
    !looking || /^$/ || /SPDX-License-Identifier/ { next }
    { headed = /^\/\*/; looking = 0 }
    END { leave() }')
[ -z "$headless" ] || printf 'without a comment at its head that says what it is for:\n%s\n' "$headless"

long=$(awk -v most="$most_of_paragraph" '
    function end() { if (words > most) print "line " begin ": " words " words"; words = 0 }
    /^```/ { code = !code; end(); next }
    code || /^\|/ || /^#/ || /^$/ { end(); next }
    /^[0-9]+\. |^- / { end() }
    { if (!words) begin = FNR; words += NF }
    END { end() }' $page)
[ -z "$long" ] || printf '%s: paragraphs above %d words:\n%s\n' $page $most_of_paragraph "$long"

words=$(($(wc -w <$page)))
[ $words -le $most_words ] || echo "$page: $words words, more than $most_words"

[ -z "$headless$long" ] && [ $words -le $most_words ] || exit 1
echo "every source file has a head; $page: $words words"
