#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A program from a bundle of kernels alone, where nothing may be compiled. The program under test is
# $KILN, else ./kiln; the folder of the examples is $EXAMPLES, else ./examples.
kiln=${KILN:-./kiln}
examples=${EXAMPLES:-./examples}
. "${srcdir:-.}/tests/shell-tests"
unset KILN_CACHE
if ! "$kiln" info >/dev/null 2>&1; then
    echo "1..0 # SKIP no OpenCL device here"
    exit 0
fi

# without_compiler FOLDER COMMAND...: with kiln's cache there, and an empty one of the driver's own.
without_compiler() {
    rm -rf "$folder/driver"
    mkdir -p "$1" "$folder/driver"
    chmod 700 "$1" "$folder/driver"
    cache=$1
    shift
    KILN_COMPILE=never KILN_CACHE_DIR="$cache" POCL_CACHE_DIR="$folder/driver" "$@"
}

# each NAME PATTERN: an example's kernels, what it says without and with them.
each() {
    check "$1: its kernels are exported" 0 '^[1-9][0-9]* exported$' \
        "$kiln" cache export "$folder/$1.kiln" "$examples/$1"
    check "$1: without them it says what is missing" 1 \
        ') is not in the kernel cache .*, and nothing may be compiled' \
        without_compiler "$folder/$1.none" "$examples/$1"
    check "$1: they are imported" 0 '^[1-9][0-9]* imported$' \
        "$kiln" cache import --dir "$folder/$1.cache" "$folder/$1.kiln"
    check "$1: it runs from them alone" 0 "$2" \
        without_compiler "$folder/$1.cache" "$examples/$1"
}

mkdir -m 700 "$folder/cache"
export KILN_CACHE_DIR="$folder/cache"
each hello .
each executor .

finish
