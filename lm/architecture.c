/* SPDX-License-Identifier: Apache-2.0 */
/* Which architecture a file is of, and its sizes. */
#include "lm/architecture.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kiln/lm.h>

#include "lm/error.h"

static const struct kiln__architecture architectures[] = {
    {.name = "llama", .folder = "llama", .neighbours = true, .said = true},
    {.name = "mistral", .folder = "mistral", .period = 1},
    {.name = "qwen2", .folder = "qwen2", .biases = true},
    {.name = "qwen3", .folder = "qwen3", .head_norms = true},
    {.name = "gemma3",
     .folder = "gemma3_text",
     .head_norms = true,
     .after_norms = true,
     .gelu = true,
     .scaled = true,
     .shifted = true,
     .period = 6},
    {.name = "phi3", .folder = "phi3", .fused = true, .period = 1},
    {.name = "bert", .encodes = true, .biases = true, .placed = true, .plain = true},
    {.name = "nomic-bert", .encodes = true},
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
    const size_t period = shape->period;
    const bool is_last = period > 1 && layer % period == period - 1;
    return shape->window && period && !is_last ? KILN__LM_NEAR : KILN__LM_FAR;
}

/* Which layers see the window: of so many the last one sees all, 0 is that none does; or a truth
 * value for each layer. */
static kiln_status read_pattern(const struct kiln__gguf *gguf, struct kiln__lm_shape *shape)
{
    char name[LONGEST];
    const struct kiln__gguf_key *key =
        kiln__gguf_key(gguf, name_key(name, shape, "attention.sliding_window_pattern"));
    if (!key || !shape->window)
        return KILN_OK;
    if (!key->is_array) {
        uint64_t period = 0;
        kiln_status status = kiln__gguf_whole(gguf, name, MOST, &period);
        if (period == 1)
            shape->window = 0;
        shape->period = period ? (size_t)period : 1;
        return status;
    }
    bool fits = key->type == KILN__GGUF_BOOL && key->count == shape->layers;
    for (size_t i = 0; i < shape->layers && fits; i++)
        fits = key->values[i] == (kiln__lm_reach(shape, i) == KILN__LM_NEAR);
    return fits ? KILN_OK
                : kiln__lm_fail(KILN_UNSUPPORTED,
                                "kiln_lm_load: %s: key \"%s\" has layers see the window that kiln "
                                "expects to see all, or the other way round",
                                gguf->path, name);
}

static kiln_status read_window(const struct kiln__gguf *gguf, struct kiln__lm_shape *shape)
{
    char key[LONGEST];
    uint64_t window = 0;
    if (!shape->period && !shape->architecture->said)
        return KILN_OK;
    kiln_status status =
        kiln__gguf_whole(gguf, name_key(key, shape, "attention.sliding_window"), MOST, &window);
    shape->window = (size_t)window;
    if (!shape->period)
        shape->period = 1;
    return status ? status : read_pattern(gguf, shape);
}

/* Near layers of Gemma 3 have angles of their own; those of its largest model (of 62 layers) a
 * scale that goes by the width. */
static kiln_status read_near(const struct kiln__gguf *gguf, struct kiln__lm_shape *shape)
{
    enum { LARGEST_GEMMA = 62 };
    char key[LONGEST];
    const bool has_near = shape->architecture->period > 1;
    const bool by_width = has_near && shape->layers == LARGEST_GEMMA;
    shape->base[KILN__LM_NEAR] = has_near ? 10000 : shape->base[KILN__LM_FAR];
    shape->scale[KILN__LM_NEAR] = has_near ? 1 : shape->scale[KILN__LM_FAR];
    shape->attention_scale =
        1 / sqrt((double)(by_width ? shape->width / shape->heads : shape->size));
    kiln_status status = kiln__gguf_real(gguf, name_key(key, shape, "rope.freq_base_swa"),
                                         &shape->base[KILN__LM_NEAR]);
    if (!status && shape->base[KILN__LM_NEAR] < 1)
        status = kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: a base that cannot be",
                               gguf->path);
    return status ? status : read_window(gguf, shape);
}

kiln_status kiln__lm_set_window(const char *path, size_t window, struct kiln__lm_shape *shape)
{
    const struct kiln__architecture *row = shape->architecture;
    if (window > MOST || !row || (!row->said && row->period != 1))
        return kiln__lm_fail(
            KILN_UNSUPPORTED,
            "kiln_lm_load: %s: options->window is %zu, which layers of %s have not", path, window,
            row ? row->name : "a model in an ONNX file");
    shape->window = window;
    shape->period = 1;
    return KILN_OK;
}

/* Encoders see all of a text, and their norms are of layers. */
static kiln_status read_encoder(const struct kiln__gguf *gguf, struct kiln__lm_shape *shape)
{
    char key[LONGEST];
    bool is_causal = false;
    uint64_t pooling = KILN_LM_POOLING_MEAN;
    shape->epsilon = 1e-12;
    kiln_status status = kiln__gguf_real(gguf, name_key(key, shape, "attention.layer_norm_epsilon"),
                                         &shape->epsilon);
    if (!status)
        status = kiln__gguf_bool(gguf, name_key(key, shape, "attention.causal"), &is_causal);
    if (!status)
        status = kiln__gguf_whole(gguf, name_key(key, shape, "pooling_type"), MOST, &pooling);
    if (status)
        return status;
    if (is_causal || shape->pairs != shape->heads)
        return kiln__lm_fail(KILN_UNSUPPORTED,
                             "kiln_lm_load: %s: an encoder with %zu heads of queries and %zu of "
                             "keys, where tokens see %s; kiln knows as many of both, and all",
                             gguf->path, shape->heads, shape->pairs,
                             is_causal ? "those before them" : "all");
    if (pooling > KILN_LM_POOLING_LAST)
        return kiln__lm_fail(KILN_UNSUPPORTED,
                             "kiln_lm_load: %s: pooling_type is %u%s; kiln knows none, mean, cls "
                             "and last (0 to 3)",
                             gguf->path, (unsigned)pooling,
                             pooling == KILN__LM_POOLING_RANK ? ", of a model that ranks" : "");
    shape->pooling = (int)pooling;
    if (shape->context > KILN__LM_MOST_ENCODED && !shape->architecture->placed)
        shape->context = KILN__LM_MOST_ENCODED;
    return KILN_OK;
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
    return read_near(gguf, shape);
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
        if (!own)
            continue;
        said += (size_t)snprintf(names + said, sizeof names - said, "%s%s", i ? ", " : "", own);
        if (strlen(own) == length && !memcmp(own, name, length))
            shape->architecture = row;
    }
    if (!shape->architecture)
        return kiln__lm_fail(KILN_UNSUPPORTED,
                             "kiln_lm_load: %s: the architecture is \"%.*s\"; kiln knows %s", path,
                             (int)(length < 100 ? length : 100), name, names);
    shape->neighbours = !is_folder && shape->architecture->neighbours;
    shape->period = shape->architecture->period;
    return KILN_OK;
}

kiln_status kiln__lm_shape_read(const struct kiln__gguf *gguf, struct kiln__lm_shape *shape)
{
    struct kiln__gguf_text name = {"none", 4};
    kiln_status status = kiln__gguf_string(gguf, "general.architecture", &name);
    if (!status)
        status = kiln__lm_architecture(gguf->path, name.bytes, name.length, false, shape);
    if (status)
        return status;
    status = read_sizes(gguf, shape);
    if (!status)
        status = read_numbers(gguf, shape);
    return status || !shape->architecture->encodes ? status : read_encoder(gguf, shape);
}
