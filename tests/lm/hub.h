/* SPDX-License-Identifier: Apache-2.0 */
/* Folders as transformers saves them, which a test may spoil. */
#pragma once

#include <stddef.h>

#include <kiln/lm.h>

/* A folder of its own for a test, with the files of tests/lm/folders/NAME.* and a tokenizer.json of
 * tests/tokens. */
struct hub {
    char path[256];
};

struct hub hub_make(const char *name, const char *tokenizer);

/* One of onnxruntime-genai's form: tests/lm/genai. */
struct hub hub_genai(void);

/* Of a file in it; until the next call. */
const char *hub_path(const struct hub *hub, const char *file);

/* Removes it with all files. */
void hub_remove(const struct hub *hub);

/* Another content of a file; NULL: the file goes. */
void hub_put(const struct hub *hub, const char *file, const void *bytes, size_t count);
void hub_text(const struct hub *hub, const char *file, const char *text);

/* What a file has, with a zero behind it; the test frees it. */
char *hub_get(const struct hub *hub, const char *file, size_t *count);

/* In a file of text the first such part becomes another. */
void hub_replace(const struct hub *hub, const char *file, const char *part, const char *other);
