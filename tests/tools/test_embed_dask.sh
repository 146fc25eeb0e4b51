#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/embed_dask.py: two processes of Dask, one of which is killed while it has lines, write what
# `kiln embed` alone does.
kiln=${KILN:-$PWD/kiln}
source=$(cd "${srcdir:-.}" && pwd)
skip() {
    echo "1..0 # SKIP $*"
    exit 0
}
"$kiln" embed --help 2>&1 | grep -q 'built without' && skip 'this build has no kiln embed'
"$kiln" info >/dev/null 2>&1 || skip 'there is no device'
for python in "${PYTHON:-python3}" /usr/bin/python3 ''; do
    [ -z "$python" ] || "$python" -c 'import distributed' >/dev/null 2>&1 && break
done
[ -n "$python" ] || skip "no Dask: install python3-distributed, or \`pip install distributed\`"
. "${srcdir:-.}/tests/shell-tests"

encoder=$folder/encoder
mkdir -p "$encoder/onnx"
cp "$source/tests/models/encoder.onnx" "$encoder/onnx/model.onnx"
printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' the sun is out un '##able' '!' a >"$encoder/vocab.txt"
awk 'BEGIN {
    for (i = 0; i < 1010; i++) {
        line = ""
        for (k = 0; k < i % 7; k++) line = line "the "
        print line (i % 11 < 5 ? "sun" : "out")
    }
}' >"$folder/lines"
"$kiln" embed -m "$encoder" -o "$folder/alone" "$folder/lines" 2>/dev/null

# The first of the pieces' processes kills the worker that waits for it, as the system might.
cat >"$folder/kiln" <<END
#!/bin/sh
echo "piece of \$PPID" >>"$folder/begun"
mkdir "$folder/killed" 2>/dev/null && kill -KILL \$PPID
exec "$kiln" "\$@"
END
chmod +x "$folder/kiln"

embed() {
    (cd "$folder" && PYTHONDONTWRITEBYTECODE=1 timeout 600 "$python" "$source/examples/embed_dask.py" \
        --model "$encoder" --piece 300 --output "$folder/together" "$@" </dev/null)
}
check 'a worker is killed: its lines are done by another' 0 '^1010 lines by [12] workers$' \
    embed --kiln "$folder/kiln" "$folder/lines"
check 'four pieces, one of them twice' 0 '^5 ' awk 'END { print NR, "pieces" }' "$folder/begun"
same() {
    cmp "$folder/alone" "$folder/together" && echo same
}
check 'each line once, in its place' 0 '^same$' same
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$source/examples"
check 'what kiln says of a piece is what the example says' 1 'encoder.nowhere.*No such file' "$python" -c '
import sys, embed_dask
embed_dask.embed(sys.argv[1:], [b"the sun\n"])' "$kiln" embed -m "$encoder/nowhere"
finish
