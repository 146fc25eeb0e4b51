/* SPDX-License-Identifier: Apache-2.0 */
/* Which architecture a file is of, and its sizes. */
#include "lm/architecture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lm/error.h"

static const struct kiln__architecture architectures[] = {
    /* name, folder, neighbours biases head_norms fused after_norms gelu scaled shifted period */
    {"llama", "llama", true, false, false, false, false, false, false, false, 0},
    {"mistral", "mistral", false, false, false, false, false, false, false, false, 1},
    {"qwen2", "qwen2", false, true, false, false, false, false, false, false, 0},
    {"qwen3", "qwen3", false, false, true, false, false, false, false, false, 0},
    {"gemma3", "gemma3_text", false, false, true, false, true, true, true, true, 6},
    {"phi3", "phi3", false, false, false, true, false, false, false, false, 1},
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
    return status ? status : kiln__lm_shape_check(gguf->path, shape, values);
}

kiln_status kiln__lm_shape_check(const char *path, const struct kiln__lm_shape *shape,
                                 size_t values)
{
    if (values != shape->size || shape->heads % shape->pairs || !shape->turned ||
        shape->turned % 2 || shape->turned > shape->size || shape->size > 1024)
        return kiln__lm_fail(KILN_UNSUPPORTED,
                             "kiln_lm_load: %s: %zu heads of %zu with %zu of keys, %zu elements "
                             "turned, and values of %zu",
                             path, shape->heads, shape->size, shape->pairs, shape->turned, values);
    return KILN_OK;
}

enum kiln__lm_reach kiln__lm_reach(const struct kiln__lm_shape *shape, size_t layer)
{
    const size_t period = shape->architecture->period;
    const bool is_last = period > 1 && layer % period == period - 1;
    return shape->window && period && !is_last ? KILN__LM_NEAR : KILN__LM_FAR;
}

/* Near layers of Gemma 3 have angles of their own; those of its largest model (of 62 layers) a
 * scale that goes by the width. */
static kiln_status read_window(const struct kiln__gguf *gguf, struct kiln__lm_shape *shape)
{
    enum { LARGEST_GEMMA = 62 };
    char key[LONGEST];
    uint64_t window = 0;
    const bool has_near = shape->architecture->period > 1;
    const bool by_width = has_near && shape->layers == LARGEST_GEMMA;
    shape->base[KILN__LM_NEAR] = has_near ? 10000 : shape->base[KILN__LM_FAR];
    shape->scale[KILN__LM_NEAR] = has_near ? 1 : shape->scale[KILN__LM_FAR];
    shape->attention_scale =
        1 / sqrt((double)(by_width ? shape->width / shape->heads : shape->size));
    kiln_status status = kiln__gguf_real(gguf, name_key(key, shape, "rope.freq_base_swa"),
                                         &shape->base[KILN__LM_NEAR]);
    if (!status && shape->architecture->period)
        status =
            kiln__gguf_whole(gguf, name_key(key, shape, "attention.sliding_window"), MOST, &window);
    shape->window = (size_t)window;
    if (!status && shape->base[KILN__LM_NEAR] < 1)
        status = kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: a base that cannot be",
                               gguf->path);
    return status;
}

static kiln_status read_numbers(const struct kiln__gguf *gguf, struct kiln__lm_shape *shape)
{
    char key[LONGEST];
    double factor = 1;
    struct kiln__gguf_text scaling = {"linear", 6}; /* what a factor alone means */
    shape->epsilon = 1e-5;
    shape->base[KILN__LM_FAR] = 10000;
    kiln_status status = kiln__gguf_real(
        gguf, name_key(key, shape, "attention.layer_norm_rms_epsilon"), &shape->epsilon);
    if (!status)
        status = kiln__gguf_real(gguf, name_key(key, shape, "rope.freq_base"),
                                 &shape->base[KILN__LM_FAR]);
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
    if (shape->epsilon < 0 || shape->base[KILN__LM_FAR] < 1 || factor <= 0)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "kiln_lm_load: %s: an epsilon, base or factor that cannot be",
                             gguf->path);
    shape->scale[KILN__LM_FAR] = linear ? 1 / factor : 1;
    return read_window(gguf, shape);
}

kiln_status kiln__lm_architecture(const char *path, const char *name, size_t length, bool is_folder,
                                  struct kiln__lm_shape *shape)
{
    char names[LONGEST];
    size_t said = 0;
    *shape = (struct kiln__lm_shape){.tied = KILN__LM_TIED_UNLESS_THERE};
    for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++) {
        const struct kiln__architecture *row = &architectures[i];
        const char *own = is_folder ? row->folder : row->name;
        said += (size_t)snprintf(names + said, sizeof names - said, "%s%s", i ? ", " : "", own);
        if (strlen(own) == length && !memcmp(own, name, length))
            shape->architecture = row;
    }
    if (!shape->architecture)
        return kiln__lm_fail(KILN_UNSUPPORTED,
                             "kiln_lm_load: %s: the architecture is \"%.*s\"; kiln knows %s", path,
                             (int)(length < 100 ? length : 100), name, names);
    shape->neighbours = !is_folder && shape->architecture->neighbours;
    return KILN_OK;
}

kiln_status kiln__lm_shape_read(const struct kiln__gguf *gguf, size_t words,
                                struct kiln__lm_shape *shape)
{
    struct kiln__gguf_text name = {"none", 4};
    kiln_status status = kiln__gguf_string(gguf, "general.architecture", &name);
    if (!status)
        status = kiln__lm_architecture(gguf->path, name.bytes, name.length, false, shape);
    if (status)
        return status;
    shape->words = words;
    status = read_sizes(gguf, shape);
    return status ? status : read_numbers(gguf, shape);
}
