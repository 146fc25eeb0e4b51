# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# hub NAME TOKENIZER FOLDER: a folder as transformers saves it, of tests/lm/folders and tests/tokens, which
# are in $source.
hub() {
    mkdir "$3"
    # shellcheck disable=SC2154 # the test's
    for file in "$source/tests/lm/folders/$1".*; do
        cp "$file" "$3/${file##*/"$1".}"
    done
    cp "$source/tests/tokens/$2.json" "$3/tokenizer.json"
}
