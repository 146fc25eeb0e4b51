#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Completion of command lines: what the program offers beside what it says of itself, and what bash
# and zsh make of it. The program under test is $KILN, else ./kiln.
kiln=$(realpath "${KILN:-./kiln}")
source=$(cd "${srcdir:-.}" && pwd)
. "$source/tests/shell-tests"

# The words offered for a command line, in one line between blanks: "" is a word that begins.
offered() {
    echo " $("$kiln" --complete "$@" | sed -e 's/^\(:.*\)\t/\1 /' -e 's/\t.*//' | tr '\n' ' ')"
}

# All long options of a help are offered, and no others.
same_options() {
    # shellcheck disable=SC2046
    set -- "${1-}" $("$kiln" ${1:+"$1"} --help | grep -o -e '^ .*' | grep -o -e ' --[a-z-]*' | sort -u)
    command=$1
    shift
    "$kiln" --complete ${command:+"$command"} -- | cut -f1 | sort -u >"$folder/offered"
    printf '%s\n' "$@" >"$folder/wanted"
    diff "$folder/wanted" "$folder/offered" && echo "the same $#"
}

commands=$("$kiln" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
# shellcheck disable=SC2086
check "there are commands" 0 '^ .* info cache .*tune ' echo '' $commands
for command in '' $commands; do
    case $command in help | version) continue ;; esac
    "$kiln" --complete "$command" | grep -q . || continue # not in this build
    check "options of kiln $command" 0 '^the same [1-9]' same_options "$command"
done
check "an option says what it is for" 0 '^--json	Print JSON' "$kiln" --complete info --j
check "commands that begin so" 0 '^ explain $' offered expl
check "commands that help knows" 0 '^ profile $' offered help prof
check "help takes one" 0 '^ $' offered help info ''
check "actions" 0 '^ list stat prune clear export import warm $' offered cache ''
check "an action's file" 0 '^ :file  $' offered cache export ''
check "an action without more" 0 '^ $' offered cache list ''
check "options behind an action" 0 '^ --json $' offered cache list --j
check "a folder as a value" 0 '^ :folder  $' offered cache --dir ''
check "a program" 0 '^ :program 2 ' offered explain --json ''
check "a program's options are its own" 0 '^ :program 1 ' offered explain true --j
check "a program behind a file" 0 '^ :program 3 ' offered cache export x true -
check "no option behind --" 0 '^ :program 2 ' offered explain -- --
check "a file as a value" 0 '^ :file  ' offered profile --svg ''
check "the same of one letter" 0 '^ :file  ' offered profile -bt ''
check "free text" 0 '^ $' offered profile --rows ''
check "an unknown command" 0 '^ $' offered nonesuch ''
check "no word at all" 2 'there is no option --complete\|unrecognized option' "$kiln" --complete

if [ -n "$("$kiln" --complete run --)" ]; then
    check "a model is a file" 0 '^ :file  $' offered run ''
    check "one model" 0 '^ $' offered run model.onnx ''
    check "words as a value" 0 '^ f32 tf32 bf16 f16 i8 $' offered run --precision ''
    check "words behind a =" 0 '^ --precision=bf16 $' offered run --precision=b
    check "a file behind a name" 0 '^ :file x= $' offered run --input x=mod
    check "both behind an option" 0 '^ :file --input=x= $' offered run --input=x=mod
    check "the name comes first" 0 '^ $' offered run --input ''
    check "an optional value is not the next word" 0 '^ :file  $' offered run --bench ''
fi

# bash: what completing the line $1 gives, whose words are the further arguments.
bash_words() {
    bash -c '. "$0"
        compopt() { echo "compopt $*"; }
        COMP_LINE=$1 COMP_POINT=${#1}
        shift
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _kiln kiln "${COMP_WORDS[COMP_CWORD]}"
        echo " ${COMPREPLY[*]} "' "$source/tools/completions/kiln" "$@"
}

if command -v bash >/dev/null; then
    check "bash: commands" 0 '^ explain $' bash_words "$kiln expl" "$kiln" expl
    check "bash: options" 0 '^ --json $' bash_words "$kiln info  --j" "$kiln" info --j
    check "bash: actions" 0 '^ prune $' bash_words "$kiln cache pr" "$kiln" cache pr
    check "bash: a file" 0 '^compopt -o default$' bash_words "$kiln profile --svg " "$kiln" profile --svg ''
    check "bash: a folder" 0 '^compopt -o dirnames$' \
        bash_words "$kiln cache --dir=/" "$kiln" cache --dir = /
    check "bash: a program" 0 '^ .*echo ' bash_words "$kiln explain ech" "$kiln" explain ech
    check "bash: a program's argument" 0 '^compopt -o bashdefault -o default$' \
        bash_words "$kiln explain echo x" "$kiln" explain echo x
    if [ -n "$("$kiln" --complete run --)" ]; then
        check "bash: behind a =" 0 '^ bf16 $' \
            bash_words "$kiln run --precision=b" "$kiln" run --precision = b
        check "bash: at the =" 0 '^ f32 tf32 bf16 f16 i8 $' \
            bash_words "$kiln run --precision=" "$kiln" run --precision =
    fi
fi

# zsh, with a terminal of its own: what the line becomes.
zsh_line() {
    zsh -f -c '
        zmodload zsh/zpty
        zpty shell "TERM=dumb PATH=$2:\$PATH zsh -f -i"
        zpty -w shell "fpath=($3 \$fpath); autoload -Uz compinit; compinit -u -D; PROMPT=; LISTMAX=999"
        zpty -w shell "widget() { zle complete-word; print -r -- \"<\$BUFFER>\"; zle kill-buffer; exit }"
        zpty -w shell "zle -N widget; bindkey \"^I\" widget; print be\gun"
        zpty -r -m shell begun "*begun*"
        zpty -w -n shell "$1"$'"'\\t'"'
        zpty -r -m shell line "*<*>*"
        print -r -- "$line"' zsh "$1" "$(dirname "$kiln")" "$source/tools/completions"
}
if command -v zsh >/dev/null; then
    check "zsh: a command" 0 '<kiln explain *>' zsh_line 'kiln expl'
    check "zsh: an option" 0 '<kiln info --json *>' zsh_line 'kiln info --j'
    check "zsh: an action" 0 '<kiln cache prune *>' zsh_line 'kiln cache pr'
    : >"$folder/drawing.svg"
    check "zsh: a file" 0 "<kiln profile --svg $folder/drawing.svg *>" \
        zsh_line "kiln profile --svg $folder/dra"
    check "zsh: behind a =" 0 "<kiln profile --svg=$folder/drawing.svg *>" \
        zsh_line "kiln profile --svg=$folder/dra"
    check "zsh: a program's arguments" 0 "<kiln explain cat $folder/drawing.svg *>" \
        zsh_line "kiln explain cat $folder/dra"
fi

finish
