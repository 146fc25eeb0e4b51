#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make check` does not see of the examples by running each as it is: training in narrow types,
# a server that is interrupted, and the command line. The folder of the examples is $EXAMPLES, else ./examples.
examples=${EXAMPLES:-./examples}
. "${srcdir:-.}/tests/shell-tests"

# Its status says that 91% are read, as with f32.
check "bf16 trains as f32 does" 0 ' in bf16, 60 epochs' "$examples/train_digits" --precision bf16
check "f16 trains as f32 does" 0 ' in f16, 60 epochs' "$examples/train_digits" --precision f16
check "weights in i8 read as f32 ones do" 0 ' in i8, 60 epochs' "$examples/train_digits" -p i8
check "training's help" 0 '^usage: train_digits .*--precision' "$examples/train_digits" --help
check "training in no such type" 2 '^usage: train_digits ' "$examples/train_digits" --precision u8
check "training on too many devices" 2 '^usage: train_digits ' "$examples/train_digits" 0 1

# All that training leaves, its losses too, has the same bits whether it ended in between or not.
goes_on() {
    "$examples/train_digits" --save "$folder/whole" >"$folder/out" &&
        "$examples/train_digits" --stop 20 --save "$folder/part" >>"$folder/out" &&
        "$examples/train_digits" --resume "$folder/part" --save "$folder/both" >>"$folder/out" &&
        ! cmp -s "$folder/whole" "$folder/part" &&
        cmp "$folder/whole" "$folder/both" && echo "the same bits"
}
check "training goes on as if it had not ended" 0 '^the same bits' goes_on
check "training that goes on from no file" 1 'kiln_load_into: .*/nowhere: ' \
    "$examples/train_digits" --resume "$folder/nowhere"
check "training until no epoch" 2 '^usage: train_digits ' "$examples/train_digits" --stop 0

# serve_until SIGNAL: a server, a load of clients, the signal; says what the server and the load say.
serve_until() {
    : >"$folder/served" # the server before it left its words there
    "$examples/serve_digits" --socket "$folder/socket" >"$folder/served" 2>&1 &
    server=$!
    # As long as it trains, and has not ended.
    until grep -q '^serving at ' "$folder/served"; do
        kill -0 "$server" 2>/dev/null || break
        sleep 0.1
    done
    "$examples/serve_digits" --load "$folder/socket" --clients 3 --rounds 2 || return 99
    kill -s "$1" "$server"
    wait "$server"
    ended=$?
    cat "$folder/served"
    [ ! -e "$folder/socket" ] || echo "the socket is still there"
    return "$ended"
}

check "a server ends when it is interrupted" 0 '^3 clients, 720 questions, 0 refused, 0 cut off' \
    serve_until INT
check "a server ends when it is asked to" 0 '^3 clients, 720 questions, 0 refused, 0 cut off' \
    serve_until TERM
check "nobody answers where no server is" 1 '^0 answers to 2 clients, 360 failed' \
    "$examples/serve_digits" --load "$folder/socket" --clients 2 --rounds 1
check "serving's help" 0 '^usage: serve_digits ' "$examples/serve_digits" --help
check "serving and asking at once" 2 '^usage: serve_digits ' "$examples/serve_digits" \
    --socket "$folder/socket" --load "$folder/socket"
check "no clients" 2 '^usage: serve_digits ' "$examples/serve_digits" --load x --clients 0

finish
