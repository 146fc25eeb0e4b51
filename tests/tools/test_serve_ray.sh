#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/serve_ray.py: two processes of Ray with a `kiln serve` each. One process is killed while it has
# lines, the server of the other is gone: what is written is what one server says to all lines.
kiln=${KILN:-$PWD/kiln}
source=$(cd "${srcdir:-.}" && pwd)
skip() {
    echo "1..0 # SKIP $*"
    exit 0
}
"$kiln" serve --help 2>&1 | grep -q 'built without' && skip 'this build has no kiln serve'
"$kiln" info >/dev/null 2>&1 || skip 'there is no device'
for python in "${PYTHON:-python3}" /usr/bin/python3 ''; do
    [ -z "$python" ] || "$python" -c 'import ray' >/dev/null 2>&1 && break
done
[ -n "$python" ] || skip "no Ray: \`pip install ray\`"
. "${srcdir:-.}/tests/shell-tests"

# Names of sockets are short.
export RAY_TMPDIR
RAY_TMPDIR=$(mktemp -d /tmp/ray-XXXXXX) || exit 99
trap 'rm -rf "$folder" "$RAY_TMPDIR"' EXIT
export RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=disabled RAY_worker_niceness=0
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$source/examples"
model=$folder/tiny.gguf
cp "$source/tests/lm/tiny.gguf" "$model"
awk 'BEGIN {
    for (i = 0; i < 61; i++)
        print i % 3 ? "the sun is out" : "the river", i
}' >"$folder/lines"

cat >"$folder/alone.py" <<'END'
import json, sys, serve_ray
kiln, model, lines, output = sys.argv[1:]
command = (kiln, 'serve', '--port', '0', f'lines={model}')
form = {'model': 'lines', 'prompt': open(lines).read().splitlines(), 'temperature': 0, 'max_tokens': 16}
with open(output, 'w') as file:
    for text in serve_ray.answers(command, '/v1/completions', form)[1]:
        print(json.dumps(text, ensure_ascii=False), file=file)
END
alone() {
    timeout 800 "$python" "$folder/alone.py" "$kiln" "$1" "$folder/lines" "$folder/alone" && echo fine
}
check 'one server, asked for all lines' 0 '^fine$' alone "$model"
check 'it says so many' 0 '^61$' awk 'END { print NR }' "$folder/alone"

# Which of them are asked: the first one's process is killed as soon as it has been; the second says where
# nobody listens, and ends.
cat >"$folder/asked.py" <<'END'
import re, sys, time, urllib.request
while not re.search(r'^kiln_serve_requests_total\S* [1-9]',
                    urllib.request.urlopen(sys.argv[1] + '/metrics').read().decode(), re.M):
    time.sleep(0.01)
END
cat >"$folder/kiln" <<END
#!/bin/sh
echo "\$\$" >>"$folder/begun"
if mkdir "$folder/first" 2>/dev/null; then
    "$kiln" "\$@" >"$folder/where" &
    trap "kill \$!; exit" TERM
    until [ -s "$folder/where" ]; do sleep 0.1; done
    cat "$folder/where"
    "$python" "$folder/asked.py" "\$(cat "$folder/where")"
    kill -KILL "\$WORKER"
    echo killed >"$folder/killed"
    wait
elif mkdir "$folder/second" 2>/dev/null; then
    until [ -s "$folder/killed" ]; do sleep 0.1; done
    echo http://127.0.0.1:1
else
    exec "$kiln" "\$@"
fi
END
chmod +x "$folder/kiln"
together() {
    timeout 800 "$python" "$source/examples/serve_ray.py" --piece 5 --tokens 16 --output "$folder/together" \
        "$@" "$folder/lines" </dev/null
}
check 'a process is killed, a server is gone: their lines are done by others' 0 '^61 lines by [1-9] workers$' \
    together --kiln "$folder/kiln" --model "$model"
check 'both have happened' 0 '^killed$' cat "$folder/killed"
check 'and others have begun' 0 '^[3-9]$' awk 'END { print NR }' "$folder/begun"
same() {
    cmp "$folder/alone" "$folder/together" && echo same
}
check 'each line once, in its place' 0 '^same$' same
gone() {
    for _ in $(seq 600); do
        pgrep -f "$model" || { echo gone && return; }
        sleep 0.1
    done
    return 1
}
check 'no server is left behind' 0 '^gone$' gone
check 'what kiln says is what the example says' 1 'nowhere.gguf: No such file' \
    alone "$folder/nowhere.gguf"

"$kiln" embed --help 2>&1 | grep -q 'built without' && { finish; exit; }
encoder=$folder/encoder
mkdir -p "$encoder/onnx"
cp "$source/tests/models/encoder.onnx" "$encoder/onnx/model.onnx"
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' the sun is out un '##able' '!' a >"$encoder/vocab.txt"
check 'vectors' 0 '^61 lines by [12] workers$' together --kiln "$kiln" --model "$encoder" --vectors
"$kiln" embed -m "$encoder" "$folder/lines" >"$folder/embedded" 2>/dev/null
cat >"$folder/near.py" <<'END'
import json, sys
pairs = [([float(x) for x in a.split()], json.loads(b)) for a, b in zip(open(sys.argv[1]), open(sys.argv[2]))]
far = max(abs(x - y) for a, b in pairs for x, y in zip(a, b, strict=True))
print(len(pairs), 'near' if far < 1e-5 else far)
END
check "those of kiln embed" 0 '^61 near$' "$python" "$folder/near.py" "$folder/embedded" "$folder/together"
finish
