#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The `kiln` program's frame: exit statuses, sentences, and what `kiln explain` does with a program.
# The program under test is $KILN, else ./kiln.
kiln=${KILN:-./kiln}
. "${srcdir:-.}/tests/shell-tests"

no_driver() {
    OCL_ICD_VENDORS="$folder/no-vendors" "$@"
}

check "help names the commands" 0 '^  explain ' "$kiln" --help
check "version" 0 '^kiln [0-9]' "$kiln" --version
check "no command" 2 'a command is missing' "$kiln"
check "unknown command" 2 'there is no command "nope"' "$kiln" nope
check "unknown option" 2 'help' "$kiln" --nope
check "help of a command" 0 'Usage: kiln info' "$kiln" info --help

check "help is a command" 0 '^  explain ' "$kiln" help
check "help of a command by its name" 0 'Usage: kiln tune' "$kiln" help tune
check "help of no command" 2 'there is no command "nope"' "$kiln" help nope
check "version is a command" 0 '^kiln [0-9]' "$kiln" version
check "a mistyped command" 2 'there is no command "profle"; did you mean "profile"?' "$kiln" profle
check "one with letters swapped" 2 'did you mean "explain"?' "$kiln" exlpain
check "one that is far from all" 2 'there is no command "frobnicate"$' "$kiln" frobnicate
check "a mistyped option" 2 'kiln info: there is no option --jsno; did you mean --json?' "$kiln" info --jsno
check "one with a value" 2 'did you mean --summary?' "$kiln" explain -o x --sumary=1 true
check "an option of the program that is run" 0 'ran no batch' "$kiln" explain true --jsno
check "an option that is short for one" 0 '"default"' "$kiln" info --js

check "a mistyped action" 2 'there is no action "prnue"; did you mean "prune"?' "$kiln" cache prnue

check "info marks the default" 0 '(default)$' "$kiln" info
check "info tells of the cache" 0 '^cache: ' "$kiln" info
# A path is never broken.
check "info fits a terminal" 0 '^all fit$' fits 80 sh -c "'$kiln' info -d 0 | grep -v ^cache"
check "and a narrow one" 0 '^all fit$' fits 60 sh -c "'$kiln' info -d 0 | grep -v ^cache"
check "so do parameters" 0 '^all fit$' fits 80 "$kiln" tune list
check "info of one device" 0 '^0: ' "$kiln" info --device 0
check "info of none that fits" 1 'no OpenCL device fits "nonesuch"; found: 0: ' \
    "$kiln" info --device nonesuch
check "info as JSON" 0 '^ *"default": [0-9]' "$kiln" info --json
check "info of the best precision" 0 '^  precision   b*f[0-9]*$' "$kiln" info --device 0 --precision
check "the same as JSON" 0 '"best_precision": "b*f[0-9]*"' "$kiln" info -d 0 --precision --json
check "info with an argument" 2 '"x" is one argument too many' "$kiln" info x
check "info without a driver" 1 'no OpenCL driver is installed' no_driver "$kiln" info
check "JSON without a driver" 1 '^ *"default": null' no_driver "$kiln" info --json

# shellcheck disable=SC2016 # expanded by the program that is explained
append='echo plan of "$0" >>"$KILN_EXPLAIN"'
check "explain shows what was appended" 0 '^plan of me$' "$kiln" explain -- sh -c "$append" me
check "explain keeps the exit status" 7 '^plan' "$kiln" explain sh -c "$append; exit 7"
check "explain tells of a signal" 143 '^plan' "$kiln" explain sh -c "$append; kill \$\$"
check "explain hands options on" 0 '^-o$' "$kiln" explain printf '%s\n' -o
check "explain writes to a file" 0 '^done$' \
    "$kiln" explain -o "$folder/plan" sh -c "cd /; $append; echo done" me
check "the file holds the plan" 0 '^plan of me$' cat "$folder/plan"
# shellcheck disable=SC2016
check "a summary is asked of the library" 0 '^summary$' \
    "$kiln" explain --summary sh -c 'echo "$KILN_EXPLAIN_AS" >>"$KILN_EXPLAIN"'
# shellcheck disable=SC2016
check "and so is JSON" 0 '^json$' "$kiln" explain -j sh -c 'echo "$KILN_EXPLAIN_AS" >>"$KILN_EXPLAIN"'
# shellcheck disable=SC2016 # expanded by the shell that pipes it
check "the program's own output is not in it" 0 '^0$' \
    sh -c '"$0" explain -j echo mine 2>/dev/null | wc -l' "$kiln"
check "explain without plans" 0 'true ran no batch of kiln' "$kiln" explain true
check "explain without a program" 2 'a program to run is missing' "$kiln" explain
check "explain of no such program" 127 'No such file' "$kiln" explain "$folder/none"
check "explain of a folder" 126 'denied' "$kiln" explain "$folder"
check "explain into no such folder" 1 'No such file' "$kiln" explain -o "$folder/none/x" true
if [ -w /dev/full ]; then
    # shellcheck disable=SC2016
    check "a full disk is told of" 1 'kiln explain: standard output could not be written' \
        sh -c '"$0" explain sh -c "$1" >/dev/full' "$kiln" "$append"
fi
TMPDIR=$folder/temporary
mkdir "$TMPDIR"
export TMPDIR
check "explain cleans up" 0 '^0$' sh -c "\"\$0\" explain true >/dev/null 2>&1; ls \"$TMPDIR\" | wc -l" "$kiln"

finish
