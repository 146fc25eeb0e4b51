/* SPDX-License-Identifier: Apache-2.0 */
/* A step of such a model is its ONNX file, recorded for a number of rows: caches have room for the
 * whole text, and the attention mask says how much of it is there. */
#include "lm/genai.h"

#include <kiln/onnx.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/tokenizer_json.h"

static const char file[] = "genai_config.json";

/* What inputs and outputs are; of caches KEY and one more, VALUE. */
enum part { IDS, MASK, POSITIONS, TOTAL, LOGITS, KEY, VALUE, PARTS };

struct kiln__lm_genai {
    kiln_onnx_model *model;
    kiln_type cache;
    json_t *config;
    const char *in[PARTS], *out[PARTS]; /* what they are called; "%d" is a layer */
};

/* ---- names ---- */

static void read_names(struct kiln__lm_genai *genai, const json_t *decoder)
{
    static const struct {
        const char *key, *usual;
        bool is_output;
        enum part part;
    } names[] = {{"input_ids", "input_ids", false, IDS},
                 {"attention_mask", "attention_mask", false, MASK},
                 {"position_ids", "position_ids", false, POSITIONS},
                 {"total_sequence_length", "total_sequence_length", false, TOTAL},
                 {"past_key_names", "past_key_values.%d.key", false, KEY},
                 {"past_value_names", "past_key_values.%d.value", false, VALUE},
                 {"logits", "logits", true, LOGITS},
                 {"present_key_names", "present.%d.key", true, KEY},
                 {"present_value_names", "present.%d.value", true, VALUE}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *of = json_object_get(decoder, names[i].is_output ? "outputs" : "inputs");
        const char *name = json_string_value(json_object_get(of, names[i].key));
        (names[i].is_output ? genai->out : genai->in)[names[i].part] = name ? name : names[i].usual;
    }
}

/* Whether a name is a pattern's, with what layer. */
static bool matches(const char *pattern, const char *name, size_t *layer)
{
    const char *place = strstr(pattern, "%d");
    const size_t before = place ? (size_t)(place - pattern) : 0;
    char *end;
    if (!place || strncmp(pattern, name, before) != 0 || name[before] < '0' || name[before] > '9')
        return false;
    *layer = strtoul(name + before, &end, 10);
    return !strcmp(end, place + 2);
}

/* What a name stands for; PARTS: nothing. */
static enum part find_part(const char *const names[PARTS], const char *name, size_t *layer)
{
    for (int i = 0; i < PARTS; i++) {
        const bool of_layer = i >= KEY;
        if (names[i] && (of_layer ? matches(names[i], name, layer) : !strcmp(names[i], name)))
            return (enum part)i;
    }
    return PARTS;
}

/* ---- what the configuration says ---- */

static kiln_status read_config(const struct kiln__lm_folder *folder, struct kiln__lm_genai *genai,
                               const char **name)
{
    const json_t *model = json_object_get(folder->genai, "model");
    const json_t *decoder = json_object_get(model, "decoder");
    *name = kiln__json_text(decoder, "filename");
    if (!**name || strchr(*name, '/'))
        return kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, file,
                                    "model.decoder.filename is no name of a file in the folder");
    if (json_object_get(decoder, "pipeline") || json_object_get(model, "encoder") ||
        json_object_get(model, "vision") || json_object_get(model, "speech"))
        return kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                    "a model of several networks, of which kiln has none");
    genai->config = json_incref(folder->genai);
    read_names(genai, decoder);
    return KILN_OK;
}

static kiln_status read_shape(const struct kiln__lm_folder *folder, kiln_lm *lm)
{
    enum { MOST_CONTEXT = 1 << 20, MOST = 1 << 24 };
    const json_t *model = json_object_get(folder->genai, "model");
    const json_t *decoder = json_object_get(model, "decoder");
    const json_int_t context = json_integer_value(json_object_get(model, "context_length"));
    const json_int_t words = json_integer_value(json_object_get(model, "vocab_size"));
    const json_int_t width = json_integer_value(json_object_get(decoder, "hidden_size"));
    const char *type = kiln__json_text(model, "type");
    if (context < 0 || context > MOST_CONTEXT)
        return kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, file,
                                    "context_length is %" JSON_INTEGER_FORMAT, context);
    if (words < 0 || words > MOST || width < 0 || width > MOST)
        return kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, file,
                                    "a vocab_size or hidden_size that cannot be");
    lm->shape = (struct kiln__lm_shape){.context = context ? (size_t)context : MOST_CONTEXT,
                                        .words = (size_t)words,
                                        .width = (size_t)width};
    lm->architecture = strdup(*type ? type : "onnx");
    return lm->architecture ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
}

/* ---- what the file has ---- */

