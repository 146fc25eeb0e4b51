# SPDX-License-Identifier: Apache-2.0
# The public lists of data types:
#   awk -f typemap.awk types.def > kiln/typemap.h
BEGIN {
  print "/* SPDX-License-Identifier: Apache-2.0 */"
  print "/* Made by lib/ops/typemap.awk; not to be edited. */"
  print "/** @file\n *  The data types as lists. */"
  print "#ifndef KILN_TYPEMAP_H\n#define KILN_TYPEMAP_H\n"
  print "/** Every data type whose elements lie apart: name, value (part of the binary interface), bytes, C\n *  type on the host. */"
  printf "#define KILN_TYPE_MAP(X)"
}

/^KILN_TYPE\(/ {
  sub(/^KILN_TYPE\(/, "")
  sub(/,$/, "")
  printf " \\\n    X(%s)", $0
}

/^KILN_BLOCK_TYPE\(/ {
  sub(/^KILN_BLOCK_TYPE\(/, "")
  sub(/, [a-z][a-z0-9_]*, [0-9]*, [a-z]*\)$/, "")
  blocks = blocks " \\\n    X(" $0 ")"
}

END {
  print "\n\n/** Every type of blocks: name, value, bytes and elements of a block. */"
  print "#define KILN_BLOCK_TYPE_MAP(X)" blocks
  print "\n#endif"
}
