/* SPDX-License-Identifier: Apache-2.0 */
/* What a GGUF file that was read has under a name. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/gguf.h"

bool kiln__gguf_text_is(struct kiln__gguf_text text, const char *word)
{
    return text.length == strlen(word) && !memcmp(text.bytes, word, text.length);
}

static int compare(const char *name, struct kiln__gguf_text text)
{
    const size_t length = strlen(name), common = length < text.length ? length : text.length;
    const int order = memcmp(name, text.bytes, common);
    return order ? order : (length > text.length) - (length < text.length);
}

static int compare_key(const void *name, const void *key)
{
    return compare(name, ((const struct kiln__gguf_key *)key)->name);
}

static int compare_tensor(const void *name, const void *tensor)
{
    return compare(name, ((const struct kiln__gguf_tensor *)tensor)->name);
}

const struct kiln__gguf_key *kiln__gguf_key(const struct kiln__gguf *gguf, const char *name)
{
    return bsearch(name, gguf->keys, gguf->n_keys, sizeof *gguf->keys, compare_key);
}

const struct kiln__gguf_tensor *kiln__gguf_tensor(const struct kiln__gguf *gguf, const char *name)
{
    return gguf->n_tensors /* a folder without any has no array either */
               ? bsearch(name, gguf->tensors, gguf->n_tensors, sizeof *gguf->tensors,
                         compare_tensor)
               : NULL;
}

/* ---- bytes ---- */

static uint64_t bits_at(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    return value;
}

static float float_at(const uint8_t *at)
{
    const uint32_t bits = (uint32_t)bits_at(at, 4);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static double double_at(const uint8_t *at)
{
    const uint64_t bits = bits_at(at, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A whole number; UINT64_MAX for what is none, and for negative ones. */
static uint64_t whole_of(const struct kiln__gguf_key *key)
{
    static const struct {
        uint8_t bytes, is_signed;
    } kinds[] = {[KILN__GGUF_U8] = {1, 0},  [KILN__GGUF_I8] = {1, 1},  [KILN__GGUF_U16] = {2, 0},
                 [KILN__GGUF_I16] = {2, 1}, [KILN__GGUF_U32] = {4, 0}, [KILN__GGUF_I32] = {4, 1},
                 [KILN__GGUF_U64] = {8, 0}, [KILN__GGUF_I64] = {8, 1}, [KILN__GGUF_F64] = {0, 0}};
    const size_t bytes = kinds[key->type].bytes;
    if (key->is_array || !bytes)
        return UINT64_MAX;
    const uint64_t value = bits_at(key->values, bytes);
    const bool negative = kinds[key->type].is_signed && value >> (8 * bytes - 1);
    return negative ? UINT64_MAX : value;
}

/* ---- by name ---- */

static kiln_status refuse(const struct kiln__gguf *gguf, const char *name, const char *wanted)
{
    return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: key \"%s\" is %s", gguf->path,
                         name, wanted);
}

kiln_status kiln__gguf_whole(const struct kiln__gguf *gguf, const char *name, uint64_t most,
                             uint64_t *value)
{
    const struct kiln__gguf_key *key = kiln__gguf_key(gguf, name);
    if (!key)
        return KILN_OK;
    const uint64_t found = whole_of(key);
    if (found > most)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "kiln_lm_load: %s: key \"%s\" is no whole number from 0 to %" PRIu64,
                             gguf->path, name, most);
    *value = found;
    return KILN_OK;
}

kiln_status kiln__gguf_real(const struct kiln__gguf *gguf, const char *name, double *value)
{
    const struct kiln__gguf_key *key = kiln__gguf_key(gguf, name);
    if (!key)
        return KILN_OK;
    double found;
    if (!key->is_array && key->type == KILN__GGUF_F32)
        found = (double)float_at(key->values);
    else if (!key->is_array && key->type == KILN__GGUF_F64)
        found = double_at(key->values);
    else
        return refuse(gguf, name, "no floating number");
    if (!(found > -1e30 && found < 1e30))
        return refuse(gguf, name, "infinite, or no number");
    *value = found;
    return KILN_OK;
}

kiln_status kiln__gguf_bool(const struct kiln__gguf *gguf, const char *name, bool *value)
{
    const struct kiln__gguf_key *key = kiln__gguf_key(gguf, name);
    if (!key)
        return KILN_OK;
    if (key->is_array || key->type != KILN__GGUF_BOOL || *key->values > 1)
        return refuse(gguf, name, "no truth value");
    *value = *key->values;
    return KILN_OK;
}

kiln_status kiln__gguf_string(const struct kiln__gguf *gguf, const char *name,
                              struct kiln__gguf_text *value)
{
    const struct kiln__gguf_key *key = kiln__gguf_key(gguf, name);
    if (!key)
        return KILN_OK;
    if (key->is_array || key->type != KILN__GGUF_STRING)
        return refuse(gguf, name, "no text");
    const uint8_t *at = key->values;
    *value = kiln__gguf_next_text(&at);
    return KILN_OK;
}

/* ---- arrays ---- */

kiln_status kiln__gguf_array(const struct kiln__gguf *gguf, const char *name,
                             enum kiln__gguf_type type, const struct kiln__gguf_key **key)
{
    *key = kiln__gguf_key(gguf, name);
    if (!*key)
        return refuse(gguf, name, "missing");
    if (!(*key)->is_array || (*key)->type != type)
        return refuse(gguf, name, "no array of the type that it should be of");
    return KILN_OK;
}

struct kiln__gguf_text kiln__gguf_next_text(const uint8_t **at)
{
    const size_t length = (size_t)bits_at(*at, 8);
    const struct kiln__gguf_text text = {(const char *)*at + 8, length};
    *at += 8 + length;
    return text;
}

int32_t kiln__gguf_i32_at(const struct kiln__gguf_key *key, size_t i)
{
    return (int32_t)(uint32_t)bits_at(key->values + 4 * i, 4);
}

float kiln__gguf_f32_at(const struct kiln__gguf_key *key, size_t i)
{
    return float_at(key->values + 4 * i);
}
