/* SPDX-License-Identifier: Apache-2.0 */
/* An encoder in an ONNX or a GGUF file as what an executor runs: a row is a sentence's tokens, its
 * result a vector. */
#include <stdio.h>
#include <string.h>

#ifdef HAVE_LM
#include <kiln/lm.h>
#endif

#include "embed.h"

/* ---- recording ---- */

enum { MOST_INPUTS = 8, MOST_OUTPUTS = 16 };

static kiln_status refuse(struct embed_model *model, kiln_status status, const char *problem)
{
    if (!*model->problem)
        snprintf(model->problem, sizeof model->problem, "%s", problem);
    return status;
}

/* What the encoder is given under the names that they all have. */
static kiln_status give_inputs(struct embed_model *model, kiln_batch *b, const kiln_tensor *rows,
                               kiln_tensor *given)
{
    const kiln_model_value *values;
    size_t count = kiln_model_inputs(model->onnx, &values);
    for (size_t i = 0; i < count && i < MOST_INPUTS; i++) {
        const char *name = values[i].name;
        if (!strcmp(name, "input_ids"))
            given[i] = kiln_cast(b, rows[0], values[i].type);
        else if (!strcmp(name, "attention_mask"))
            given[i] = kiln_cast(b, rows[2], values[i].type);
        else if (!strcmp(name, "token_type_ids"))
            given[i] =
                kiln_cast(b, kiln_mul(b, rows[2], kiln_constant(b, KILN_U8, 0)), values[i].type);
        else
            return refuse(model, KILN_UNSUPPORTED,
                          "the model has an input beside input_ids, attention_mask and "
                          "token_type_ids");
    }
    return count <= MOST_INPUTS ? KILN_OK
                                : refuse(model, KILN_UNSUPPORTED, "the model has too many inputs");
}

/* The output that encoders call so, or the only one: another would be a guess. */
static bool find_output(const kiln_onnx_model *onnx, size_t *number)
{
    static const char *const names[] = {"sentence_embedding", "last_hidden_state",
                                        "token_embeddings"};
    const kiln_model_value *values;
    size_t count = kiln_model_outputs(onnx, &values);
    *number = 0;
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        for (size_t i = 0; i < count; i++)
            if (!strcmp(values[i].name, names[k])) {
                *number = i;
                return true;
            }
    return count == 1;
}

/* One vector of each sentence's: the first token's, or the mean of all that are not padding. */
static kiln_tensor pool(const struct embed_model *model, kiln_batch *b, kiln_tensor tokens,
                        const size_t dims[3], const kiln_tensor *rows)
{
    const size_t flat[] = {dims[0], dims[2]}, column[] = {dims[0], dims[1], 1},
                 single[] = {dims[0], 1};
    if (model->cls) {
        const int64_t start[] = {0, 0, 0}, stop[] = {(int64_t)dims[0], 1, (int64_t)dims[2]};
        return kiln_reshape(b, kiln_slice(b, tokens, start, stop, NULL), 2, flat);
    }
    kiln_tensor mask = kiln_cast(b, kiln_reshape(b, rows[2], 3, column), KILN_F32);
    kiln_tensor sum = kiln_sum(b, kiln_mul(b, tokens, mask), 1, (const int[]){1}, 0);
    kiln_tensor length = kiln_cast(b, kiln_reshape(b, rows[1], 2, single), KILN_F32);
    /* Rows of nobody are of length 0. */
    return kiln_div(b, sum, kiln_maximum(b, length, kiln_constant(b, KILN_F32, 1)));
}

static kiln_tensor normalize(kiln_batch *b, kiln_tensor x)
{
    kiln_tensor squares = kiln_sum(b, kiln_mul(b, x, x), 1, (const int[]){1}, 1);
    return kiln_div(b, x,
                    kiln_maximum(b, kiln_sqrt(b, squares), kiln_constant(b, KILN_F32, 1e-12)));
}

/* ---- GGUF files ---- */

#ifdef HAVE_LM
static kiln_status record_gguf(kiln_batch *b, size_t context, size_t row_count,
                               const kiln_tensor *rows, kiln_tensor *outputs, void *user)
{
    static const kiln_lm_pooling poolings[] = {[EMBED_AS_CONFIGURED] = KILN_LM_POOLING_OF_FILE,
                                               [EMBED_MEAN] = KILN_LM_POOLING_MEAN,
                                               [EMBED_CLS] = KILN_LM_POOLING_CLS};
    struct embed_model *model = (struct embed_model *)user + context;
    kiln_tensor made;
    (void)row_count;
    const kiln_status status = kiln_lm_record_vectors(
        model->lm, b, rows[0], kiln_cast(b, rows[1], KILN_I32), poolings[model->pooling], &made);
    if (status)
        return refuse(model, status, kiln_last_error());
    outputs[0] = model->normalize ? normalize(b, made) : made;
    return KILN_OK;
}

