#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kernels/builtins.cl declares what clang's header does: of each function that it has, all overloads,
# with the same types and attributes, on devices with and without doubles and halves. And it has
# each function that the kernels call. $srcdir is the source tree; $CLANG may be set. Skipped without
# clang.
set -u
clang=${CLANG:-clang}
file=${srcdir:-.}/kernels/builtins.cl
command -v "$clang" >/dev/null || exit 77
include=$("$clang" -print-resource-dir)/include
[ -f "$include/opencl-c.h" ] || exit 77
folder=$(mktemp -d) || exit 99
trap 'rm -rf "$folder"' EXIT
status=0

# list FILE OPTION...: a line for each function that is declared: name, type, attributes
list() {
  "$clang" -cc1 -triple x86_64-pc-linux-gnu -x cl -cl-std=CL1.2 -include "$include/opencl-c-base.h" \
    -ast-dump "$@" >"$folder/tree" || status=1
  awk '
    /FunctionDecl 0x/ {
      match($0, /[a-z_0-9]+ \047.*\047/)
      function_of = substr($0, RSTART, RLENGTH)
      gsub(/unsigned int/, "uint", function_of)
      attributes[function_of] = ""
    }
    /Attr 0x/ && function_of != "" {
      match($0, /[A-Za-z]+Attr/)
      attributes[function_of] = attributes[function_of] " " substr($0, RSTART, RLENGTH)
    }
    END {
      for (f in attributes)
        print f attributes[f]
    }' "$folder/tree" | sort
}

for types in '' fp64 'fp64 fp16'; do
  options=-cl-ext=-all
  for type in $types; do
    options="$options,+cl_khr_$type"
    set -- "$@" "-Dcl_khr_$type"
  done
  : >"$folder/empty.cl"
  list "$file" "$options" "$@" >"$folder/ours"
  list "$folder/empty.cl" "$options" "$@" -include "$include/opencl-c.h" >"$folder/all"
  awk 'NR == FNR { ours[$1]; next } $1 in ours' "$folder/ours" "$folder/all" >"$folder/theirs"
  diff "$folder/theirs" "$folder/ours" || status=1
  echo "${types:-no further types}: $(wc -l <"$folder/ours") overloads"
  [ "$(wc -l <"$folder/ours")" -gt 1500 ] || status=1
done

# The functions of OpenCL C in the kernels that are not for GPUs alone, whose compilers have their
# own declarations; math*.cl define most of theirs. tanh is an editor's value of a macro.
(cd "${srcdir:-.}/kernels" && find . -name "*.cl" | grep -v "gpu\|mma\|/math\|/builtins" | xargs cat) |
  grep -o '\<[a-z_0-9]*(' | grep -v '^__\|^tanh(\|^vload\|^vstore\|^convert_' | sort -u >"$folder/calls"
sed -n 's/^\([a-z_0-9]*\) .*/\1(/p' "$folder/ours" | sort -u >"$folder/has"
sed -n 's/^\([a-z_0-9]*\) .*/\1(/p' "$folder/all" | sort -u >"$folder/known"
[ -s "$folder/calls" ] || status=1
comm -12 "$folder/calls" "$folder/known" | comm -23 - "$folder/has" >"$folder/lacks"
[ ! -s "$folder/lacks" ] || { echo "kernels/builtins.cl lacks:"; cat "$folder/lacks"; status=1; }
exit $status
