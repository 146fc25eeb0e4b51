#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `kiln generate` with the tiny model of tests/lm: arguments, sentences, and how texts go on. The
# program under test is $KILN, else ./kiln.
kiln=${KILN:-./kiln}
source=${srcdir:-.}
model=$source/tests/lm/tiny.gguf
text="The sun is out, they're going to the river"
. "$source/tests/shell-tests"
. "$source/tests/lm/hub.sh"

run() {
    "$kiln" generate "$@"
}

if "$kiln" generate --help 2>&1 | grep -q 'built without'; then
    check "a build without it says so" 1 'built without libkiln-lm' "$model" x
    finish
    exit
fi
check "help" 0 '^Usage: kiln generate ' --help
check "its options" 0 '--temperature=NUMBER' --help
check "no model" 2 'MODEL is missing'
check "three arguments" 2 '"c" is one argument too many' a b c
check "a temperature that is none" 2 '"warm" is no number' -T warm a b
check "a share that is none" 2 '"2" is no number from 0 to 1' --top-p 2 a b
check "a number that is none" 2 '"-1" is no whole number' -n -1 a b
check "a seed that JSON has not" 2 'is no whole number from 0 to 9223372036854775807' --seed 18446744073709551615 a b
check "an option that is none" 2 'did you mean' --temprature 1 a b
if ! "$kiln" info >/dev/null 2>&1; then
    finish
    exit
fi
check "a file that is not there" 1 'nowhere.gguf: No such file' nowhere.gguf x
check "a file of something else" 1 'is no GGUF file' "$0" x
check "no text" 1 'no tokens to go on from' "$model" ''
check "more than the context" 1 'more than the session.s context of 5' --context 5 "$model" "$text"
check "a text goes on" 0 '"tokens": 20, "ended": "length"' --json -n 20 "$model" "$text"
check "until the context is full" 0 '"prompt_tokens": 11, "tokens": 3' --json --context 14 "$model" "$text"
run() {
    "$kiln" generate -n 20 "$model" "$text" >"$folder/argument" &&
        echo "$text" | "$kiln" generate -n 20 "$model" >"$folder/input" &&
        cmp "$folder/argument" "$folder/input" && wc -c <"$folder/input"
}
check "from standard input, too" 0 '^ *[1-9][0-9]*$'
draw() {
    "$kiln" generate -n 20 -T 2 --seed "$1" "$model" "$text"
}
run() {
    draw 1 >"$folder/first" && draw 1 >"$folder/again" && draw 2 >"$folder/other" &&
        cmp "$folder/first" "$folder/again" && ! cmp -s "$folder/first" "$folder/other" && echo fine
}
check "a seed gives the same text again" 0 '^fine$'
run() {
    "$kiln" generate -n 12 "$source/tests/lm/mistral.gguf" 'the sun is over and out in the rain' >"$folder/said" &&
        "$kiln" generate -n 12 --window 7 "$source/tests/lm/mistral.gguf" 'the sun is over and out in the rain' |
        cmp - "$folder/said" &&
        ! "$kiln" generate -n 12 --window 2 "$source/tests/lm/mistral.gguf" 'the sun is over and out in the rain' |
        cmp -s - "$folder/said" && echo fine
}
check "a window that is said, and another" 0 '^fine$'
# A folder of transformers'.
hub llama wide "$folder/hub"
run() {
    "$kiln" generate "$@"
}
check "a folder goes on" 0 '"prompt_tokens": 24, "tokens": 5, "ended": "length"' --json -n 5 "$folder/hub" \
    "The sun is out, they're going to 1984"
check "a folder without a model" 1 'the folder has no config.json' "$source" x
# A folder of onnxruntime-genai's form; version 0.18 of that gives the same bytes.
if ! "$kiln" embed --help 2>&1 | grep -q 'built without'; then
    onnx=$source/tests/lm/genai
    run() {
        printf %s "$2" | "$kiln" generate -n "$1" "$onnx" | cksum
    }
    check "an ONNX model goes on" 0 '^3122130404 37$' 27 'the sun is out there'
    check "its prompt in parts" 0 '^2245809849 10$' 9 'they were there in the outer sea, as the others were'
    run() {
        "$kiln" generate "$@"
    }
    check "until its context is full" 0 '"prompt_tokens": 13, "tokens": 7, "ended": "length"' --json --context 20 "$onnx" 'the sun is out there'
    check "control tokens that are written out" 0 '"prompt_tokens": 3, "tokens": 1,' --json -n 1 --control "$onnx" 'a<|end|>b'
    check "which are text else" 0 '"prompt_tokens": 9, "tokens": 1,' --json -n 1 "$onnx" 'a<|end|>b'
    check "a context that it has not" 1 'context is 65 tokens, and the model has 64' --context 65 "$onnx" x
    check "a text that is too long" 1 'more than the session.s context of 5' --context 5 "$onnx" "$text"
    check "a folder's text of nothing" 1 'no tokens to go on from' "$onnx" ''
    run() {
        rm -rf "$folder/changed"
        cp -r "$onnx" "$folder/changed"
        chmod -R u+w "$folder/changed"
        sed 's/"\\u0104": 5,/"unused": 5,/' "$onnx/tokenizer.json" >"$folder/changed/tokenizer.json"
        "$kiln" generate --json -n 1 "$folder/changed" "$(printf 't\004he')"
    }
    check "a byte without a token is left out" 0 '"prompt_tokens": 2, "tokens": 1,'
fi
if [ -c /dev/full ]; then
    run() {
        "$kiln" generate -n 5 "$model" "$text" >/dev/full
    }
    check "an output that is full" 1 'standard output could not be written'
fi

finish