/* Caches of all layers are of one shape; `seen` counts keys and values of each. */
static kiln_status add_cache(const struct kiln__lm_folder *folder, const kiln_model_value *input,
                             size_t layer, unsigned char *seen, kiln_lm *lm)
{
    struct kiln__lm_shape *shape = &lm->shape;
    const size_t pairs = input->rank == 4 ? input->dims[1] : 0;
    const size_t size = input->rank == 4 ? input->dims[3] : 0;
    if (!pairs || !size || pairs > INT16_MAX || size > INT16_MAX ||
        (input->type != KILN_F32 && input->type != KILN_F16 && input->type != KILN_BF16))
        return kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                    "input '%s' is no cache [texts, heads, keys, size]",
                                    input->name);
    if (shape->pairs &&
        (pairs != shape->pairs || size != shape->size || input->type != lm->genai->cache))
        return kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                    "input '%s' is a cache of another shape or type than those "
                                    "before",
                                    input->name);
    shape->pairs = pairs;
    shape->size = size;
    shape->layers = layer + 1 > shape->layers ? layer + 1 : shape->layers;
    lm->genai->cache = input->type;
    seen[layer]++;
    return KILN_OK;
}

enum { MOST_LAYERS = 1024 };

static kiln_status check_inputs(const struct kiln__lm_folder *folder, kiln_lm *lm)
{
    unsigned char seen[MOST_LAYERS] = {0};
    const kiln_model_value *inputs;
    const size_t count = kiln_model_inputs(lm->genai->model, &inputs);
    kiln_status status = KILN_OK;
    for (size_t i = 0, layer = 0; i < count && !status; i++) {
        const enum part part = find_part(lm->genai->in, inputs[i].name, &layer);
        if (part == PARTS || (part >= KEY && layer >= MOST_LAYERS))
            status = kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                          "its model has an input '%s', which kiln does not know",
                                          inputs[i].name);
        else if (part >= KEY)
            status = add_cache(folder, &inputs[i], layer, seen, lm);
    }
    bool all = lm->shape.layers > 0;
    for (size_t i = 0; i < lm->shape.layers; i++)
        all = all && seen[i] == 2;
    return status || all ? status
                         : kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                                "its model has no caches of keys and values for "
                                                "each layer, by the names that the file has");
}

static kiln_status check_outputs(const struct kiln__lm_folder *folder, kiln_lm *lm)
{
    const kiln_model_value *outputs;
    const size_t count = kiln_model_outputs(lm->genai->model, &outputs);
    size_t found[PARTS + 1] = {0}, *words = &lm->shape.words;
    for (size_t i = 0, layer; i < count; i++) {
        const enum part part = find_part(lm->genai->out, outputs[i].name, &layer);
        found[part]++;
        if (part == LOGITS && outputs[i].rank == 3 && outputs[i].dims[2])
            *words = outputs[i].dims[2];
    }
    if (!found[LOGITS])
        return kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file, "its model has no output '%s'",
                                    lm->genai->out[LOGITS]);
    if (found[KEY] != lm->shape.layers || found[VALUE] != lm->shape.layers)
        return kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                    "its model gives %zu keys and %zu values, and takes %zu",
                                    found[KEY], found[VALUE], lm->shape.layers);
    return *words && *words <= INT32_MAX
               ? KILN_OK
               : kiln__lm_folder_fail(folder, KILN_UNSUPPORTED, file,
                                      "neither vocab_size nor the model says how many tokens there "
                                      "are");
}

static kiln_status open_model(const struct kiln__lm_folder *folder, const char *name, kiln_lm *lm)
{
    kiln_model_options options = KILN_MODEL_OPTIONS_INIT;
    options.weights = lm->stored;
    char *path = kiln__lm_folder_path(folder, name);
    kiln_status status = path ? kiln_model_load(lm->context, path, &options, &lm->genai->model)
                              : kiln__lm_no_memory("kiln_lm_load");
    free(path);
    if (!status)
        status = check_inputs(folder, lm);
    return status ? status : check_outputs(folder, lm);
}

kiln_status kiln__lm_genai_load(const struct kiln__lm_folder *folder, kiln_lm *lm)
{
    const char *name = "";
    lm->genai = calloc(1, sizeof *lm->genai);
    kiln_status status =
        lm->genai ? read_config(folder, lm->genai, &name) : kiln__lm_no_memory("kiln_lm_load");
    if (!status)
        status = read_shape(folder, lm);
    return status ? status : open_model(folder, name, lm);
}

void kiln__lm_genai_free(struct kiln__lm_genai *genai)
{
    if (!genai)
        return;
    kiln_model_release(genai->model);
    json_decref(genai->config);
    free(genai);
}

kiln_type kiln__lm_genai_cache(const struct kiln__lm_genai *genai)
{
    return genai->cache;
}

/* ---- a step ---- */

/* Of a step that is recorded. */
struct operands {
    kiln_batch *batch;
    const struct kiln__lm_step *step;
    kiln_tensor tokens, places, sees; /* [lanes,rows], [lanes,rows], [lanes,context] */
    int64_t total;                    /* the caches' room */
};

