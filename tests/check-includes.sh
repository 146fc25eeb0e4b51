#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Names every include in lib/ that points to a later stage, and every reading of the environment that
# passes kiln__environment() by. $srcdir is the source tree.
set -u
cd "${srcdir:-.}" || exit 99

# folder: what it may include besides itself
rules='
util:
ops: util
device: util
graph: util ops
reference: util ops graph
rewrite: util ops graph
fuse: util ops graph
plan: util ops graph fuse device
memory: util ops graph fuse device plan
lower: util ops graph fuse device plan memory
codegen: util ops graph fuse device plan lower
store: util device
programs: util device store
runtime: util ops graph fuse device plan lower programs
record: util ops graph runtime
nn: util ops graph record
grad: util ops graph record
session: util ops graph rewrite fuse device plan memory lower codegen store programs runtime record
debug: util ops graph reference fuse device plan lower programs runtime record session
tune: util ops graph device programs runtime record session
api: util ops graph device plan lower store programs runtime record session debug tune
executor: util ops graph runtime record
train: util ops graph record
files: util ops graph store session
'

status=0

grep -nE '(^|[^_[:alnum:]])(secure_)?getenv[[:space:]]*\(' lib/*/*.[ch] | grep -v '^lib/util/environment\.c:' && {
  echo 'only lib/util/environment.c reads the environment: use kiln__environment()'
  status=1
}

# Kernels are printed by one walk.
grep -nE '"[^"]*\{\\n' lib/lower/*.c lib/codegen/*.c lib/record/*.c && {
  echo 'kernels are statements: lib/util/code.c alone writes braces'
  status=1
}

# What is recorded, rewritten and fused is the same for all devices: no pointer to one, nor to planning's
# options, which have one.
grep -nwE 'kiln_device_info|struct (kiln__device|kiln__traits|kiln__plan_options|kiln__runtime)|<kiln/device\.h>' \
  lib/graph/*.[ch] lib/rewrite/*.[ch] lib/fuse/*.[ch] lib/record/*.[ch] lib/nn/*.[ch] lib/grad/*.[ch] && {
  echo 'lib/graph, rewrite, fuse, record, nn and grad know no device'
  status=1
}

# libkiln-onnx and libkiln-lm live on what is public, and have the writer of numbers in them once more;
# the latter the executor's histograms, too.
for folder in onnx lm; do
  grep -nE '^#[[:space:]]*include ("|<kiln/)' $folder/*.[ch] | grep -vE "include (\"($folder/[^\"/]*|util/(format|text)\\.h|executor/histogram\\.h)\"|<kiln/[^>]*>)" && {
    echo "$folder/ may only include its own headers, public ones, util/format.h, util/text.h and histogram.h"
    status=1
  }
done

# So does libkiln-mpi.
grep -nE '^#[[:space:]]*include ("|<kiln/)' mpi/*.[ch] | grep -vE 'include ("(mpi/[^"/]*|util/format\.h)"|<kiln/[^>]*>)' && {
  echo 'mpi/ may only include its own headers, public ones and util/format.h'
  status=1
}

grep -n '^#[[:space:]]*include "' lib/*/*.[ch] lib/*/*.def | awk -F: -v rules="$rules" '
BEGIN {
  count = split(rules, row, "\n")
  for (i = 1; i <= count; i++) {
    folder = row[i]
    sub(/:.*/, "", folder)
    n = split(substr(row[i], length(folder) + 2), names, " ")
    allowed[folder, folder] = known[folder] = 1
    for (j = 1; j <= n; j++)
      allowed[folder, names[j]] = 1
  }
}
{
  split($1, from, "/")
  split($3, quoted, "\"")
  split(quoted[2], to, "/")
  seen++
  if (!(from[2] in known))
    problem = "tests/check-includes.sh has no rule for lib/" from[2]
  else if (index(quoted[2], "/") == 0)
    problem = "\"" quoted[2] "\" should name its folder, such as \"util/text.h\""
  else if (!((from[2], to[1]) in allowed))
    problem = "lib/" from[2] " may not include \"" quoted[2] "\""
  else
    next
  printf "%s:%s: %s\n", $1, $2, problem
  bad++
}
END {
  printf "%d includes in lib/ looked at, %d point the wrong way\n", seen, bad
  exit bad > 0 || seen == 0
}' || status=1
exit $status
