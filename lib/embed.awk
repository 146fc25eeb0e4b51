# SPDX-License-Identifier: Apache-2.0
# Kernel files to one C file: awk -f embed.awk kernels/a.cl kernels/b.cl > kernels.c
# Texts become arrays of lines' characters, because a string literal has a length limit.

function name(path) {
  sub(/.*\//, "", path)
  sub(/\.cl$/, "", path)
  return path
}

# One line as 'a','b',...
function characters(line,   i, c, out) {
  for (i = 1; i <= length(line); i++) {
    c = substr(line, i, 1)
    if (c == "\\" || c == "'")
      c = "\\" c
    else if (c == "\t")
      c = "\\t"
    out = out "'" c "',"
  }
  return out "'\\n',"
}

BEGIN {
  print "/* Made by lib/embed.awk; not to be edited. */"
  print "#include \"util/kernels.h\"\n\n#include <string.h>"
}

FNR == 1 {
  if (count)
    print "0};"
  names[++count] = name(FILENAME)
  printf "\nstatic const char text_%s[] = {\n", names[count]
}

{ print characters($0) }

END {
  if (count)
    print "0};"
  print "\nstatic const struct {\n    const char *name, *text;\n} kernels[] = {"
  for (i = 1; i <= count; i++)
    printf "    {\"%s\", text_%s},\n", names[i], names[i]
  print "    {0, 0},\n};\n"
  print "const char *kiln__kernel_text(const char *name)\n{"
  print "    for (size_t i = 0; kernels[i].name; i++)"
  print "        if (!strcmp(kernels[i].name, name))"
  print "            return kernels[i].text;"
  print "    return NULL;\n}"
}