static void make_operands(struct operands *o)
{
    kiln_batch *b = o->batch;
    const struct kiln__lm_step *step = o->step;
    const size_t lanes = step->lanes, rows = step->rows, slots = step->caches->slots;
    const size_t context = step->caches->context;
    kiln_tensor first = kiln_upload(b, KILN_I32, kiln_shape(slots), step->positions);
    if (lanes < slots)
        first = kiln_slice(b, first, kiln_positions(0), kiln_positions((int64_t)lanes), NULL);
    first = kiln_reshape(b, first, kiln_shape(lanes, 1));
    o->tokens = kiln_upload(b, KILN_I32, kiln_shape(lanes, rows), step->tokens);
    o->places = kiln_add(b, kiln_iota(b, kiln_shape(1, rows), 1), first);
    o->sees = kiln_less(b, kiln_iota(b, kiln_shape(1, context), 1),
                        kiln_add(b, first, kiln_constant(b, KILN_I32, (double)rows)));
    o->total = (int64_t)context;
}

static kiln_tensor give(struct operands *o, const kiln_model_value *input, kiln_array *content)
{
    const struct kiln__lm_caches *caches = o->step->caches;
    size_t layer = 0;
    kiln_tensor tensor = {0};
    switch (find_part(o->step->lm->genai->in, input->name, &layer)) {
    case IDS: tensor = o->tokens; break;
    case POSITIONS: tensor = o->places; break;
    case MASK: tensor = o->sees; break;
    case KEY: return kiln_import(o->batch, caches->keys[layer]);
    case VALUE: return kiln_import(o->batch, caches->values[layer]);
    default: *content = (kiln_array){KILN_I64, input->rank == 1, {1}, &o->total}; return tensor;
    }
    return kiln_cast(o->batch, tensor, input->type);
}

/* Of each lane; of several rows the last one that counts. */
static kiln_status take_logits(struct operands *o, kiln_tensor logits)
{
    const struct kiln__lm_step *step = o->step;
    const size_t words = step->lm->shape.words, lanes = step->lanes;
    kiln_batch *b = o->batch;
    size_t rank, dims[KILN_MAX_RANK];
    kiln_status status = kiln_tensor_shape(b, logits, NULL, &rank, dims);
    if (status)
        return status;
    if (rank != 3 || dims[0] != lanes || !dims[1] || dims[2] != words)
        return kiln__lm_fail(KILN_UNSUPPORTED,
                             "kiln_lm_feed: the model's logits are not [texts, tokens, %zu]",
                             words);
    logits = kiln_reshape(b, logits, kiln_shape(lanes * dims[1], words));
    if (dims[1] > 1)
        logits = kiln_gather(b, logits, kiln_upload(b, KILN_I32, 1, (size_t[]){1}, step->last), 0);
    kiln_read(b, kiln_cast(b, logits, KILN_F32), step->logits,
              lanes * words * sizeof *step->logits);
    return KILN_OK;
}

static kiln_status take(struct operands *o, const kiln_tensor *tensors)
{
    const struct kiln__lm_genai *genai = o->step->lm->genai;
    const struct kiln__lm_caches *caches = o->step->caches;
    const kiln_model_value *outputs;
    const size_t count = kiln_model_outputs(genai->model, &outputs);
    kiln_status status = KILN_OK;
    for (size_t i = 0, layer; i < count && !status; i++) {
        const enum part part = find_part(genai->out, outputs[i].name, &layer);
        if (part == LOGITS)
            status = take_logits(o, tensors[i]);
        else if (part >= KEY && part < PARTS && layer < o->step->lm->shape.layers)
            kiln_export(o->batch, tensors[i], (part == KEY ? caches->keys : caches->values)[layer]);
    }
    return status;
}

kiln_status kiln__lm_genai_record(const struct kiln__lm_step *step, kiln_batch *batch)
{
    const struct kiln__lm_genai *genai = step->lm->genai;
    struct operands operands = {.batch = batch, .step = step};
    const kiln_model_value *inputs;
    const size_t n_inputs = kiln_model_inputs(genai->model, &inputs);
    const size_t n_outputs = kiln_model_outputs(genai->model, NULL);
    kiln_tensor *in = calloc(n_inputs + n_outputs, sizeof *in);
    kiln_array *contents = calloc(n_inputs, sizeof *contents);
    kiln_status status = in && contents ? KILN_OK : kiln__lm_no_memory("kiln_lm_feed");
    make_operands(&operands);
    for (size_t i = 0; i < n_inputs && !status; i++)
        in[i] = give(&operands, &inputs[i], &contents[i]);
    if (!status)
        status = kiln_model_record(genai->model, batch, in, contents, in + n_inputs);
    if (!status)
        status = take(&operands, in + n_inputs);
    free(in);
    free(contents);
    return status;
}
