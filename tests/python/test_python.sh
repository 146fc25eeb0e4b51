#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The package for Python, beside numpy: its tests speak TAP themselves. $PYTHON is the interpreter, else
# one that has numpy is looked for.
source=$(cd "${srcdir:-.}" && pwd)
library=$PWD/.libs/libkiln.so.0

skip() {
    echo "1..0 # SKIP $*"
    exit 0
}

for python in ${PYTHON-} python3 /usr/bin/python3; do
    "$python" -c 'import sys, numpy; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && break
    python=
done
[ -n "$python" ] || skip "no Python from 3.9 on with numpy"
[ -f "$library" ] || skip "no shared library"
if ${NM:-nm} -D "$library" 2>/dev/null | grep -qE '__(asan|tsan|ubsan)_'; then
    skip "the interpreter cannot load a library with sanitizers"
fi

folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT
cp -R "$source/python/kiln" "$folder" && chmod -R u+w "$folder/kiln" && # `make distcheck` has it read-only
    "$python" -B "$source/python/generate.py" "$source" "$folder/kiln" || exit 99
export KILN_LIBRARY="$library" KILN_HEADERS="$PWD/include/kiln" KILN_SOURCE="$source"
export PYTHONPATH="$folder" PYTHONDONTWRITEBYTECODE=1
export KILN_CACHE="${KILN_CACHE:-off}" # no test looks at what is cached: tests/run-test says what that costs
"$python" "$source/python/tests/tap.py" "$@"
