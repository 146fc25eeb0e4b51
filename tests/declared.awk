# SPDX-License-Identifier: Apache-2.0
# The functions that public headers declare, one a line: what stands before the first parenthesis between
# KILN_API and the semicolon. A declaration may go on over lines.
/^[ \t]*#/ { next }
/^KILN_API/ { text = ""; inside = 1 }
inside { text = text " " $0 }
inside && /;/ {
  inside = 0
  if (match(text, /kiln_[a-z0-9_]+\(/))
    print substr(text, RSTART, RLENGTH - 1)
}
