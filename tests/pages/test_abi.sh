#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/check-abi sees what would break a program, and nothing else.
. "${srcdir:-.}/tests/shell-tests"
source=${srcdir:-.}
if ! command -v abidiff >/dev/null; then
    echo "1..0 # SKIP abidiff is not here (Debian: abigail-tools)"
    exit 0
fi

map=
# library NAME SONAME [SED-EXPRESSION]: one with a structure that can grow, after the expression, and a
# version script, $map.
library() {
    mkdir -p "$folder/$1/include/kiln"
    sed "${3-}" >"$folder/$1/include/kiln/shape.h" <<'TEXT'
#include <stddef.h>
struct kiln_options {
    size_t size;
    int depth;
    /* more */
};
struct kiln_state;
enum kiln_color { KILN_RED, KILN_GREEN, };
int kiln_paint(struct kiln_state *state, const struct kiln_options *options, enum kiln_color color);
int kiln_wash(struct kiln_state *state);
/* functions */
TEXT
    sed "${3-}" >"$folder/$1/shape.c" <<'TEXT'
#include "include/kiln/shape.h"
enum kiln_depths { KILN_LOW, /* depths */ KILN_HIGH };
struct kiln_state {
    int secret;
    enum kiln_depths depths;
};
int kiln_paint(struct kiln_state *state, const struct kiln_options *options, enum kiln_color color)
{
    return state->secret + options->depth + (int)color;
}
int kiln_wash(struct kiln_state *state) { return state->secret; }
/* bodies */
TEXT
    (cd "$folder/$1" &&
        ${CC:-cc} -g -fPIC -shared -Wl,-soname,"$2" ${map:+"-Wl,--version-script=$map"} -o libshape.so \
            "$folder/$1/shape.c")
}

compare() {
    sh "$source/tests/check-abi" compare "$folder/release.abi" "$folder/$1/libshape.so" \
        "$folder/$1/include/kiln"
}

same="^libshape.so.0 is as the last release had it\$"
library before libshape.so.0
check "without a release there is nothing to compare" 0 '^# SKIP:  1$' compare before
check "a release is described" 0 '^libshape.so.0 is described in' \
    sh "$source/tests/check-abi" describe "$folder/before/libshape.so" "$folder/before/include/kiln" \
    "$folder/release.abi"
check "a description has nothing that programs do not see" 0 '^0$' \
    awk '/secret|kiln_depths/ { n++ } END { print n + 0 }' "$folder/release.abi"
check "the same library is the same" 0 "$same" compare before

# each NAME STATUS PATTERN SED-EXPRESSION
each() {
    library changed libshape.so.0 "$4"
    check "$1" "$2" "$3" compare changed
}
each "a structure may grow" 0 "$same" 's|/\* more \*/|size_t width;|'
each "a structure may not grow into its padding" 1 "width" 's|/\* more \*/|int width;|'
each "functions may be added" 0 "$same" 's|/\* functions \*/|int kiln_new(void);|
    s|/\* bodies \*/|int kiln_new(void) { return 0; }|'
each "a constant may be added" 0 "$same" 's/KILN_GREEN,/KILN_GREEN, KILN_BLUE,/'
each "what programs do not see may change" 0 "$same" 's/int secret;/int more, secret;/'
each "what only they reach may change" 0 "$same" 's|/\* depths \*/|KILN_MIDDLE,|'
each "a field may not change" 1 "depth" 's/int depth;/long depth;/'
each "a field may not be put between" 1 "width" 's/int depth;/int width, depth;/'
each "a constant may not change" 1 "KILN_GREEN" 's/KILN_GREEN,/KILN_GREEN = 7,/'
each "a function's arguments may not change" 1 "kiln_wash" \
    's/kiln_wash(struct kiln_state \*state)/kiln_wash(struct kiln_state *state, int how)/'
each "a function may not go" 1 "kiln_wash" '/^int kiln_wash/d'

# What a new function says about the release that brought it, after a version script's node for it.
versions() {
    printf 'KILN_0.1 { global: kiln_*; local: *; };\n%s\n' "$2" >"$map"
    library "$1" libshape.so.0 's|/\* functions \*/|int kiln_new(void);|
        s|/\* bodies \*/|int kiln_new(void) { return 0; }|'
    sh "$source/tests/check-abi" versions "$folder/release.abi" "$folder/$1/libshape.so" && echo fine
}
map=$folder/map
echo 'KILN_0.1 { global: kiln_*; local: *; };' >"$map"
library released libshape.so.0
sh "$source/tests/check-abi" describe "$folder/released/libshape.so" "$folder/released/include/kiln" \
    "$folder/release.abi" >"$folder/said"
check "a new function is none of the release's" 1 'kiln_new@@KILN_0.1 is no function of that release' \
    versions without ''
check "it has a version of its own" 0 '^fine$' versions with 'KILN_0.2 { global: kiln_new; } KILN_0.1;'
map=

library next libshape.so.1 '/^int kiln_wash/d'
check "another soname may do all of that" 0 '^libshape.so.1 takes the place of libshape.so.0$' \
    compare next
finish
