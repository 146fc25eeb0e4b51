# SPDX-License-Identifier: Apache-2.0
# The public list of data types:
#   awk -f typemap.awk types.def > kiln/typemap.h
BEGIN {
  print "/* SPDX-License-Identifier: Apache-2.0 */"
  print "/* Made by lib/ops/typemap.awk; not to be edited. */"
  print "/** @file\n *  The data types as a list. */"
  print "#ifndef KILN_TYPEMAP_H\n#define KILN_TYPEMAP_H\n"
  print "/** Every data type: name, value (part of the binary interface), bytes, C type on the host. */"
  printf "#define KILN_TYPE_MAP(X)"
}

/^KILN_TYPE\(/ {
  sub(/^KILN_TYPE\(/, "")
  sub(/,$/, "")
  printf " \\\n    X(%s)", $0
}

END { print "\n\n#endif" }
