#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Public structures can grow: each begins with its size, or a call that fills it is told the size, or
# it stands in tests/structures with a reason. Who fills one has to be told even so. $srcdir is the
# source tree.
set -u
cd "${srcdir:-.}" || exit 99

# Headers without comments and directives, in one line.
text() {
  cat include/kiln/*.h | sed -e '/^#/d' | tr '\n' ' ' | sed 's|/\*[^*]*\*\**\([^/*][^*]*\*\**\)*/||g'
}

text | awk -v list=tests/structures '
  BEGIN {
    while ((getline line < list) > 0)
      if (line !~ /^#/) {
        split(line, word, "\t")
        listed[word[1]] = word[2]
      }
  }
  { all = all $0 }

  function complain(what) {
    print what
    bad++
  }

  # Pointers to a structure that a function writes through, and whether it is told a size.
  function look_at_function(declaration,    name, i, n, part, told, struct) {
    name = declaration
    sub(/\(.*/, "", name)
    sub(/.*[ *]/, "", name)
    sub(/^[^(]*\(/, "", declaration)
    n = split(declaration, part, ",")
    for (i = 1; i <= n; i++)
      told = told || part[i] ~ /size_t size *\)?$/
    for (i = 1; i <= n; i++) {
      if (part[i] !~ /kiln_[a-z0-9_]+ \*/ || !match(part[i], /kiln_[a-z0-9_]+ /))
        continue
      struct = substr(part[i], RSTART, RLENGTH - 1)
      if (told)
        filled[struct] = name
      else if (part[i] !~ /const kiln/ && part[i] !~ /\*\*/)
        untold[struct] = untold[struct] " " name
    }
  }

  END {
    rest = all
    while (match(rest, /KILN_API [^;]*;/)) {
      declaration = substr(rest, RSTART, RLENGTH - 1)
      rest = substr(rest, RSTART + RLENGTH)
      look_at_function(declaration)
    }
    rest = all
    while (match(rest, /typedef struct kiln_[a-z0-9_]+ \{/)) {
      struct = substr(rest, RSTART + 15, RLENGTH - 17)
      rest = substr(rest, RSTART + RLENGTH)
      body = substr(rest, 1, index(rest, "}") - 1)
      count++
      seen[struct] = 1
      sized = body ~ /^ *size_t size;/
      if (!sized && !(struct in filled) && !(struct in listed))
        complain(struct " neither begins with its size nor is filled by a call that is told it")
      # Of what the library hands out a call may take one back.
      n = split(untold[struct], names, " ")
      for (i = 1; i <= n; i++)
        if (!(struct in listed) && names[i] !~ /_return$/)
          complain(names[i] " fills a " struct ", and is not told how large it is")
    }
    for (struct in listed)
      if (!(struct in seen))
        complain("tests/structures: " struct " is no structure")
      else if (listed[struct] == "")
        complain("tests/structures: no reason for " struct)
    printf "%d structures looked at\n", count
    exit bad > 0 || count < 30
  }'
