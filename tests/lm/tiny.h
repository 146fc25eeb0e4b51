/* SPDX-License-Identifier: Apache-2.0 */
/* The tiny model that tests/lm/make.py makes, as bytes that a test may spoil. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lm/gguf.h"
#include "lm/tokenizer.h"

/* Its path; lasts until the next call. */
const char *tiny_path(void);

/* A copy; the test frees it. */
uint8_t *tiny_bytes(size_t *count);

/* The same of another model beside it. */
const char *model_path(const char *name);
uint8_t *model_bytes(const char *name, size_t *count);

/* Fails the test unless reading these bytes is refused with this part of a sentence. */
void expect_refused(const uint8_t *bytes, size_t count, kiln_status status, const char *part);

/* Where a text lies in the bytes; the test fails unless it is there. */
size_t place_of(const uint8_t *bytes, size_t count, const char *text, size_t length);
