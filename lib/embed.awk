# SPDX-License-Identifier: Apache-2.0
# Kernel files to one C file: awk -f embed.awk kernels/a.cl kernels/b.cl > kernel_texts.c
# Texts become arrays of lines' characters, because a string literal has a length limit. What a file
# includes, from its own folder, is put in: an OpenCL compiler has no folder to look into.

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
  print "#include \"util/kernel_texts.h\"\n\n#include <string.h>"
}

FNR == 1 {
  if (count)
    print "0};"
  names[++count] = name(FILENAME)
  printf "\nstatic const char text_%s[] = {\n", names[count]
}

# A line, or the lines of the file that it includes.
function put(line, folder,   file) {
  if (line !~ /^#include "/) {
    print characters(line)
    return
  }
  split(line, words, "\"")
  file = folder words[2]
  if ((getline line < file) <= 0) {
    print "embed.awk: " file " cannot be read" > "/dev/stderr"
    exit failed = 1
  }
  do
    put(line, folder)
  while ((getline line < file) > 0)
  close(file)
}

{
  folder = FILENAME
  sub(/[^\/]*$/, "", folder)
  put($0, folder)
}

END {
  if (failed)
    exit 1
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
