#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every program of doc/tutorial.md is compiled and run, and prints what stands below it; that of a
# language model is compiled alone.
build=$(pwd)
source=$(cd "${srcdir:-.}" && pwd)
. "$source/tests/shell-tests"
cd "$folder" || exit 99

# The blocks of the page: one of C is a program, the next one what it prints.
awk '
  /^```/ {
    if (file) { close(file); file = ""; next }
    if ($0 == "```c") file = "step" ++number ".c"
    else if (number) file = "step" number ".expected"
    else file = "command"
    next
  }
  file { print > file }
' "$source/doc/tutorial.md" || exit 99

lm=
[ ! -f "$build/libkiln-lm.la" ] || lm=libkiln-lm.la

# compiled NAME: without a warning, in the build folder, whose name may have spaces.
compiled() (
  cd "$build" || exit
  # KILN_TEST_CC is a compiler with its options.
  # shellcheck disable=SC2086
  ./libtool --silent --mode=link --tag=CC $KILN_TEST_CC -std=c11 -Wall -Wextra -pedantic \
    -Werror -Iinclude -I"$source/include" "$folder/$1.c" $lm libkiln.la -lm -o "$folder/$1"
)

# step NUMBER
step() {
  if grep -q 'kiln/lm.h' "step$1.c"; then # its model is not in the tree
    [ -z "$lm" ] || compiled "step$1" || return
    echo "not run"
    return
  fi
  compiled "step$1" || return
  "./step$1" >"step$1.printed" || return
  diff "step$1.expected" "step$1.printed" && cat "step$1.printed"
}

steps=0
while [ -e "step$((steps + 1)).c" ]; do
  steps=$((steps + 1))
  check "step $steps of the tutorial prints what it says" 0 . step "$steps"
done
check "the tutorial has thirteen steps" 0 '^13$' echo "$steps"

finish
