#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# `kiln tune`: arguments, records and their files. What it measures is another matter: no candidate
# begins after 0 seconds. The program under test is $KILN, else ./kiln.
kiln=${KILN:-./kiln}
. "${srcdir:-.}/tests/shell-tests"
unset KILN_TUNE KILN_CACHE

run() {
    "$kiln" tune "$@"
}

check "help" 0 '^Usage: kiln tune ' --help
check "unknown action" 2 'there is no action "nope"' nope
check "export without a file" 2 'export needs the name of a file' export
check "list of a file" 2 '"x" is one argument too many' list x
check "seconds that are none" 2 '"x" is no number of seconds' --seconds x
if ! "$kiln" info >/dev/null 2>&1; then
    finish
    exit
fi
check "a kind of kernel that is not tuned" 2 'no such kind of kernel is tuned' 'sort 100'
check "sizes that are none" 2 'its sizes or words are not understood' 'map 10y'
check "a list" 0 '^vector ' list
check "what may be chosen is listed" 0 '^vector .*(.*4.*)$' list
check "kernels by their names" 0 '^product .*(.*[0-9] \(dots\|rows\),' list
check "a search without time ends" 0 'candidates are left for the next time' -s 0
check "and says what is kept" 0 '^kept for this device: the usual values; no others were measured' -s 0
check "a mistyped action" 2 'there is no action "lsit"; did you mean "list"?' lsit
check "an export" 0 '^exported$' export "$folder/record"
value=$(run list | awk '$1 == "vector" { print $2 == 4 ? 8 : 4 }')
[ "$(run list | awk '$1 == "work_group" { print 1 }')" ] && value=1
{ cat "$folder/record"; echo "vector $value"; echo '# vector 2: no'; } >"$folder/changed"
check "an import" 0 '^imported$' import "$folder/changed"
check "its values are kept" 0 "^vector  *$value " list
check "and what was measured" 0 '^# vector 2: no$' list
echo 'abacus 7' >>"$folder/changed"
check "a line that is not understood is named" 1 '"abacus 7" is not understood' import "$folder/changed"
sed 1s/kiln/kilt/ "$folder/record" >"$folder/foreign"
check "another device's is refused" 1 'foreign is not for this device' import "$folder/foreign"
check "a missing file" 1 'nowhere: No such file' import "$folder/nowhere"
echo 'map 4096 # 3' >"$folder/shapes"
echo 'sort 4096 # 1' >>"$folder/shapes"
check "what is not tuned is left out" 0 '"sort 4096 # 1" is left out' --shapes "$folder/shapes" -s 1
check "a work is searched" 0 '^map 4096  *[0-9]' --shapes "$folder/shapes" -s 1
check "a comparison as JSON" 0 '^ {"work": "map 5000", .*"tuned_over_usual": ' --compare --json -s 0.5 'map 5000'
check "and says that it keeps nothing" 0 '^kept: nothing, as --compare only compares' --compare -s 0.5 'map 5000'
check "a comparison keeps nothing" 0 '^vector ' list
check "a work says what is kept" 0 '^kept: values of [01]' -s 1 'map 5000'
{ cat "$folder/record"; echo 'rows 40x300: segment 1024, chunks 8'; } >"$folder/works"
[ "$(run list | awk '$1 == "chunks" { print 1 }')" ] || sed -i 's/chunks 8/lanes 8/' "$folder/works"
check "a work's values are imported" 0 '^imported$' import "$folder/works"
check "and kept beside the others" 0 '^rows 40x300: .*segment 1024' list
{ head -n 1 "$folder/record"; echo 'gemm 3'; echo 'gemm_direct 99'; } >"$folder/library"
check "a set that CLBlast is not given is named" 1 '"gemm_direct 99" is not understood' import "$folder/library"
check "and one that it is given is kept" 0 '^gemm  *3 ' list
check "a time without a work" 2 '--time needs a work' --time
if KILN_MATMUL=clblast "$kiln" tune --time 'product 8x8x8 nn' >/dev/null 2>&1; then
    KILN_TUNE=gemm_direct=7 KILN_MATMUL=clblast KILN_LOG=error
    export KILN_TUNE KILN_MATMUL KILN_LOG
    check "CLBlast takes a set" 0 '^[0-9.e-]*$' --time 'product 70x130x50 nn'
    run() {
        "$kiln" tune --time 'product 70x130x50 nn' 2>&1 | grep -c 'CLBlast answered'
    }
    check "without a complaint" 1 '^0$'
    unset KILN_TUNE KILN_MATMUL KILN_LOG
    run() {
        "$kiln" tune "$@"
    }
fi
check "clear" 0 '^cleared$' clear
run() {
    "$kiln" tune list | grep -c '^#'
}
check "then nothing is kept" 1 '^0$'

finish
