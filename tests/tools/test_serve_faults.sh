#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `kiln serve` while OpenCL calls fail, disks are full, and another server beside it is killed: its clients
# (serve_client.py) get what they get otherwise. The program under test is $KILN, else ./kiln; $PYTHON is
# the interpreter, else python3.
kiln=${KILN:-./kiln}
source=${srcdir:-.}
model=$source/tests/lm/tiny.gguf
python=${PYTHON:-python3}
layer=${KILN_TEST_LAYER:-$(pwd)/tests/layer/kiln-layer.so}
. "$source/tests/shell-tests"

give_up() {
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
    finish
    exit
}
"$kiln" serve --help 2>&1 | grep -q 'built without' && give_up 'a server' 'built without'
"$kiln" info >/dev/null 2>&1 || give_up 'a server' 'no device'
"$python" -c 'import http.client' 2>/dev/null || give_up 'clients' 'no Python'

export KILN_API_KEY=secret
servers=
trap 'kill -9 $servers 2>/dev/null; rm -rf "$folder"' EXIT

# serve NAME: sets $server to its process, and waits until $folder/NAME.where says where it listens.
serve() {
    : >"$folder/$1.where"
    (
        trap '' XFSZ
        exec "$kiln" serve --port 0 --slots 4 --context 200 "$model"
    ) >"$folder/$1.where" 2>"$folder/$1.log" &
    server=$!
    servers="$servers $server"
    while ! [ -s "$folder/$1.where" ] && kill -0 "$server" 2>/dev/null; do
        sleep 0.1
    done
}
ask() {
    "$python" -B "$source/tests/tools/serve_client.py" "$(cat "$folder/$1.where")" "$2" "$folder/known" "${3-0}"
}
end() {
    kill -TERM "$server"
    wait "$server"
}
run() {
    ask "$@"
}

# What clients get, and how many launches that takes.
if [ -f "$layer" ]; then
    export OPENCL_LAYERS="$layer" KILN_LAYER_OUTPUT="$folder/counts"
fi
serve plain
check "what clients get" 0 '^fine$' plain faults_begin
end
unset KILN_LAYER_OUTPUT
counted() {
    sed -n "s/^$1=//p" "$folder/counts" 2>/dev/null
}

# A call that fails once, and a command that does once it has begun; both are behind all that the server
# does before it listens.
for where in call event; do
    [ -f "$layer" ] || continue
    case $where in
        call) KILN_LAYER_FAIL="clEnqueueNDRangeKernel:$(counted clEnqueueNDRangeKernel)" ;;
        event) KILN_LAYER_FAIL="$(counted eligible.event)" ;;
    esac
    export KILN_LAYER_FAIL KILN_LAYER_FAIL_WHERE="$where"
    serve "$where"
    unset KILN_LAYER_FAIL KILN_LAYER_FAIL_WHERE
    check "a launch fails, as $where" 0 '^fine$' "$where" faults 1
    run() {
        end && echo fine
    }
    check "a clean end behind it" 0 '^fine$'
    run() {
        ask "$@"
    }
done
unset OPENCL_LAYERS

# No file can be written any more, that of what is said among them.
serve full
if prlimit --fsize=0:0 --pid "$server" 2>/dev/null; then
    check "a disk that is full" 0 '^fine$' full faults
else
    number=$((number + 1))
    echo "ok $number - a disk that is full # SKIP no prlimit"
fi
end

# Two share a cache; one is killed while both answer.
serve other
other=$server
serve kept
run() {
    ask kept faults &
    asks=$!
    ask other faults_killed "$other" && wait "$asks"
}
check "a server beside it is killed" 0 '^fine$'
run() {
    ask "$@"
}
serve again
check "another one begins behind that" 0 '^fine$' again faults
run() {
    end && echo fine
}
check "a clean end of it" 0 '^fine$'

finish
