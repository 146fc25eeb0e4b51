/* SPDX-License-Identifier: Apache-2.0 */
/* Where the cache is, and whether that place can be trusted. */
#ifndef KILN_CACHE_DIRECTORY_H
#define KILN_CACHE_DIRECTORY_H

#include <stdbool.h>
#include <stddef.h>

/* The cache's folder: `wanted`, else $KILN_CACHE_DIR, $XDG_CACHE_HOME/kiln, $HOME/.cache/kiln.
 * False: there is none, so the cache is memory only; never a guess in a folder shared with others.
 */
bool kiln__directory_path(const char *wanted, char *path, size_t size);

/* Open the folder; if `create`, make it and what leads to it where it is missing (mode 0700). It
 * has to be a folder, no link, belong to this user, and nobody else may write to it.
 * Answers the descriptor, or -1 with errno and the reason in words (static text). */
int kiln__directory_open(const char *path, bool create, const char **why);

#endif
