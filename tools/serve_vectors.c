/* SPDX-License-Identifier: Apache-2.0 */
/* /v1/embeddings as OpenAI's clients ask, and what they get. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "language.h"
#include "serve_encoder.h"
#include "util/format.h"

/* ---- texts ---- */

static bool no_memory(struct serve_reading *r)
{
    return serve_refuse(r->problem, 500, NULL, NULL, "no memory");
}

/* So many tokens more behind those that there are; NULL: no memory. */
static int32_t *make_room(struct serve_vectors *vectors, size_t more)
{
    const size_t begin = vectors->starts[vectors->count], wanted = begin + more;
    if (wanted > vectors->id_room) {
        int32_t *grown = realloc(vectors->ids, 2 * wanted * sizeof *grown);
        if (!grown)
            return NULL;
        vectors->ids = grown;
        vectors->id_room = 2 * wanted;
    }
    return vectors->ids + begin;
}

static bool add_input(struct serve_reading *r, size_t tokens)
{
    struct serve_vectors *vectors = r->form->vectors;
    const size_t most = r->form->model->encoder->max_length;
    if (!tokens)
        return serve_refuse_param(r, "input", "a text has no tokens");
    if (tokens > most)
        return serve_refuse(r->problem, 400, "context_length_exceeded", "input",
                            "input: text %zu has more than the %zu tokens that the model takes",
                            vectors->count, most);
    vectors->starts[vectors->count + 1] = vectors->starts[vectors->count] + tokens;
    vectors->count++;
    return true;
}

/* A token more than there may be tells a text that is too long. */
static bool add_text(struct serve_reading *r, json_t *text)
{
    struct serve_encoder *encoder = r->form->model->encoder;
    size_t count = 0;
    int32_t *ids = make_room(r->form->vectors, encoder->max_length + 1);
    if (!ids)
        return no_memory(r);
    pthread_mutex_lock(&encoder->lock);
    const bool fine =
        tokenizer_encode(encoder->tokenizer, json_string_value(text), json_string_length(text),
                         encoder->max_length + 1, ids, &count);
    pthread_mutex_unlock(&encoder->lock);
    return fine ? add_input(r, count) : no_memory(r);
}

static bool add_tokens(struct serve_reading *r, json_t *numbers)
{
    const int32_t largest = r->form->model->encoder->tokenizer->facts.largest;
    int32_t *ids = make_room(r->form->vectors, json_array_size(numbers));
    json_t *number;
    size_t i;
    if (!ids)
        return no_memory(r);
    json_array_foreach(numbers, i, number)
    {
        const json_int_t value = json_integer_value(number);
        if (!json_is_integer(number) || value < 0 || value > largest)
            return serve_refuse(r->problem, 400, NULL, "input",
                                "input: what is no token of the model (0 to %d) is among tokens",
                                (int)largest);
        ids[i] = (int32_t)value;
    }
    return add_input(r, json_array_size(numbers));
}

/* A text, or tokens. */
static bool add_one(struct serve_reading *r, json_t *input)
{
    if (r->form->vectors->count == SERVE_MOST_INPUTS)
        return serve_refuse_param(r, "input", "there are more than 2048");
    if (json_is_string(input))
        return add_text(r, input);
    if (json_is_array(input))
        return add_tokens(r, input);
    return serve_refuse_param(r, "input", "it is no text, list of tokens, or list of such");
}

static bool read_inputs(struct serve_reading *r)
{
    json_t *input = serve_member(r, "input"), *each;
    size_t i;
    if (!input)
        return serve_refuse_param(r, "input", "it is missing");
    if (!json_is_array(input) || json_is_integer(json_array_get(input, 0)))
        return add_one(r, input);
    json_array_foreach(input, i, each)
    {
        if (!add_one(r, each))
            return false;
    }
    return r->form->vectors->count || serve_refuse_param(r, "input", "it is an empty list");
}

/* ---- the rest of a form ---- */

static bool read_format(struct serve_reading *r)
{
    json_t *format = serve_member(r, "encoding_format");
    const char *name = json_string_value(format);
    r->form->vectors->base64 = name && !strcmp(name, "base64");
    return !format || (name && (!strcmp(name, "float") || !strcmp(name, "base64"))) ||
           serve_refuse_param(r, "encoding_format", "it is neither \"float\" nor \"base64\"");
}

