/* SPDX-License-Identifier: Apache-2.0 */
/* Error sentences of libkiln-onnx. */
#include "onnx/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/format.h"

kiln_status kiln__onnx_fail(kiln_status status, const char *format, ...)
{
    char sentence[4096];
    va_list arguments;
    va_start(arguments, format);
    kiln__vformat(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    return kiln_error_set(status, sentence);
}

void kiln__onnx_say(struct kiln__onnx_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = kiln__vformat(NULL, 0, format, arguments);
    va_end(arguments);
    char *grown = length < 0 ? NULL : realloc(text->text, text->length + (size_t)length + 1);
    if (!grown) {
        text->failed = 1;
        return;
    }
    va_start(arguments, format);
    kiln__vformat(grown + text->length, (size_t)length + 1, format, arguments);
    va_end(arguments);
    text->text = grown;
    text->length += (size_t)length;
}

const char *kiln__onnx_shape(char *words, size_t rank, const size_t *dims)
{
    size_t length = 0;
    words[length++] = '[';
    for (size_t i = 0; i < rank; i++)
        length += (size_t)snprintf(words + length, KILN__ONNX_SHAPE - length, "%s%zu", i ? "," : "",
                                   dims[i]);
    snprintf(words + length, KILN__ONNX_SHAPE - length, "]");
    return words;
}