static bool load_gguf(struct embed_model *model, kiln_context *context, kiln_type weights,
                      struct embed_files *files)
{
    kiln_lm_options options = KILN_LM_OPTIONS_INIT;
    kiln_lm_info info;
    options.weights = weights;
    if ((!model->lm && kiln_lm_load(context, files->model, &options, &model->lm)) ||
        kiln_lm_get_info(model->lm, &info))
        return false;
    if (!info.encoder) {
        kiln_error_set(KILN_UNSUPPORTED, "the model is no encoder: see kiln generate");
        return false;
    }
    const size_t most = info.context < EMBED_MOST_LENGTH ? info.context : EMBED_MOST_LENGTH;
    if (!files->max_length || files->max_length > most)
        files->max_length = most;
    model->width = info.width;
    return true;
}
#endif

/* ---- ONNX files ---- */

static kiln_status record(kiln_batch *b, size_t context, size_t row_count, const kiln_tensor *rows,
                          kiln_tensor *outputs, void *user)
{
    struct embed_model *model = (struct embed_model *)user + context;
    kiln_tensor given[MOST_INPUTS], results[MOST_OUTPUTS];
    size_t number, rank = 0, dims[KILN_MAX_RANK];
    (void)row_count;
    if (kiln_model_outputs(model->onnx, NULL) > MOST_OUTPUTS)
        return refuse(model, KILN_UNSUPPORTED, "the model has too many outputs");
    if (!find_output(model->onnx, &number))
        return refuse(model, KILN_UNSUPPORTED,
                      "the model has several outputs, and none is called sentence_embedding, "
                      "last_hidden_state or token_embeddings");
    kiln_status status = give_inputs(model, b, rows, given);
    if (status)
        return status;
    status = kiln_model_record(model->onnx, b, given, NULL, results);
    const kiln_tensor none = {0};
    kiln_tensor result = status ? none : results[number];
    if (!status)
        status = kiln_tensor_shape(b, result, NULL, &rank, dims);
    if (status)
        return refuse(model, status, kiln_last_error());
    if (rank == 3)
        result = pool(model, b, result, dims, rows);
    else if (rank != 2)
        return refuse(model, KILN_UNSUPPORTED,
                      "the model gives neither a vector of each token nor one of each sentence");
    model->width = dims[rank - 1];
    result = kiln_cast(b, result, KILN_F32);
    outputs[0] = model->normalize ? normalize(b, result) : result;
    return KILN_OK;
}

/* ---- either ---- */

bool embed_load(struct embed_model *model, kiln_context *context, kiln_type weights,
                struct embed_files *files)
{
    if (files->is_gguf) {
#ifdef HAVE_LM
        return load_gguf(model, context, weights, files);
#else
        kiln_error_set(KILN_UNSUPPORTED,
                       "this kiln was built without libkiln-lm, which reads GGUF files");
        return false;
#endif
    }
    kiln_model_options options;
    kiln_model_options_init(&options);
    options.weights = weights;
    return !kiln_model_load(context, files->model, &options, &model->onnx);
}

void embed_close(struct embed_model *model)
{
    kiln_executor_release(model->executor);
    kiln_model_release(model->onnx);
#ifdef HAVE_LM
    kiln_lm_release(model->lm);
#endif
}

bool embed_open_executor(struct embed_model *models, kiln_context *const *contexts, size_t count,
                         size_t max_length, const kiln_executor_options *options)
{
    const kiln_row row = {.type = KILN_I32, .rank = 1, .dims = {max_length}, .sequence = 1};
    kiln_model recorder = KILN_MODEL_INIT;
    recorder.record = record;
#ifdef HAVE_LM
    if (models->lm)
        recorder.record = record_gguf;
#endif
    recorder.user = models;
    recorder.inputs = &row;
    recorder.input_count = recorder.output_count = 1;
    kiln_status status =
        kiln_executor_create(contexts, count, &recorder, options, &models->executor);
    const char *problem = status ? kiln_last_error() : NULL;
    for (size_t i = 0; i < count && status; i++)
        problem = *models[i].problem ? models[i].problem : problem;
    if (status)
        fprintf(stderr, "%s: %s\n", models->command, problem);
    return !status;
}
