/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and numbers of a model from its config.json. */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/folder.h"
#include "lm/tokenizer_json.h"

static const char file[] = "config.json";

/* A size of one at least; what is not said, or null, is as usual, and has to be said if that is 0.
 */
static kiln_status read_size(const struct kiln__lm_folder *folder, const char *key, size_t usual,
                             size_t *size)
{
    enum { MOST = 1 << 24 };
    const json_t *value = json_object_get(folder->decoder, key);
    const bool said = value && !json_is_null(value);
    const json_int_t number = said ? json_integer_value(value) : (json_int_t)usual;
    if ((said && !json_is_integer(value)) || number < 1 || number > MOST)
        return kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, file,
                                    "%s is no whole number from 1 to %d, or missing", key, MOST);
    *size = (size_t)number;
    return KILN_OK;
}

/* A number above 0, of which nothing may be said. */
static kiln_status read_number(const struct kiln__lm_folder *folder, const json_t *object,
                               const char *key, double *number)
{
    const json_t *value = json_object_get(object, key);
    if (!value || json_is_null(value))
        return KILN_OK;
    const double found = json_number_value(value);
    if (!json_is_number(value) || !(found > 0 && found < 1e30))
        return kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, file,
                                    "%s is no number above 0, or beyond 1e30", key);
    *number = found;
    return KILN_OK;
}

static bool is_gemma3(const struct kiln__lm_shape *shape)
{
    return !strcmp(shape->architecture->name, "gemma3");
}

/* Files of Gemma 3 leave out what is as usual. */
static kiln_status read_sizes(const struct kiln__lm_folder *folder, struct kiln__lm_shape *shape)
{
    const bool is_gemma = is_gemma3(shape);
    const struct {
        const char *key;
        size_t usual, *size;
    } needed[] = {{"num_hidden_layers", 0, &shape->layers},
                  {"hidden_size", 0, &shape->width},
                  {"intermediate_size", 0, &shape->inner},
                  {"vocab_size", is_gemma ? 262208 : 0, &shape->words},
                  {"max_position_embeddings", is_gemma ? 131072 : 0, &shape->context},
                  {"num_attention_heads", is_gemma ? 8 : 0, &shape->heads}};
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < sizeof needed / sizeof *needed && !status; i++)
        status = read_size(folder, needed[i].key, needed[i].usual, needed[i].size);
    if (!status)
        status =
            read_size(folder, "num_key_value_heads", is_gemma ? 4 : shape->heads, &shape->pairs);
    if (!status)
        status = read_size(folder, "head_dim", is_gemma ? 256 : shape->width / shape->heads,
                           &shape->size);
    return status;
}

/* ---- positions ---- */

/* Llama 3.1 slows long waves down, and those in between by a part of it. */
static kiln_status read_factors(const struct kiln__lm_folder *folder, const json_t *rope,
                                double base, kiln_lm *lm)
{
    double factor = 0, low = 0, high = 0, context = 0;
    const size_t count = lm->shape.turned / 2;
    kiln_status status = read_number(folder, rope, "factor", &factor);
    if (!status)
        status = read_number(folder, rope, "low_freq_factor", &low);
    if (!status)
        status = read_number(folder, rope, "high_freq_factor", &high);
    if (!status)
        status = read_number(folder, rope, "original_max_position_embeddings", &context);
    if (status)
        return status;
    if (!(factor > 0 && low > 0 && high > low && context > 0))
        return kiln__lm_folder_fail(
            folder, KILN_INVALID_ARGUMENT, file,
            "positions are scaled by llama3 without its four numbers, or by "
            "such as cannot be");
    float *factors = lm->weights.factors = malloc(count * sizeof *factors);
    for (size_t i = 0; i < count && factors; i++) {
        const double turns =
            context * pow(base, -2 * (double)i / (double)lm->shape.turned) / (2 * M_PI);
        const double share = fmin(fmax((turns - low) / (high - low), 0), 1);
        factors[i] = (float)(1 / ((1 - share) / factor + share));
    }
    return factors ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
}

static kiln_status read_scaling(const struct kiln__lm_folder *folder, const json_t *rope,
                                enum kiln__lm_reach reach, kiln_lm *lm)
{
    struct kiln__lm_shape *shape = &lm->shape;
    const char *type = kiln__json_text(rope, "rope_type");
    double factor = 1;
    if (!*type) /* as files of earlier years call it */
        type = kiln__json_text(rope, "type");
    if (!strcmp(type, "linear")) {
        kiln_status status = read_number(folder, rope, "factor", &factor);
        shape->scale[reach] = 1 / factor;
        return status;
    }
    if (!strcmp(type, "llama3") && reach == KILN__LM_FAR && shape->architecture->period <= 1)
        return read_factors(folder, rope, shape->base[reach], lm);
    return !*type || !strcmp(type, "default")
               ? KILN_OK
               : kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                      "positions are scaled by \"%.100s\"; kiln knows linear and "
                                      "llama3",
                                      type);
}

/* Files of transformers 5 have an object for all layers or one for each reach; earlier ones have
 * numbers at the top, and an object that says how they are scaled. */
