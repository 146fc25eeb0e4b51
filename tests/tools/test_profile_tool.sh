#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `kiln profile`: its frame, and what it shows of a program. The program under test is $KILN, else
# ./kiln; what it profiles is an example.
kiln=${KILN:-./kiln}
. "${srcdir:-.}/tests/shell-tests"
unset KILN_TRACE

run() {
    "$kiln" profile "$@"
}

check "help" 0 '^Usage: kiln profile ' --help
check "without a program" 2 'a program to run is missing'
check "rows that are none" 2 '"x" is no number of rows' --rows x true
check "fewer than no rows" 2 '"-1" is no number of rows' --rows=-1 true
check "no such program" 127 'No such file' "$folder/none"
check "a program without kiln" 0 'true ran no batch of kiln' true
check "a trace in no such folder" 1 'No such file' --trace "$folder/none/x" true
# shellcheck disable=SC2016 # expanded by the program that is profiled
check "a trace that is none" 1 'is no trace' sh -c 'echo nonsense >"$KILN_TRACE"'
# shellcheck disable=SC2016
check "the exit status is the program's" 7 'is no trace' sh -c 'echo x >"$KILN_TRACE"; exit 7'
if ! "$kiln" info >/dev/null 2>&1; then
    finish
    exit
fi
check "a table names what is computed" 0 ' kiln_map: relu, mul, add' --no-peaks ./examples/hello
check "and of what shapes" 0 'f32\[4\] f32\[4\] -> f32\[4\]' --no-peaks ./examples/hello
run() {
    COLUMNS=80 "$kiln" profile "$@" | awk 'length > 80' | grep . || echo "all fit"
}
check "the table fits a terminal" 0 '^all fit$' --no-peaks --rows 0 \
    sh -c './examples/train_digits --stop 1 >/dev/null'
run() {
    "$kiln" profile "$@"
}
check "and what the program calls it" 0 ' for .*hidden' --no-peaks --rows 0 \
    ./examples/train_digits --stop 1
check "also of its gradient, apart" 0 ' for gradient of hidden$' --by-name --no-peaks --rows 0 \
    ./examples/train_digits --stop 1
check "peaks are measured" 0 '^peak: .* GFLOP/s by a product' ./examples/hello
check "an object is JSON" 0 '"what": "relu, mul, add"' --json ./examples/hello
check "so many rows and no more" 0 '^... and [1-9]' --no-peaks --rows 1 ./examples/train_digits
check "a picture" 0 '10 24 30 48' --svg "$folder/bars.svg" --no-peaks ./examples/hello
check "a picture into no such folder" 1 'No such file' --svg "$folder/none/x" ./examples/hello
check "a trace that stays" 0 . --trace "$folder/trace" --no-peaks ./examples/hello
run() {
    "$@"
}
check "the picture has a bar" 0 '<title>kiln_map: relu, mul, add' cat "$folder/bars.svg"
check "the trace is one" 0 '"traceEvents"' cat "$folder/trace"
# shellcheck disable=SC2016 # expanded by the shell that is started
check "nothing else is left" 0 '^0$' sh -c 'ls "$TMPDIR" | grep -c kiln-profile || true'

finish
