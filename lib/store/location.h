/* SPDX-License-Identifier: Apache-2.0 */
/* Where the cache is, and whether that place can be trusted. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The cache's folder: `wanted`, else $KILN_CACHE_DIR, $XDG_CACHE_HOME/kiln, $HOME/.cache/kiln.
 * False: there is none, so the cache is memory only; never a guess in a folder shared with others.
 */
bool kiln__location_find(const char *wanted, char *path, size_t size);

/* Open the folder; if `create`, make it and what leads to it where it is missing (mode 0700), but
 * nothing in another user's folder. It has to be a folder, no link, belong to this user, nobody
 * else may write to it, and it has to be a cache (see store/tag.h); if `create`, an empty one
 * becomes one. Answers the descriptor, or -1 with errno and the reason in words (static text). */
int kiln__location_open(const char *path, bool create, const char **why);
