# SPDX-License-Identifier: Apache-2.0
# The public header of a table's operations:
#   awk -f prototypes.awk elementwise.def > kiln/elementwise.h
#   awk -f prototypes.awk reduce.def > kiln/reductions.h
# or, in C++ (-v cplusplus=1), what kiln/kiln.hpp includes.
# A row's sentence may go on over several string literals; it ends at the first '",'.

function open_header(guard, what, rules) {
  print "/* SPDX-License-Identifier: Apache-2.0 */"
  print "/* Made by lib/ops/prototypes.awk; not to be edited. */"
  print "/** @file\n *  " what "\n *"
  print rules " */"
  print "#ifndef " guard "\n#define " guard "\n\n#include <kiln/types.h>\n"
  print "#ifdef __cplusplus\nextern \"C\" {\n#endif"
  opened = 1
}

function open_cplusplus(guard, what) {
  print "/* SPDX-License-Identifier: Apache-2.0 */"
  print "/* Made by lib/ops/prototypes.awk; not to be edited. */"
  print "/** @file\n *  " what " in C++, as their namesakes in C: include kiln/kiln.hpp. */"
  # kiln.hpp needs this one, and this one what comes before that there.
  print "#ifndef KILN_KILN_HPP\n#include <kiln/kiln.hpp>\n#elif !defined " guard "\n#define " guard
  print "\nnamespace kiln {"
  opened = 1
}

function open_elementwise() {
  if (cplusplus) {
    open_cplusplus("KILN_ELEMENTWISE_HPP", "Elementwise operations")
    return
  }
  open_header("KILN_ELEMENTWISE_H",
    "Elementwise operations: each records one and returns the result's tensor, the empty tensor\n" \
    " *  after an error.",
    " *  For all of them: operands that are read as one type (kiln/types.h), which the result has too;\n" \
    " *  where a sentence speaks of a mask, that one is u8, 0 or 1 (as operand: not 0 is 1). A number\n" \
    " *  (double) is rounded to that type. Shapes broadcast by numpy's rule (aligned at the last dimension, 1 repeats);\n" \
    " *  the result belongs to the batch; one thread at a time; errors are sticky: INVALID_HANDLE,\n" \
    " *  INVALID_ARGUMENT (a number that an integer type cannot hold), SHAPE_MISMATCH, TYPE_MISMATCH,\n" \
    " *  TOO_LARGE, OUT_OF_HOST_MEMORY.")
}

function open_reductions() {
  if (cplusplus) {
    open_cplusplus("KILN_REDUCTIONS_HPP", "Reductions")
    return
  }
  open_header("KILN_REDUCTIONS_H",
    "Reductions: each records one and returns the result's tensor, the empty tensor after an error.",
    " *  For all of them: `axes` names the n_axes dimensions that are reduced, negative ones count from\n" \
    " *  the end; NULL with n_axes 0 is all of them. With keep_dims nonzero a reduced dimension stays\n" \
    " *  as 1, else it is dropped. The result belongs to the batch; one thread at a time; errors are\n" \
    " *  sticky: INVALID_HANDLE, INVALID_ARGUMENT (an axis that x has not, an axis named twice, no\n" \
    " *  elements where the reduction of none has no value), TYPE_MISMATCH, TOO_LARGE,\n" \
    " *  OUT_OF_HOST_MEMORY.")
}

# A Doxygen comment of at most 100 columns.
function comment(sentence,   words, n, i, line) {
  line = "/**"
  n = split(sentence, words, " ")
  for (i = 1; i <= n; i++) {
    if (length(line) + 1 + length(words[i]) > 97) {
      print line
      line = " * "
    }
    line = line " " words[i]
  }
  print line " */"
}

# NAME(BATCH, PARAMETERS), broken before a parameter where it gets long.
function prototype(name, parameters,   list, n, i, line, indent) {
  line = "KILN_API kiln_tensor kiln_" name "(kiln_batch *batch"
  indent = sprintf("%*s", length("KILN_API kiln_tensor kiln_" name "("), "")
  n = split(parameters, list, /, */)
  for (i = 1; i <= n; i++) {
    if (length(line) + length(list[i]) + 4 > 100) {
      print line ","
      line = indent list[i]
    } else
      line = line ", " list[i]
  }
  print line ");"
}

