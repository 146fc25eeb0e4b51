/* SPDX-License-Identifier: Apache-2.0 */
/* Language models in onnxruntime-genai's form: a folder with genai_config.json, the ONNX file that
 * this names, and tokenizer.json. */
#pragma once

#include "language.h"

struct folder;

/* Whether a path is such a folder. */
bool folder_is(const char *path);

/* NULL: said, as `command`. */
struct folder *folder_open(const char *command, const struct language_request *request);
void folder_close(struct folder *folder);

/* Add a text and run the model on it; *tokens are those that it has. False: said. */
bool folder_feed(struct folder *folder, const char *text, size_t bytes, size_t *tokens);

/* Whether there is room for another token. */
bool folder_has_room(const struct folder *folder);

/* Choose the next token: the bytes that it stands for, or *ended. False: said. */
bool folder_next(struct folder *folder, const char **text, size_t *bytes, bool *ended);
