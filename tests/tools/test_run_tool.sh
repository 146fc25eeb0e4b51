#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `kiln run`: arguments, sentences, exit statuses, files in and out. The program under test is
# $KILN, else ./kiln; tests/models has what it runs.
kiln=${KILN:-./kiln}
models=${srcdir:-.}/tests/models
. "${srcdir:-.}/tests/shell-tests"

run() {
    "$kiln" run "$@"
}

# array FILE ROWS COLUMNS FLOAT...: a .npy file of f32, each number as four octal escapes.
array() {
    file=$1 shape="$2, $3"
    shift 3
    header="{'descr': '<f4', 'fortran_order': False, 'shape': ($shape), }"
    {
        printf '\223NUMPY\001\000\166\000%-117s\n' "$header"
        for element; do
            # shellcheck disable=SC2059
            printf "$element"
        done
    } >"$file"
}
one='\000\000\200\077' two='\000\000\000\100' minus='\000\000\200\277' zero='\000\000\000\000'

if "$kiln" run --help 2>&1 | grep -q 'built without'; then
    check "a build without ONNX says so" 1 'built without libkiln-onnx' "$models/layer.onnx"
    finish
    exit
fi
check "help" 0 '^Usage: kiln run ' --help
check "version" 0 '^kiln [0-9]' --version
check "no model" 2 'a model is missing'
check "two models" 2 '"b" is one argument too many' a b
check "an input without a file" 2 '"x" is not NAME=VALUE' --input x a
check "a size that is none" 2 '"0" is no number from 1' --dim batch=0 a
check "runs that are none" 2 '"many" is no number from 1' --bench=many a
check "a type that is none" 2 '"f8" is no precision: f32, tf32, bf16, f16 or i8' --precision f8 a
check "a profile of what is compared" 2 'either --profile or --validate' --profile --validate a
if ! "$kiln" info >/dev/null 2>&1; then
    finish
    exit
fi
check "a missing file" 1 'nowhere.onnx' "$folder/nowhere.onnx"
check "a file that is no model" 1 'shell-tests' "${srcdir:-.}/tests/shell-tests"
check "an operator that nobody has" 4 'Nonesuch' "$models/unknown.onnx" --random
check "a description of inputs" 0 '^input  *x  *f32  *\[batch, 3\]$' "$models/layer.onnx"
check "a description of outputs" 0 '^output  *y  *f32  *\[batch, 2\]$' "$models/layer.onnx"
check "the same as JSON" 0 '"batch",$' "$models/layer.onnx" --json
check "an input is missing" 1 'say --input x=FILE.npy, or --random' "$models/layer.onnx" --bench 1
check "a dimension is missing" 1 'say --dim batch=SIZE' "$models/layer.onnx" --random
check "an input that is none" 1 'the model has no input "z"' "$models/layer.onnx" -i z=x.npy
check "an output that is none" 1 'the model has no output "z"' "$models/layer.onnx" -r -n batch=2 -o z=x
check "random inputs" 0 '^output  *y  *f32  *\[2, 2\]$' "$models/layer.onnx" -r -n batch=2
check "a dimension by its place" 0 '^input  *x  *f32  *\[2, 3\]$' "$models/layer.onnx" -r -n x:0=2
check "times as JSON" 0 '"runs": 3,$' "$models/layer.onnx" -r -n batch=2 -b 3 --json
check "a profile" 0 ' a run, on the device$' "$models/layer.onnx" -r -n batch=2 -p
check "a profile names nodes" 0 ': xw, s, y$' "$models/layer.onnx" -r -n batch=2 -p
run() {
    # The times are others in each run.
    COLUMNS=60 "$kiln" run "$@" | awk 'length > 60' | grep . || echo "all fit"
}
check "it fits a narrow terminal" 0 '^all fit$' "$models/attention.onnx" -r -n n=5 -p
run() {
    "$kiln" run "$@"
}
check "attention in one call" 0 ' attention_[a-z]*: y$' "$models/attention.onnx" -r -n n=5 -p
check "the same, node by node" 0 ': weights$' "$models/attention.onnx" -r -n n=5 -p --plain
check "so many runs" 0 '"runs": 3,$' "$models/layer.onnx" -r -n batch=2 --bench 3 --json
check "a hundred where no number follows" 0 '"runs": 100,$' "$models/layer.onnx" -r -n batch=2 --json --bench
check "a profile as JSON" 0 '"launches": \[$' "$models/layer.onnx" -r -n batch=2 -p --json
check "a comparison with the host" 0 'agree with the host' "$models/layer.onnx" -r -n batch=2 -v

# [1 2 1], [-1 0 0] times [1 -1; 2 0; 0 3] and [0.5 -0.25] on top: [5.5 1.75], [0 0.75]
array "$folder/x.npy" 2 3 "$one" "$two" "$one" "$minus" "$zero" "$zero"
check "files in and out" 0 '^input  *x  *f32  *\[2, 3\]$' \
    "$models/layer.onnx" -i "x=$folder/x.npy" -o "y=$folder/y.npy"
array "$folder/expected.npy" 2 2 '\000\000\260\100' '\000\000\340\077' "$zero" '\000\000\100\077'
run() {
    tail -c 16 "$folder/y.npy" | cmp - "$folder/tail" && echo same
}
tail -c 16 "$folder/expected.npy" >"$folder/tail"
check "the numbers are right" 0 same
run() {
    "$kiln" run "$@"
}
check "a file that is no array" 1 'layer.onnx' "$models/layer.onnx" -i "x=$models/layer.onnx"
check "a shape that does not fit" 1 'x' "$models/layer.onnx" -i "x=$folder/expected.npy"
check "an output that cannot be written" 1 'nowhere' \
    "$models/layer.onnx" -r -n batch=2 -o "y=$folder/nowhere/y.npy"

# How far the compiler is: at a terminal alone.
if command -v script >/dev/null && script -qec true /dev/null >/dev/null 2>&1; then
    run() {
        "$@"
    }
    check "progress at a terminal" 0 'kernels are there, ' script -qec \
        "'$kiln' run '$models/layer.onnx' -r -n batch=7" /dev/null
fi
run() {
    "$kiln" run "$@" 2>&1 | grep 'kernels are there' || echo "nothing"
}
check "and nowhere else" 0 '^nothing$' "$models/layer.onnx" -r -n batch=6

run() {
    env -u KILN_STORE_PROGRAM KILN_LOG=warn KILN_CACHE_DIR="$folder/cache" \
        POCL_CACHE_DIR="$folder/driver" "$kiln" run "$@" 2>&1 | grep 'cannot be started' ||
        echo "nothing"
}
mkdir "$folder/driver"
if [ -x "${kiln%/*}/kiln-store" ]; then
    check "it finds what was built beside it" 0 '^nothing$' "$models/layer.onnx" -r -n batch=2
fi

finish
