/* SPDX-License-Identifier: Apache-2.0 */
/* The file by which a folder says that it is a cache: that of the Cache Directory Tagging
 * Specification (https://bford.info/cachedir/), so that backups leave it out, and a line of kiln's.
 * What has it may be used and cleaned; it keeps KILN_CACHE_DIR=. from being a danger. */
#pragma once

#include <stdbool.h>

#define KILN__TAG_FILE "CACHEDIR.TAG"
#define KILN__TAG_TEXT                                                                             \
    "Signature: 8a477f597d28d172789f06886806bc55\n"                                                \
    "# This folder is the kernel cache of kiln. It may be removed at any time.\n"

/* Whether the folder is a kernel cache: it has the tag, or it is empty, or it holds nothing but
 * what a cache does. If `write`, the latter two get the tag, as far as that can be done. Answers
 * NULL, or what is in the way (static text). */
const char *kiln__tag_check(int folder, bool write);