static bool read_dimensions(struct serve_reading *r)
{
    json_int_t dimensions = 0;
    const json_int_t width = (json_int_t)r->form->model->encoder->model.width;
    if (!serve_read_whole(r, "dimensions", 1, width, &dimensions))
        return false;
    r->form->vectors->dimensions = (size_t)dimensions;
    return true;
}

bool serve_read_vectors(struct serve_reading *r)
{
    if (!serve_read_model(r, &serve_encoding))
        return false;
    r->form->vectors = calloc(1, sizeof *r->form->vectors);
    if (!r->form->vectors)
        return no_memory(r);
    return read_format(r) && read_dimensions(r) && read_inputs(r);
}

void serve_vectors_free(struct serve_vectors *vectors)
{
    if (!vectors)
        return;
    free(vectors->ids);
    free(vectors->values);
    free(vectors);
}

/* ---- the answer ---- */

/* The first of a vector's dimensions are a vector of length 1 again. */
static void shorten(float *vector, size_t dimensions)
{
    double squares = 0;
    for (size_t i = 0; i < dimensions; i++)
        squares += (double)vector[i] * (double)vector[i];
    for (size_t i = 0; i < dimensions && squares > 0; i++)
        vector[i] = (float)((double)vector[i] / sqrt(squares));
}

/* Nine digits bring back the same float. */
static void write_numbers(struct kiln__text *text, const float *vector, size_t count)
{
    char number[32];
    kiln__text_add_bytes(text, "[", 1);
    for (size_t i = 0; i < count; i++) {
        const int length =
            kiln__format(number, sizeof number, i ? ",%.9g" : "%.9g", (double)vector[i]);
        kiln__text_add_bytes(text, number, (size_t)length);
    }
    kiln__text_add_bytes(text, "]", 1);
}

/* The lowest byte of a float comes first. */
static unsigned byte_of(const float *vector, size_t at)
{
    uint32_t bits;
    memcpy(&bits, &vector[at / sizeof bits], sizeof bits);
    return bits >> 8 * (at % sizeof bits) & 0xff;
}

static void write_base64(struct kiln__text *text, const float *vector, size_t count)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const size_t bytes = count * sizeof *vector;
    kiln__text_add_bytes(text, "\"", 1);
    for (size_t at = 0; at < bytes; at += 3) {
        unsigned three = 0;
        char four[4];
        for (size_t i = 0; i < 3; i++)
            three = three << 8 | (at + i < bytes ? byte_of(vector, at + i) : 0);
        for (size_t i = 0; i < 4; i++)
            four[i] = digits[three >> 6 * (3 - i) & 0x3f];
        for (size_t i = 3; i > bytes - at; i--)
            four[i] = '=';
        kiln__text_add_bytes(text, four, sizeof four);
    }
    kiln__text_add_bytes(text, "\"", 1);
}

static bool is_finite(const float *vector, size_t count)
{
    while (count && isfinite(vector[count - 1]))
        count--;
    return !count;
}

bool serve_vectors_write(struct serve_job *job)
{
    const struct served *model = job->form.model;
    struct serve_vectors *vectors = job->form.vectors;
    struct kiln__text *text = &job->out;
    const size_t width = model->encoder->model.width, tokens = vectors->starts[vectors->count];
    const size_t dimensions = vectors->dimensions ? vectors->dimensions : width;
    for (size_t i = 0; i < vectors->count; i++)
        if (!is_finite(vectors->values + i * width, width))
            return serve_refuse(&job->problem, 500, NULL, NULL,
                                "the model's vector of text %zu has an element that is no number",
                                i);
    kiln__text_add(text, "{\"object\":\"list\",\"data\":[");
    for (size_t i = 0; i < vectors->count; i++) {
        float *vector = vectors->values + i * width;
        if (dimensions < width)
            shorten(vector, dimensions);
        kiln__text_add(text,
                       "%s{\"object\":\"embedding\",\"index\":%zu,\"embedding\":", i ? "," : "", i);
        (vectors->base64 ? write_base64 : write_numbers)(text, vector, dimensions);
        kiln__text_add_bytes(text, "}", 1);
    }
    kiln__text_add(text, "],\"model\":");
    serve_text_json(text, language_json_text(model->name, strlen(model->name)));
    kiln__text_add(text, ",\"usage\":{\"prompt_tokens\":%zu,\"total_tokens\":%zu}}", tokens,
                   tokens);
    return true;
}
