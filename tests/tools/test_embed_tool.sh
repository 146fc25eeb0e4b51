#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `kiln embed`: arguments, sentences, files, and vectors of an encoder whose token i is [i 1 0 -1].
# The program under test is $KILN, else ./kiln.
kiln=${KILN:-./kiln}
models=${srcdir:-.}/tests/models
. "${srcdir:-.}/tests/shell-tests"

run() {
    "$kiln" embed "$@"
}

if "$kiln" embed --help 2>&1 | grep -q 'built without'; then
    check "a build without it says so" 1 'built without libkiln-onnx and libutf8proc' -m x
    finish
    exit
fi
encoder=$folder/encoder
mkdir -p "$encoder/onnx" "$encoder/1_Pooling" "$folder/empty"
cp "$models/encoder.onnx" "$encoder/onnx/model.onnx"
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' the sun is out un '##able' '!' a >"$encoder/vocab.txt"
printf '%s\n' 'The sun' 'unable' '' 'the sun is out!' >"$folder/lines"

check "help" 0 '^Usage: kiln embed ' --help
check "version" 0 '^kiln [0-9]' --version
check "no model" 2 '--model is missing'
check "two files" 2 '"b" is one argument too many' -m x a b
check "a pooling that is none" 2 '"most" is no pooling: mean or cls' -m x -p most
check "a length that is none" 2 '"0" is no number from 1' -m x -l 0
check "a type that is none" 2 '"f8" is no precision' -m x --precision f8
check "a folder without a model" 1 'neither model.onnx nor onnx/model.onnx' -m "$folder/empty"
cp "$models/encoder.onnx" "$folder/empty"
check "a model without a vocabulary" 1 'say --vocab FILE' -m "$folder/empty/encoder.onnx"
check "a vocabulary that is none" 1 'its vocabulary has no "\[UNK\]"' -m "$encoder" -v "$folder/lines"
check "a file that is not there" 1 'nowhere: No such file' -m "$encoder" "$folder/nowhere"
check "a length without room" 1 'no room for words' -m "$encoder" -l 2 "$folder/lines"
if ! "$kiln" info >/dev/null 2>&1; then
    finish
    exit
fi
check "a model of something else" 1 'the model has an input beside input_ids' \
    -m "$models/pictures.onnx" -v "$encoder/vocab.txt" "$folder/lines"
check "a model that leaves it open" 1 'the model has several outputs' \
    -m "$models/layers.onnx" -v "$encoder/vocab.txt" "$folder/lines"
check "the mean of a line's tokens" 0 '^3.5 1 0 -1$' -m "$encoder" --no-normalize "$folder/lines"
check "a line of nothing" 0 '^2.5 1 0 -1$' -m "$encoder" --no-normalize "$folder/lines"
check "the first token" 0 '^2 1 0 -1$' -m "$encoder" --no-normalize --pooling cls "$folder/lines"
echo '{"pooling_mode_cls_token": true}' >"$encoder/1_Pooling/config.json"
check "the first token, as configured" 0 '^2 1 0 -1$' -m "$encoder" --no-normalize "$folder/lines"
check "and not, if asked" 0 '^3.5 1 0 -1$' -m "$encoder" --no-normalize -p mean "$folder/lines"
check "normalised" 0 '^0.9271[0-9]* 0.2649[0-9]* 0 -0.2649' -m "$encoder" -p mean "$folder/lines"
check "statistics" 0 '^4 sentences, 17 tokens in ' -m "$encoder" "$folder/lines"
check "JSON" 0 '"sentences": 4, "tokens": 17' -m "$encoder" --json "$folder/lines"
check "a line's end is left out" 0 '"tokens": 14' -m "$encoder" --json -l 4 "$folder/lines"
echo '{"model_max_length": 4}' >"$encoder/tokenizer_config.json"
check "as the tokenizer has it" 0 '"tokens": 14' -m "$encoder" --json "$folder/lines"
echo '{"max_seq_length": 5}' >"$encoder/sentence_bert_config.json"
check "as the encoder has it" 0 '"tokens": 15' -m "$encoder" --json "$folder/lines"
echo '{"model_max_length": 1000000000000000019884624838656}' >"$encoder/tokenizer_config.json"
rm "$encoder/sentence_bert_config.json"
check "a length that is none for a tokenizer" 0 '"tokens": 17' -m "$encoder" --json "$folder/lines"
rm "$encoder/tokenizer_config.json"
check "no lines" 0 '^0 sentences' -m "$encoder" /dev/null
check "an array" 0 '^4 sentences' -m "$encoder" --no-normalize -o "$folder/v.npy" "$folder/lines"
check "text in a file" 0 '^4 sentences' -m "$encoder" -o "$folder/v.txt" "$folder/lines"
check "an output that cannot be written" 1 'nowhere' -m "$encoder" -o "$folder/nowhere/v.npy" "$folder/lines"
check "two devices, as it happens one twice" 0 '^4 sentences, 17 tokens in .* on .*, ' \
    -m "$encoder" --device 0,0 "$folder/lines"
