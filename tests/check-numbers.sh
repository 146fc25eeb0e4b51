#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Numbers with a point are written and read by lib/util/format.c alone, which knows no locale: names
# every other place that would do so in the locale of the program. Tools are programs of their own
# that choose none; they may print. $srcdir is the source tree.
set -u
cd "${srcdir:-.}" || exit 99
status=0

complain() {
  echo "$1"
  status=1
}

others() {
  for file; do
    case $file in
      lib/util/format.[ch]) ;;
      *) echo "$file" ;;
    esac
  done
}

library=$(others lib/*/*.[ch] lm/*.[ch] mpi/*.[ch] onnx/*.[ch])
sources="$library $(others tools/*.[ch])"
# shellcheck disable=SC2086 # a word for each file
{
  grep -nE '(^|[^_[:alnum:]])(strto(d|f|ld)|ato[f]|setlocale)(_l)?[[:space:]]*\(' $sources &&
    complain 'numbers are read by kiln__parse_double() (util/format.h), in no locale'
  grep -nE '(^|[^_[:alnum:]])v(s|sn|f|d|as)?printf[[:space:]]*\(' $library &&
    complain 'what is given a format hands it to kiln__vformat() (util/format.h)'
}

# Calls over several lines: a conversion of a floating number, or what a macro is given.
# shellcheck disable=SC2086
awk '
  function look(call) {
    looked++
    if (call ~ /scanf/ ? call ~ /%[*]?[0-9]*[lL]?[aefgAEFG]/ : call ~ /%[-+ #0]*[*0-9]*([.][*0-9]+)?[lL]?[aefgAEFG]/) {
      if (call !~ /scanf/ && FILENAME ~ /^tools\// && call !~ /snprintf/)
        return
      printf "%s:%d: %s\n", FILENAME, line, call
      bad++
    } else if (call ~ /__VA_ARGS__/) {
      printf "%s:%d: %s\n", FILENAME, line, call
      bad++
    }
  }
  FNR == 1 { call = "" }
  call == "" && match($0, /(^|[^_[:alnum:]])(sn|s|f|d|as)?(printf|scanf)[ ]*\(/) {
    call = substr($0, RSTART)
    line = FNR
    sub(/^[^a-z]/, "", call)
    if (call ~ /;/) { look(call); call = "" }
    next
  }
  call != "" {
    more = $0
    sub(/^[ \t]+/, " ", more)
    call = call more
    if (more ~ /;|^[ \t]*$/) { look(call); call = "" }
  }
  END {
    printf "%d calls of printf and scanf looked at, %d of them with numbers in the locale of the program\n", looked, bad
    exit bad > 0 || looked == 0
  }' $sources || complain 'use kiln__format() or kiln__parse_double() of util/format.h'
exit $status