static kiln_status read_positions(const struct kiln__lm_folder *folder, kiln_lm *lm)
{
    static const char *const reaches[] = {"full_attention", "sliding_attention"};
    static const char *const bases[] = {"rope_theta", "rope_local_base_freq"};
    struct kiln__lm_shape *shape = &lm->shape;
    const json_t *all = json_object_get(folder->decoder, "rope_parameters");
    const json_t *older = json_object_get(folder->decoder, "rope_scaling");
    const bool has_near = shape->architecture->period > 1;
    kiln_status status = KILN_OK;
    double part = 1;
    for (int i = KILN__LM_FAR; i <= (has_near ? KILN__LM_NEAR : KILN__LM_FAR) && !status; i++) {
        const json_t *own = json_object_get(all, reaches[i]);
        const json_t *rope = own ? own : has_near && i == KILN__LM_NEAR ? NULL : all;
        shape->base[i] = has_near && i == KILN__LM_FAR ? 1e6 : 1e4;
        status = read_number(folder, folder->decoder, bases[i], &shape->base[i]);
        if (!status)
            status = read_number(folder, rope, "rope_theta", &shape->base[i]);
        if (!status)
            status = read_number(folder, folder->decoder, "partial_rotary_factor", &part);
        if (!status)
            status = read_number(folder, rope, "partial_rotary_factor", &part);
        shape->scale[i] = 1;
        shape->turned = (size_t)((double)shape->size * fmin(part, 2));
        if (!status)
            status = kiln__lm_shape_check(folder->path, shape, shape->size);
        if (!status)
            status = read_scaling(folder,
                                  json_is_object(rope) ? rope
                                  : i == KILN__LM_FAR  ? older
                                                       : NULL,
                                  (enum kiln__lm_reach)i, lm);
    }
    if (!has_near) {
        shape->base[KILN__LM_NEAR] = shape->base[KILN__LM_FAR];
        shape->scale[KILN__LM_NEAR] = shape->scale[KILN__LM_FAR];
    }
    return status;
}

/* ---- layers ---- */

/* Which layers see a window has to be as the architecture's period says. */
static kiln_status check_layers(const struct kiln__lm_folder *folder,
                                const struct kiln__lm_shape *shape)
{
    const json_t *types = json_object_get(folder->decoder, "layer_types");
    size_t i, pattern = shape->architecture->period;
    json_t *type;
    json_array_foreach(types, i, type)
    {
        const char *word = json_string_value(type);
        const bool is_near = kiln__lm_reach(shape, i) == KILN__LM_NEAR;
        if (!word || strcmp(word, is_near ? "sliding_attention" : "full_attention") != 0)
            return kiln__lm_folder_fail(
                folder, KILN_UNSUPPORTED, file,
                "layer %zu of layer_types is \"%.100s\", which kiln does not "
                "expect there",
                i, word ? word : "");
    }
    if (types || shape->architecture->period <= 1)
        return KILN_OK;
    kiln_status status = read_size(folder, "sliding_window_pattern", pattern, &pattern);
    return status || pattern == shape->architecture->period
               ? status
               : kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                      "sliding_window_pattern is %zu; kiln knows %zu", pattern,
                                      shape->architecture->period);
}

static kiln_status read_window(const struct kiln__lm_folder *folder, struct kiln__lm_shape *shape)
{
    const json_t *window = json_object_get(folder->decoder, "sliding_window");
    kiln_status status = KILN_OK;
    if (shape->architecture->period && window && !json_is_null(window))
        status = read_size(folder, "sliding_window", 0, &shape->window);
    return status ? status : check_layers(folder, shape);
}

/* What would be another model. */
static kiln_status refuse_others(const struct kiln__lm_folder *folder,
                                 const struct kiln__lm_shape *shape)
{
    static const char *const unknown[] = {"quantization_config", "final_logit_softcapping",
                                          "attn_logit_softcapping", "use_sliding_window",
                                          "use_bidirectional_attention"};
    const char *wanted = shape->architecture->gelu ? "gelu_pytorch_tanh" : "silu";
    const char *gate = kiln__json_text(folder->decoder, "hidden_activation");
    if (!*gate)
        gate = kiln__json_text(folder->decoder, "hidden_act");
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        const json_t *value = json_object_get(folder->decoder, unknown[i]);
        value = value ? value : json_object_get(folder->config, unknown[i]);
        if (value && !json_is_null(value) && !json_is_false(value))
            return kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                        "it has %s, which kiln lacks", unknown[i]);
    }
    return !*gate || !strcmp(gate, wanted)
               ? KILN_OK
               : kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                      "the gate's function is \"%.100s\"; kiln knows %s here", gate,
                                      wanted);
}

static kiln_status read_numbers(const struct kiln__lm_folder *folder, struct kiln__lm_shape *shape)
{
    const json_t *tied = json_object_get(folder->decoder, "tie_word_embeddings");
    double scalar = is_gemma3(shape) ? 256 : (double)shape->size;
    shape->epsilon = 1e-6;
    shape->tied = json_is_boolean(tied) ? json_is_true(tied) : KILN__LM_TIED_UNLESS_THERE;
    kiln_status status = read_number(folder, folder->decoder, "rms_norm_eps", &shape->epsilon);
    if (!status)
        status = read_number(folder, folder->decoder, "query_pre_attn_scalar", &scalar);
    shape->attention_scale = 1 / sqrt(scalar);
    return status;
}

kiln_status kiln__lm_folder_shape(struct kiln__lm_folder *folder, kiln_lm *lm)
{
    struct kiln__lm_shape *shape = &lm->shape;
    json_t *text = json_object_get(folder->config, "text_config"); /* of models that see */
    folder->decoder = json_is_object(text) ? text : folder->config;
    const char *type = kiln__json_text(folder->decoder, "model_type");
    kiln_status status = kiln__lm_architecture(folder->path, type, strlen(type), true, shape);
    if (!status)
        status = refuse_others(folder, shape);
    if (!status)
        status = read_sizes(folder, shape);
    if (!status)
        status = read_numbers(folder, shape);
    if (!status)
        status = read_positions(folder, lm);
    return status ? status : read_window(folder, shape);
}
