/* SPDX-License-Identifier: Apache-2.0 */
/* The tiny model of the tests of libkiln-lm. */
#include "tiny.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/context.h"

const char *model_path(const char *name)
{
    static char path[4096];
    const char *source = getenv("srcdir");
    snprintf(path, sizeof path, "%s/tests/lm/%s", source ? source : ".", name);
    return path;
}

const char *tiny_path(void)
{
    return model_path("tiny.gguf");
}

uint8_t *tiny_bytes(size_t *count)
{
    return model_bytes("tiny.gguf", count);
}

uint8_t *model_bytes(const char *name, size_t *count)
{
    FILE *file = fopen(model_path(name), "rb");
    cr_assert(file, "%s", model_path(name));
    fseek(file, 0, SEEK_END);
    *count = (size_t)ftell(file);
    rewind(file);
    uint8_t *bytes = malloc(*count);
    cr_assert(bytes && fread(bytes, 1, *count, file) == *count);
    fclose(file);
    return bytes;
}

void expect_refused(const uint8_t *bytes, size_t count, kiln_status status, const char *part)
{
    struct kiln__gguf gguf;
    const kiln_status answered = kiln__gguf_read("a file", bytes, count, &gguf);
    if (!answered)
        kiln__gguf_free(&gguf);
    expect_error_part(answered, status, part);
}

size_t place_of(const uint8_t *bytes, size_t count, const char *text, size_t length)
{
    for (size_t at = 0; at + length <= count; at++)
        if (!memcmp(bytes + at, text, length))
            return at;
    cr_assert_fail("the file has no \"%s\"", text);
    return 0;
}
