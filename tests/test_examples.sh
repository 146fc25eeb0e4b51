#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make check` does not see of the examples by running each as it is: training in narrow types,
# and the command line. The folder of the examples is $EXAMPLES, else ./examples.
examples=${EXAMPLES:-./examples}
folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT
number=0
failures=0

# check NAME STATUS PATTERN COMMAND...: the exit status, and a pattern in all that it says.
check() {
    name=$1 status=$2 pattern=$3
    shift 3
    number=$((number + 1))
    "$@" >"$folder/said" 2>&1
    got=$?
    if [ "$got" -eq "$status" ] && grep -q -e "$pattern" "$folder/said"; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name: status $got instead of $status, or no \"$pattern\" in:"
        sed 's/^/# /' "$folder/said"
        failures=$((failures + 1))
    fi
}

# Its status says that 91% are read, as with f32.
check "bf16 trains as f32 does" 0 ' in bf16, 60 epochs' "$examples/train_digits" --precision bf16
check "f16 trains as f32 does" 0 ' in f16, 60 epochs' "$examples/train_digits" --precision f16
check "weights in i8 read as f32 ones do" 0 ' in i8, 60 epochs' "$examples/train_digits" -p i8
check "training's help" 0 '^usage: train_digits .*--precision' "$examples/train_digits" --help
check "training in no such type" 2 '^usage: train_digits ' "$examples/train_digits" --precision u8
check "training on too many devices" 2 '^usage: train_digits ' "$examples/train_digits" 0 1

echo "1..$number"
[ "$failures" -eq 0 ]
