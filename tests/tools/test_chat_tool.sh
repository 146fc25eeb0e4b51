#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `kiln chat` with the tiny model of tests/lm: arguments, sentences, conversations from a file and on a
# terminal. The program under test is $KILN, else ./kiln.
kiln=${KILN:-./kiln}
source=${srcdir:-.}
model=$source/tests/lm/tiny.gguf
. "$source/tests/shell-tests"
. "$source/tests/lm/hub.sh"

run() {
    "$kiln" chat "$@" </dev/null
}

if "$kiln" chat --help 2>&1 | grep -q 'built without'; then
    check "a build without it says so" 1 'built without libkiln-lm' "$model"
    finish
    exit
fi
check "help" 0 '^Usage: kiln chat ' --help
check "its options" 0 '--temperature=NUMBER' --help
check "no model" 2 'MODEL is missing'
check "two models" 2 '"b" is one argument too many' a b
check "an option that is none" 2 'did you mean' --sytem x a
if ! "$kiln" info >/dev/null 2>&1; then
    finish
    exit
fi
check "a file that is not there" 1 'kiln chat: .*nowhere.gguf: No such file' nowhere.gguf
hub llama wide "$folder/hub"
printf %s '{% for m in messages %}{{ m.content }}{% endfor %}' >"$folder/hub/chat_template.jinja"
run() {
    echo the sun | "$kiln" chat -n 4 "$folder/hub" >"$folder/said" && wc -c <"$folder/said"
}
check "a folder answers" 0 '^ *[1-9][0-9]*$'
if ! "$kiln" embed --help 2>&1 | grep -q 'built without'; then
    run() {
        echo the sun | "$kiln" chat "$source/tests/lm/genai"
    }
    check "a folder without a template" 1 'the model.s file has no chat template'
    mkdir "$folder/genai"
    cp "$source"/tests/lm/genai/* "$folder/genai"
    printf %s '{% for m in messages %}{{ m.content }}{% endfor %}' >"$folder/genai/chat_template.jinja"
    run() {
        printf 'the sun is out there\n\n' | "$kiln" chat -n 27 "$folder/genai" | cksum
    }
    check "a folder of onnxruntime-genai's form answers as it generates" 0 '^3122130404 37$'
fi
run() {
    "$kiln" chat "$model" </dev/null && echo fine
}
check "nobody says anything" 0 '^fine$'

# What the lines of a conversation are answered with, in $folder/NAME: said NAME OPTION...
said() {
    name=$1
    shift
    "$kiln" chat -n 8 "$@" "$model" >"$folder/$name" 2>"$folder/$name.errors"
}
run() {
    printf 'the sun\n\nthe river\n' | said two --context 96 && printf 'the river' | said one &&
        ! cmp -s "$folder/two" "$folder/one" && printf 'the sun\n' | said first &&
        head -c "$(wc -c <"$folder/first")" "$folder/two" | cmp - "$folder/first" &&
        [ ! -s "$folder/two.errors" ] && echo fine
}
check "each line is answered, by all before it" 0 '^fine$'
run() {
    printf 'the sun' | said told --system 'over the rain' && ! cmp -s "$folder/told" "$folder/first" &&
        printf 'the sun\n' | said drawn -T 3 --seed 3 && ! cmp -s "$folder/drawn" "$folder/first" && echo fine
}
check "what it is told, and how tokens are drawn" 0 '^fine$'
run() {
    printf 'the sun\nthe rain\nis it\n' | said full -n 4 --context 80
    status=$?
    cat "$folder/full.errors"
    return $status
}
check "what is oldest is forgotten" 0 'context of 80 tokens is full: what is oldest is forgotten'
run() {
    printf 'the sun\n' | "$kiln" chat --context 12 "$model"
}
check "a question without room" 1 'more than the context has room for'
if [ -c /dev/full ]; then
    run() {
        printf 'the sun\n' | "$kiln" chat -n 5 "$model" >/dev/full
    }
    check "an output that is full" 1 'standard output could not be written'
fi

# Somebody on a terminal, who ends an answer and half a line by ctrl-C, and leaves by ctrl-D.
if ! command -v python3 >/dev/null; then
    finish
    exit
fi
cat >"$folder/terminal.py" <<'TEXT'
import os, pty, re, select, sys, termios, time

pid, terminal = pty.fork()
if not pid:
    os.execv(sys.argv[1], sys.argv[1:])
said = b''


def keep_output(kept):
    """Whether what is written is kept at ctrl-C, beside what is typed; the system drops both, later
    than the program hears of it."""
    attributes = termios.tcgetattr(terminal)
    attributes[3] = attributes[3] & ~termios.NOFLSH | (termios.NOFLSH if kept else 0)
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def wait_for(pattern, again=b''):
    """What is said up to the pattern; what is typed again while nothing is said."""
    global said
    end = time.time() + 600
    while not (found := re.search(pattern, said)):
        ready, _, _ = select.select([terminal], [], [], 5)
        if not ready:
            os.write(terminal, again)
        try:
            part = os.read(terminal, 4096) if ready else b''
        except OSError:
            part, end = b'', 0
        said += part
        if not part and time.time() > end:
            sys.exit(f'no {pattern} in {said}')
    before, said = said[:found.end()], said[found.end():]
    return before


keep_output(True)
wait_for(rb'> ')
os.write(terminal, b'the rain\n')
wait_for(rb'the rain\r\n.')
os.write(terminal, b'\x03')
tokens = int(re.search(rb'\((\d+) tokens, [\d.e+]+ tokens/s\)', wait_for(rb'tokens/s\)')).group(1))
wait_for(rb'> ')
keep_output(False)
os.write(terminal, b'half a li\x03')
wait_for(rb'> ', b'\x03')
os.write(terminal, b'\x04')
_, status = os.waitpid(pid, 0)
print('fine' if not status and tokens < 60000 else f'{status} {tokens}')
TEXT
run() {
    python3 "$folder/terminal.py" "$kiln" chat -n 60000 --context 60000 "$model"
}
check "a terminal: ctrl-C ends the answer, ctrl-D the conversation" 0 '^fine$'

finish
