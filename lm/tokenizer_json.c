/* SPDX-License-Identifier: Apache-2.0 */
/* What tokenizer.json has whatever its model is. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "lm/tokenizer_json.h"
#include "util/format.h"

bool kiln__tokenizer_refuse(const struct kiln__tokenizer_json *reading, const char *format, ...)
{
    va_list arguments;
    const int length = snprintf(reading->error, KILN__TOKENIZER_ERROR, "%s: ", reading->path);
    va_start(arguments, format);
    if (length >= 0 && length < KILN__TOKENIZER_ERROR)
        kiln__vformat(reading->error + length, KILN__TOKENIZER_ERROR - (size_t)length, format,
                      arguments);
    va_end(arguments);
    return false;
}

const char *kiln__json_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

bool kiln__json_flag(const json_t *object, const char *key, bool usual)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : usual;
}

static bool add_around(const struct kiln__tokenizer_json *reading,
                       int32_t around[KILN__MOST_AROUND], size_t *count, const json_t *id)
{
    const json_int_t value = json_integer_value(id);
    if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
        return kiln__tokenizer_refuse(reading, "a token of its post-processor has no number");
    if (*count == KILN__MOST_AROUND)
        return kiln__tokenizer_refuse(
            reading, "its post-processor has more than %d tokens on one side", KILN__MOST_AROUND);
    around[(*count)++] = (int32_t)value;
    return true;
}

/* A list of special tokens and the text itself. */
static bool read_template(const struct kiln__tokenizer_json *reading, const json_t *processor)
{
    struct kiln__tokenizer_around *to = &reading->to->around;
    const json_t *tokens = json_object_get(processor, "special_tokens");
    bool is_behind = false;
    size_t i, k;
    json_t *part, *id;
    json_array_foreach(json_object_get(processor, "single"), i, part)
    {
        const char *name = kiln__json_text(json_object_get(part, "SpecialToken"), "id");
        is_behind |= json_object_get(part, "Sequence") != NULL;
        json_array_foreach(json_object_get(json_object_get(tokens, name), "ids"), k, id)
        {
            if (!(is_behind ? add_around(reading, to->after, &to->after_count, id)
                            : add_around(reading, to->before, &to->before_count, id)))
                return false;
        }
    }
    return is_behind || kiln__tokenizer_refuse(
                            reading, "its post-processor's template has no place for the text");
}

static bool read_one(const struct kiln__tokenizer_json *reading, const json_t *processor)
{
    struct kiln__tokenizer_around *to = &reading->to->around;
    const char *type = kiln__json_text(processor, "type");
    if (!strcmp(type, "ByteLevel")) /* which says where tokens are in the text */
        return true;
    if (!strcmp(type, "TemplateProcessing"))
        return read_template(reading, processor);
    if (strcmp(type, "BertProcessing") != 0 && strcmp(type, "RobertaProcessing") != 0)
        return kiln__tokenizer_refuse(reading, "its post-processor is \"%s\"", type);
    return add_around(reading, to->before, &to->before_count,
                      json_array_get(json_object_get(processor, "cls"), 1)) &&
           add_around(reading, to->after, &to->after_count,
                      json_array_get(json_object_get(processor, "sep"), 1));
}

bool kiln__tokenizer_read_around(const struct kiln__tokenizer_json *reading)
{
    const json_t *processor = json_object_get(reading->root, "post_processor");
    size_t i;
    json_t *part;
    if (!processor || json_is_null(processor))
        return true; /* nothing around a text */
    if (strcmp(kiln__json_text(processor, "type"), "Sequence") != 0)
        return read_one(reading, processor);
    json_array_foreach(json_object_get(processor, "processors"), i, part)
    {
        if (!read_one(reading, part))
            return false;
    }
    return true;
}
