# SPDX-License-Identifier: Apache-2.0
# Of a description of a library by abidw, read twice, what programs see: functions, and the types that are
# reached from them. Structures that the public headers have without a body (all but `known`) lose theirs,
# so that what is in them, and what only they reach, is no part of the interface.
#   awk -v known="kiln_shape ..." -f public-types.awk FILE FILE
BEGIN {
    count = split(known, names, /[ \n]+/)
    for (i = 1; i <= count; i++)
        public[names[i]] = 1
}

function attribute(line, name) {
    if (!match(line, " " name "='[^']*'"))
        return ""
    return substr(line, RSTART + length(name) + 3, RLENGTH - length(name) - 4)
}

# What a unit of translation has begins and ends with 4 spaces: `top` is its first line.
function begins() {
    top = $0
    id = attribute(top, "id")
    is_function = top ~ /^    <(function|var)-decl /
    name = attribute(top, "name")
    hidden = top ~ /^    <(class|union)-decl / && name ~ /^kiln_/ && !(name in public)
}

function ends() {
    return $0 ~ /^    <\// || $0 ~ /^    <.*\/>$/
}

# Pass 1: which types name which.
function collect(  line) {
    line = hidden ? "" : $0
    while (match(line, /type(def)?-id='[^']*'/)) {
        used = substr(line, RSTART, RLENGTH)
        gsub(/^[^']*'|'$/, "", used)
        if (is_function)
            reach(used)
        else
            uses[id] = uses[id] " " used
        line = substr(line, RSTART + RLENGTH)
    }
}

function reach(type) {
    if (!(type in reached)) {
        reached[type] = 1
        waiting[++last] = type
    }
}

function spread(  i, n, all) {
    for (first = 1; first <= last; first++) {
        n = split(uses[waiting[first]], all, " ")
        for (i = 1; i <= n; i++)
            reach(all[i])
    }
}

FNR == 1 && NR > 1 { spread() }
/^    <[a-z]/ && !/^    <elf-symbol / { begins(); inside = 1 }
NR == FNR {
    if (inside)
        collect()
}
NR != FNR && !inside
NR != FNR && inside && (is_function || id in reached) {
    if (!hidden)
        print
    else if ($0 == top)
        printf "    <class-decl name='%s' is-struct='yes' visibility='default' is-declaration-only='yes' id='%s'/>\n", \
            name, id
}
inside && ends() { inside = 0 }
