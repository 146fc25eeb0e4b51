#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `kiln cache`: exit statuses, sentences, JSON. The program under test is $KILN, else ./kiln.
kiln=${KILN:-./kiln}
. "${srcdir:-.}/tests/shell-tests"
export KILN_CACHE_DIR="$folder/cache"
unset KILN_CACHE

run() {
    "$kiln" cache "$@"
}

check "help" 0 'Usage: kiln cache ' --help
check "no action" 2 'an action is missing'
check "unknown action" 2 'there is no action "nope"' nope
check "too many arguments" 2 '"x" is one argument too many' list x
check "export without a file" 2 'export needs the name of a file' export
check "import of two files" 2 '"b" is one argument too many' import a b
check "warm without a program" 2 'warm needs a program to run' warm
check "warm of no program" 127 'nowhere' warm "$folder/nowhere"
check "warm gives the program its options and its status" 3 '^0 stored$' warm sh -c 'exit 3' --json
check "clear has no JSON" 2 'clear has no --json' clear --json
check "list has no limit" 2 'list has no --limit' list --limit 1
for limit in x -1 1X 1KB 99999999999999999999 18014398509481984K; do
    check "limit $limit" 2 'is no number of bytes' prune --limit "$limit"
done

check "a missing cache is empty" 0 '^entries *0$' stat
check "a missing cache has no list" 1 "there is no kernel cache $folder/cache" list
check "a missing cache is pruned already" 0 '^0 removed$' prune --limit 1G
mkdir -m 700 "$KILN_CACHE_DIR"
touch "$KILN_CACHE_DIR/Cargo.lock" "$KILN_CACHE_DIR/draft.tmp"
check "a folder of other things is no cache" 1 'it holds files that are no cache' clear
check "a folder of other things is not pruned" 1 'no CACHEDIR.TAG of kiln' prune
rm "$KILN_CACHE_DIR/Cargo.lock" "$KILN_CACHE_DIR/draft.tmp" || failures=$((failures + 1))
check "an empty list" 0 '^\[\]$' list --json
check "export of nothing" 0 '^0 exported$' export "$folder/none"
check "an import makes it a cache" 0 '^0 imported$' import "$folder/none"
rm "$folder/none"
echo damaged >"$KILN_CACHE_DIR/0123456789abcdef0123456789abcdef.bin"
check "list shows what is of no use" 0 '0123456789abcdef  *(of no use' list
check "the same as JSON" 0 '"valid": false' list --json
check "stat counts it" 0 '^invalid *1$' stat
check "the same as JSON" 0 '"invalid": 1' stat --json
check "another folder" 0 "^folder *$folder/else" stat --dir "$folder/else"
check "export leaves it behind" 0 '^0 exported$' export "$folder/all"
check "import of an empty export" 0 '^0 imported$' import "$folder/all"
check "import of something else" 1 'is no export of a kernel cache' import "$kiln"
check "import of nothing" 1 'could not be read: No such file' import "$folder/none"
check "prune removes it" 0 '^1 removed$' prune
check "clear" 0 '^0 removed$' clear
chmod 777 "$KILN_CACHE_DIR"
check "a folder that all may write to" 1 'other users may write to it' stat
# A program that exits at once; its kernel is stored all the same, and the next one finds it.
unset KILN_CACHE
KILN_CACHE_DIR="$folder/warm" XDG_CACHE_HOME="$folder"
export KILN_CACHE_DIR XDG_CACHE_HOME
"$kiln" info >/dev/null 2>&1 && [ -x examples/hello ] && {
    check "warm stores what a program compiles" 0 '^1 stored$' warm --dir "$folder/warm" examples/hello
    check "warm a second time stores nothing" 0 '^0 stored$' warm examples/hello
}
KILN_CACHE=off
export KILN_CACHE
check "off is memory only" 0 '(memory only)' stat

finish
