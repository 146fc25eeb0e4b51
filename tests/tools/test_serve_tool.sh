#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `kiln serve` with the tiny model of tests/lm: arguments, and what clients get (serve_client.py), who are
# many, slow, wrong or gone. The program under test is $KILN, else ./kiln; $PYTHON is the interpreter,
# else python3.
kiln=${KILN:-./kiln}
source=${srcdir:-.}
model=$source/tests/lm/tiny.gguf
. "$source/tests/shell-tests"
. "$source/tests/lm/hub.sh"

run() {
    "$kiln" serve "$@"
}

if "$kiln" serve --help 2>&1 | grep -q 'built without'; then
    check "a build without it says so" 1 'built without libkiln-lm and libmicrohttpd' "$model"
    finish
    exit
fi
check "help" 0 '^Usage: kiln serve ' --help
check "no model" 2 'MODEL is missing'
check "a port that is none" 2 '"70000" is no whole number from 0 to 65535' -p 70000 x
check "one slot" 2 '"1" is no whole number from 2 to 64' --slots 1 x
check "a key that is empty" 2 'the key is empty' --api-key= x
if ! "$kiln" info >/dev/null 2>&1; then
    finish
    exit
fi
check "a file that is not there" 1 'nowhere.gguf: No such file' nowhere.gguf
check "two models of a name" 1 'two models are called tiny' "$model" "tiny=$model"
check "a host that is none" 1 'localhost is no address' --host localhost "$model"
vectors=
"$kiln" embed --help 2>&1 | grep -q 'built without' || vectors=vectors
if [ "$vectors" ]; then
    mkdir -p "$folder/vectors/onnx" "$folder/none"
    cp "$source/tests/models/encoder.onnx" "$folder/vectors/onnx/model.onnx"
    printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' the sun is out un '##able' '!' a >"$folder/vectors/vocab.txt"
    printf '%s\n' 'The sun' unable '' 'the sun is out!' 'the the the sun' 'un!able a sun' >"$folder/lines"
    "$kiln" embed -m "$folder/vectors" "$folder/lines" >"$folder/embedded" 2>/dev/null
    check "a folder without an encoder" 1 '^kiln serve: there is neither model.onnx nor' "$folder/none"
    check "an encoder without a vocabulary" 1 'nor vocab.txt beside the model$' \
        "$source/tests/models/encoder.onnx"
    check "an encoder with no room" 1 'no room for words' --context 2 "$folder/vectors"
else
    check "a build without encoders" 1 'built without libkiln-onnx, which reads x.onnx' x.onnx
fi
[ ! "$vectors" ] || check "a context that an ONNX file has not" 1 'context is 65 tokens, and the model has 64' \
    --context 65 "$source/tests/lm/genai"
hub llama wide "$folder/hub"
check "a memory that is too small" 1 'options->memory_limit is 1048576' --memory-limit 1 --context 4000 "$model"

python=${PYTHON:-python3}
if ! "$python" -c 'import http.client' 2>/dev/null; then
    number=$((number + 1))
    echo "ok $number - clients # SKIP no Python"
    finish
    exit
fi

export KILN_API_KEY=secret
serve() {
    : >"$folder/where"
    "$kiln" serve --port 0 "$model" "$@" ${vectors:+"$folder/vectors/"} >"$folder/where" 2>"$folder/log" &
    server=$!
    trap 'kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
    waited=0
    while ! [ -s "$folder/where" ] && kill -0 "$server" 2>/dev/null && [ "$waited" -lt 6000 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
}

serve --slots 4 --queue 20 --context 600 --max-body 20000 --drain 600 "other=$model"

ask() {
    "$python" -B "$source/tests/tools/serve_client.py" "$(cat "$folder/where")" "$@"
}
run() {
    ask "$@"
}

check "models, health" 0 '^fine$' pages
check "a stream is the whole answer" 0 '^fine$' streams
check "prompts of tokens, several, several answers" 0 '^fine$' prompts
check "texts that stop" 0 '^fine$' stops
check "log-probabilities" 0 '^fine$' logprobs
check "long bodies" 0 '^fine$' long_bodies
check "conversations" 0 '^fine$' chats
if [ "$vectors" ]; then
    check "vectors" 0 '^fine$' vectors "$folder/embedded"
    check "vectors of 12 clients at once" 0 '^fine$' vectors_together
    check "wrong requests for vectors" 0 '^fine$' vectors_wrong
    check "more vectors than may wait" 0 '^fine$' vectors_busy
    check "vectors for the package openai" 0 '^fine$\|^no package' vectors_openai
fi
check "16 clients at once get what they get alone" 0 '^fine$' together
check "wrong requests" 0 '^fine$' wrong
check "more than may wait" 0 '^fine$' busy
check "broken connections" 0 '^fine$' broken
check "slow readers" 0 '^fine$' slow
check "the package openai" 0 '^fine$\|^no package' openai
check "metrics" 0 '^fine$' metrics tiny $vectors
check "SIGTERM: answers are finished, others refused" 0 '^fine$' drain "$server" $vectors
run() {
    wait "$server" && echo fine
}
check "a clean end" 0 '^fine$'
run() {
    cat "$folder/log"
}
check "what is said" 0 '^kiln serve: ends as soon as [1-9][0-9]* requests are answered$'

if [ "$vectors" ]; then
    mkdir "$folder/genai"
    cp "$source"/tests/lm/genai/* "$folder/genai"
    printf %s '{% for m in messages %}{{ m.content }}{% endfor %}' >"$folder/genai/chat_template.jinja"
    "$kiln" generate -n 27 "$folder/genai" 'the sun is out there' >"$folder/generated"
    "$kiln" embed -m "$source/tests/lm/bert.gguf" "$folder/lines" >"$folder/embedded" 2>/dev/null
    serve --slots 3 --context 64 "$folder/genai" "bert=$source/tests/lm/bert.gguf"
    run() {
        ask "$@"
    }
    check "a model of onnxruntime-genai, for one and for eight at once" 0 '^fine$' genai "$folder/generated"
    check "vectors of an encoder in a GGUF file" 0 '^fine$' vectors_gguf "$folder/embedded"
    run() {
        kill -TERM "$server" && wait "$server" && echo fine
    }
    check "a clean end of it" 0 '^fine$'
fi

serve --slots 2 --context 60000 --drain 0 "$folder/hub"
run() {
    ask "$@"
}
check "a folder of transformers'" 0 '^fine$' hub
check "SIGTERM: a text that begins when others are cut off is, too" 0 '^fine$' late "$server" $vectors
run() {
    wait "$server" && echo fine
}
check "a clean end of that" 0 '^fine$'

finish