check "a device of several that is not there" 1 'device' -m "$encoder" --device 0,nosuch "$folder/lines"
check "more devices than there can be" 1 'more than 16 devices' -m "$encoder" \
    --device 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0 "$folder/lines"
run() {
    head -c 80 "$folder/v.npy"
}
check "its shape" 0 "'shape': (4, 4)"
run() {
    wc -l <"$folder/v.txt"
}
check "a line of text each" 0 '^ *4$'

# More lines than are sorted together: line i is `the` (i mod 7) times, then `sun` or `out`, so that
# hardly a line has its neighbours' vector, and each the bits that it has among few lines.
write_lines() {
    awk -v count="$1" 'BEGIN {
        for (i = 0; i < count; i++) {
            line = ""
            for (k = 0; k < i % 7; k++) line = line "the "
            print line (i % 11 < 5 ? "sun" : "out")
        }
    }'
}
write_lines 77 >"$folder/few"
write_lines 30000 >"$folder/many"
run() {
    "$kiln" embed -m "$encoder" -p mean -o "$folder/few.txt" "$folder/few" &&
        "$kiln" embed -m "$encoder" -p mean -o "$folder/many.txt" "$folder/many" &&
        awk 'NR == FNR { few[NR - 1] = $0; next } $0 != few[(FNR - 1) % 77] { wrong++ }
             END { print FNR " lines, " wrong + 0 " wrong" }' "$folder/few.txt" "$folder/many.txt"
}
check "three windows of lines, each in its place" 0 '^30000 lines, 0 wrong$'
run() {
    "$kiln" embed -m "$encoder" -p mean -o "$folder/file.npy" "$folder/many" &&
        write_lines 30000 | "$kiln" embed -m "$encoder" -d 0,0 -p mean --json -o "$folder/pipe.npy" - &&
        cmp "$folder/file.npy" "$folder/pipe.npy"
}
check "the same from a pipe and by two devices, as an array" 0 '"sentences": 30000, "tokens": 179995, "seconds"'
mkfifo "$folder/fifo"
run() {
    exec 3<>"$folder/fifo" # which never ends
    write_lines 20000 >&3 &
    writer=$!
    timeout 300 "$kiln" embed -m "$encoder" -p mean -o /dev/full - 3>&- <"$folder/fifo"
    ended=$?
    kill "$writer" 2>/dev/null
    exec 3>&-
    return "$ended"
}
if [ -c /dev/full ]; then
    check "an output that is full, while more lines may come" 1 'No space left'
fi
run() {
    "$kiln" embed "$@"
}
check "a model that is nowhere" 1 "nothing: No such file" -m "$folder/nothing"
if [ -f libkiln-lm.la ]; then
    lm=${srcdir:-.}/tests/lm
    printf '%s\n' 'The sun is out' '[MASK] sun' "$(yes sun | head -n 99 | tr '\n' ' ')" >"$folder/words"
    check "a GGUF file" 0 '^3 sentences, 50 tokens' -m "$lm/bert.gguf" -o "$folder/of-file.txt" "$folder/words"
    check "its own pooling" 0 '^3 sentences' -m "$lm/bert.gguf" -p cls -o "$folder/cls.txt" "$folder/words"
    check "another pooling" 0 '^3 sentences' -m "$lm/bert.gguf" -p mean -o "$folder/mean.txt" "$folder/words"
    run() {
        cmp "$folder/of-file.txt" "$folder/cls.txt" && ! cmp -s "$folder/cls.txt" "$folder/mean.txt" && echo fine
    }
    check "which differ" 0 '^fine$'
    run() {
        "$kiln" embed "$@"
    }
    check "a line's end is left out there, too" 0 '^3 sentences, 14 tokens' -m "$lm/bert.gguf" -l 5 "$folder/words"
    check "no room in a GGUF file's texts" 1 'no room for words' -m "$lm/bert.gguf" -l 2 "$folder/words"
    check "a language model" 1 'the model is no encoder: see kiln generate' -m "$lm/tiny.gguf" "$folder/words"
fi
check "a folder instead of lines" 1 'empty: Is a directory' -m "$encoder" "$folder/empty"

finish
