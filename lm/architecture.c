/* SPDX-License-Identifier: Apache-2.0 */
/* Which architecture a file is of, and its sizes. */
#include "lm/architecture.h"

#include <stdio.h>

#include "lm/error.h"

static const struct kiln__architecture architectures[] = {
    /* name    neighbours biases head_norms */
    {"llama", true, false, false},
    {"qwen2", false, true, false},
    {"qwen3", false, false, true},
};

enum { MOST = 1 << 24, LONGEST = 200 };

/* "llama.block_count" of "block_count". */
static const char *name_key(char key[LONGEST], const struct kiln__lm_shape *shape, const char *name)
{
    snprintf(key, LONGEST, "%s.%s", shape->architecture->name, name);
    return key;
}

static kiln_status read_size(const struct kiln__gguf *gguf, const struct kiln__lm_shape *shape,
                             const char *name, size_t usual, size_t *size)
{
    char key[LONGEST];
    uint64_t value = usual;
    kiln_status status = kiln__gguf_whole(gguf, name_key(key, shape, name), MOST, &value);
    if (!status && !value)
        status = kiln__lm_fail(KILN_INVALID_ARGUMENT,
                               "kiln_lm_load: %s: key \"%s\" is 0, or missing", gguf->path, key);
    *size = (size_t)value;
    return status;
}

static kiln_status read_sizes(const struct kiln__gguf *gguf, struct kiln__lm_shape *shape)
{
    const struct {
        const char *name;
        size_t *size;
    } needed[] = {{"block_count", &shape->layers},
                  {"embedding_length", &shape->width},
                  {"feed_forward_length", &shape->inner},
                  {"context_length", &shape->context},
                  {"attention.head_count", &shape->heads}};
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < sizeof needed / sizeof *needed && !status; i++)
        status = read_size(gguf, shape, needed[i].name, 0, needed[i].size);
    if (!status)
        status = read_size(gguf, shape, "attention.head_count_kv", shape->heads, &shape->pairs);
    if (!status)
        status = read_size(gguf, shape, "attention.key_length", shape->width / shape->heads,
                           &shape->size);
    if (!status)
        status = read_size(gguf, shape, "rope.dimension_count", shape->size, &shape->turned);
    size_t values = shape->size;
    if (!status)
        status = read_size(gguf, shape, "attention.value_length", shape->size, &values);
    if (status)
        return status;
    if (values != shape->size || shape->heads % shape->pairs || shape->turned % 2 ||
        shape->turned > shape->size || shape->size > 1024)
        return kiln__lm_fail(KILN_UNSUPPORTED,
                             "kiln_lm_load: %s: %zu heads of %zu with %zu of keys, %zu elements "
                             "turned, and values of %zu",
                             gguf->path, shape->heads, shape->size, shape->pairs, shape->turned,
                             values);
    return KILN_OK;
}

static kiln_status read_numbers(const struct kiln__gguf *gguf, struct kiln__lm_shape *shape)
{
    char key[LONGEST];
    double factor = 1;
    struct kiln__gguf_text scaling = {"linear", 6}; /* what a factor alone means */
    shape->epsilon = 1e-5;
    shape->base = 10000;
    kiln_status status = kiln__gguf_real(
        gguf, name_key(key, shape, "attention.layer_norm_rms_epsilon"), &shape->epsilon);
    if (!status)
        status = kiln__gguf_real(gguf, name_key(key, shape, "rope.freq_base"), &shape->base);
    if (!status) /* older files */
        status = kiln__gguf_real(gguf, name_key(key, shape, "rope.scale_linear"), &factor);
    if (!status)
        status = kiln__gguf_real(gguf, name_key(key, shape, "rope.scaling.factor"), &factor);
    if (!status)
        status = kiln__gguf_string(gguf, name_key(key, shape, "rope.scaling.type"), &scaling);
    if (status)
        return status;
    const bool linear = kiln__gguf_text_is(scaling, "linear");
    if (!linear && !kiln__gguf_text_is(scaling, "none"))
        return kiln__lm_fail(KILN_UNSUPPORTED,
                             "kiln_lm_load: %s: positions are scaled by \"%.*s\"; kiln knows none "
                             "and linear",
                             gguf->path, KILN__GGUF_SAID(scaling));
    if (shape->epsilon < 0 || shape->base < 1 || factor <= 0)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "kiln_lm_load: %s: an epsilon, base or factor that cannot be",
                             gguf->path);
    shape->scale = linear ? 1 / factor : 1;
    return KILN_OK;
}

static kiln_status refuse(const struct kiln__gguf *gguf, struct kiln__gguf_text name)
{
    char names[LONGEST];
    size_t length = 0;
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s", i ? ", " : "",
                                   architectures[i].name);
    return kiln__lm_fail(KILN_UNSUPPORTED,
                         "kiln_lm_load: %s: the architecture is \"%.*s\"; kiln knows %s",
                         gguf->path, KILN__GGUF_SAID(name), names);
}

kiln_status kiln__lm_shape_read(const struct kiln__gguf *gguf, size_t words,
                                struct kiln__lm_shape *shape)
{
    struct kiln__gguf_text name = {"none", 4};
    kiln_status status = kiln__gguf_string(gguf, "general.architecture", &name);
    if (status)
        return status;
    *shape = (struct kiln__lm_shape){.words = words};
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
        if (kiln__gguf_text_is(name, architectures[i].name))
            shape->architecture = &architectures[i];
    if (!shape->architecture)
        return refuse(gguf, name);
    status = read_sizes(gguf, shape);
    return status ? status : read_numbers(gguf, shape);
}