# An inline function that calls its namesake.
function inline_function(name, parameters, arguments) {
  print "inline tensor " name "(" parameters ")\n{"
  print "    return detail::made(" arguments ");\n}"
}

# Of two tensors one may be a number.
function with_numbers(name) {
  print "inline tensor " name "(const tensor &a, double b)\n{\n    return " name "(a, a.like(b));\n}"
  print "inline tensor " name "(double a, const tensor &b)\n{\n    return " name "(b.like(a), b);\n}"
}

function inline_elementwise(name,   list, n, i, each, parameters_, arguments_) {
  n = split(parameters(arity), list, /, */)
  for (i = 1; i <= n; i++) {
    split(list[i], each, " ")
    if (each[1] == "kiln_tensor") {
      parameters_ = parameters_ ", const tensor &" each[2]
      arguments_ = arguments_ ", " each[2] ".id()"
    } else {
      parameters_ = parameters_ ", " list[i]
      arguments_ = arguments_ ", " each[2]
    }
  }
  inline_function(name, substr(parameters_, 3), "a, kiln_" name "(a.batch()" arguments_ ")")
  if (arity == "2")
    with_numbers(name)
}

function finish_row(   n) {
  print ""
  comment(sentence)
  if (cplusplus && reduction)
    inline_function(row, "const tensor &x, const axes &over = {}, bool keep_dims = false",
      "\n        x, kiln_" row "(x.batch(), x.id(), over.count(), over.get(), keep_dims)")
  else if (cplusplus)
    inline_elementwise(row)
  else if (reduction)
    prototype(row, "kiln_tensor x, size_t n_axes, const int *axes, int keep_dims")
  else
    prototype(row, parameters(arity))
  row = ""
}

# The parameters of an arity: "2" is two tensors, "1NN(low, high)" a tensor and two numbers.
function parameters(arity,   list, numbers, n, i) {
  list = "kiln_tensor a"
  if (arity + 0 > 1)
    list = list ", kiln_tensor b"
  if (arity + 0 > 2)
    list = list ", kiln_tensor c"
  if (match(arity, /\(.*\)/)) {
    n = split(substr(arity, RSTART + 1, RLENGTH - 2), numbers, /, */)
    for (i = 1; i <= n; i++)
      list = list ", double " numbers[i]
  }
  return list
}

# Take the string literals at the start of TEXT; a comma after them ends the row's sentence.
function take_literals(text) {
  while (match(text, /^[ \t]*"([^"\\]|\\.)*"/)) {
    literal = substr(text, 1, RLENGTH)
    text = substr(text, RLENGTH + 1)
    sub(/^[ \t]*"/, "", literal)
    sub(/"$/, "", literal)
    gsub(/\\"/, "\"", literal)
    sentence = sentence literal
  }
  if (text ~ /^[ \t]*,/)
    finish_row()
  else if (text !~ /^[ \t]*$/) {
    printf "%s:%d: a sentence in quotation marks and a comma should stand here\n", FILENAME, FNR \
      > "/dev/stderr"
    failed = 1
    exit 1
  }
}

/^KILN_OP\(/ {
  if (!opened)
    open_elementwise()
  reduction = 0
  sub(/^KILN_OP\(/, "")
  row = $0
  sub(/,.*/, "", row)
  sub(/^[^,]*, */, "")
  match($0, /^[0-9]N*(\([^)]*\))?/)
  arity = substr($0, 1, RLENGTH)
  sentence = ""
  sub(/^[0-9]N*(\([^)]*\))?, */, "")
  take_literals($0)
  next
}

/^KILN_REDUCE\(/ {
  if (!opened)
    open_reductions()
  reduction = 1
  split(substr($0, length("KILN_REDUCE(") + 1), part, /, */)
  row = part[1]
  sentence = ""
  sub(/^KILN_REDUCE\([^,]*,/, "")
  take_literals($0)
  next
}

row { take_literals($0) }

END {
  if (failed)
    exit 1
  if (row) {
    printf "%s: the row of %s has no sentence\n", FILENAME, row > "/dev/stderr"
    exit 1
  }
  if (cplusplus)
    print "\n} // namespace kiln\n\n#endif"
  else
    print "\n#ifdef __cplusplus\n}\n#endif\n\n#endif"
}
