/* SPDX-License-Identifier: Apache-2.0 */
/* From a file's tensors to buffers: rows are widened a few at a time. */
#include <stdio.h>
#include <stdlib.h>

#include "lm/error.h"
#include "lm/model.h"

#define NO_LAYER SIZE_MAX

enum { CHUNK = 1 << 18, MOST_PARTS = 3, LONGEST = 64 }; /* weights, tensors, characters */

/* A buffer in the making: `parts` tensors of so many rows of `width`; vectors have a width alone.
 */
struct matrix {
    const char *names[MOST_PARTS];
    size_t rows[MOST_PARTS], parts, width;
    bool is_vector;
};

/* Where weights are widened. */
struct room {
    const struct kiln__gguf *gguf;
    kiln_lm *lm;
    float *wide;
    void *narrow;
    size_t capacity; /* weights */
};

/* ---- tensors ---- */

/* What a tensor is called, in a layer or in none. */
static const char *name_tensor(char full[LONGEST], const char *name, size_t layer)
{
    if (layer == NO_LAYER)
        snprintf(full, LONGEST, "%s", name);
    else
        snprintf(full, LONGEST, "blk.%zu.%s", layer, name);
    return full;
}

static void say_dims(char words[100], const struct kiln__gguf_tensor *tensor)
{
    size_t length = 0;
    for (size_t i = tensor->rank; i-- > 0;)
        length +=
            (size_t)snprintf(words + length, 100 - length, "%zu%s", tensor->dims[i], i ? "," : "");
}

/* A vector, or rows by width; of matrices a dimension of 1 more does no harm. */
static kiln_status check_shape(const struct kiln__gguf *gguf,
                               const struct kiln__gguf_tensor *tensor, const struct matrix *matrix,
                               size_t part)
{
    const size_t rows = matrix->is_vector ? 1 : matrix->rows[part];
    const size_t width = matrix->is_vector ? matrix->rows[part] : matrix->width;
    size_t others = 1;
    for (size_t i = 1; i < tensor->rank; i++)
        others *= tensor->dims[i]; /* no more than the file has bytes */
    if (tensor->dims[0] == width && others == rows)
        return KILN_OK;
    char words[100];
    say_dims(words, tensor);
    return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                         "kiln_lm_load: %s: tensor \"%.*s\" is [%s], and should be [%zu,%zu]",
                         gguf->path, KILN__GGUF_SAID(tensor->name), words, rows, width);
}

static kiln_status copy_tensor(struct room *room, const struct kiln__gguf_tensor *tensor,
                               kiln_type type, kiln_buffer *buffer, size_t *offset)
{
    const struct kiln__block_format *format = tensor->format;
    const size_t blocks = tensor->bytes / format->bytes, most = room->capacity / format->weights;
    kiln_status status = KILN_OK;
    for (size_t at = 0; at < blocks && !status;) {
        const size_t now = blocks - at < most ? blocks - at : most, count = now * format->weights;
        for (size_t i = 0; i < now; i++)
            format->widen(tensor->blocks + (at + i) * format->bytes,
                          room->wide + i * format->weights);
        kiln__lm_store(room->wide, count, type, room->narrow);
        status = kiln_buffer_write(buffer, *offset, room->narrow, count * kiln_type_size(type));
        *offset += count * kiln_type_size(type);
        at += now;
    }
    return status;
}

static kiln_status read_matrix(struct room *room, const struct matrix *matrix, size_t layer,
                               kiln_buffer **buffer)
{
    const struct kiln__gguf_tensor *tensors[MOST_PARTS];
    const kiln_type type = matrix->is_vector ? KILN_F32 : room->lm->stored;
    size_t rows = 0, offset = 0;
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < matrix->parts && !status; i++) {
        char name[LONGEST];
        tensors[i] = kiln__gguf_tensor(room->gguf, name_tensor(name, matrix->names[i], layer));
        rows += matrix->rows[i];
        status = tensors[i]
                     ? check_shape(room->gguf, tensors[i], matrix, i)
                     : kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s has no tensor \"%s\"",
                                     room->gguf->path, name);
    }
    if (!status)
        status = kiln_buffer_create(room->lm->context, type, matrix->is_vector ? 1 : 2,
                                    (size_t[]){rows, matrix->width}, buffer);
    for (size_t i = 0; i < matrix->parts && !status; i++)
        status = copy_tensor(room, tensors[i], type, *buffer, &offset);
    return status;
}

/* ---- all of them ---- */

static kiln_status read_layer(struct room *room, size_t number)
{
    const struct kiln__lm_shape *shape = &room->lm->shape;
    const struct kiln__architecture *row = shape->architecture;
    const size_t width = shape->width, inner = shape->inner, q = shape->heads * shape->size,
                 k = shape->pairs * shape->size;
    struct kiln__lm_layer *layer = &room->lm->weights.layers[number];
    const struct {
        bool wanted;
        struct matrix matrix;
        kiln_buffer **buffer;
    } all[] = {
        {true, {{"attn_norm.weight"}, {width}, 1, 0, true}, &layer->attention_norm},
        {true,
         {{"attn_q.weight", "attn_k.weight", "attn_v.weight"}, {q, k, k}, 3, width, false},
         &layer->qkv},
        {row->biases,
         {{"attn_q.bias", "attn_k.bias", "attn_v.bias"}, {q, k, k}, 3, 0, true},
         &layer->qkv_bias},
        {row->head_norms, {{"attn_q_norm.weight"}, {shape->size}, 1, 0, true}, &layer->q_norm},
        {row->head_norms, {{"attn_k_norm.weight"}, {shape->size}, 1, 0, true}, &layer->k_norm},
        {true, {{"attn_output.weight"}, {width}, 1, q, false}, &layer->out},
        {true, {{"ffn_norm.weight"}, {width}, 1, 0, true}, &layer->inner_norm},
        {true,
         {{"ffn_gate.weight", "ffn_up.weight"}, {inner, inner}, 2, width, false},
         &layer->gate_up},
        {true, {{"ffn_down.weight"}, {width}, 1, inner, false}, &layer->down},
    };
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !status; i++)
        if (all[i].wanted)
            status = read_matrix(room, &all[i].matrix, number, all[i].buffer);
    return status;
}

/* Llama 3.1's, which slow some of the angles down. */
static kiln_status read_factors(struct room *room)
{
    const struct kiln__gguf_tensor *tensor = kiln__gguf_tensor(room->gguf, "rope_freqs.weight");
    const size_t count = room->lm->shape.turned / 2;
    if (!tensor)
        return KILN_OK;
    if (tensor->rank != 1 || tensor->dims[0] != count || tensor->format->number != 0)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "kiln_lm_load: %s: tensor \"rope_freqs.weight\" should be %zu of F32",
                             room->gguf->path, count);
    float *factors = room->lm->weights.factors = malloc(count * sizeof *factors);
    if (!factors)
        return kiln__lm_no_memory("kiln_lm_load");
    for (size_t i = 0; i < count; i++) {
        tensor->format->widen(tensor->blocks + 4 * i, &factors[i]);
        if (!(factors[i] > 0))
            return kiln__lm_fail(
                KILN_INVALID_ARGUMENT,
                "kiln_lm_load: %s: a factor in \"rope_freqs.weight\" is not above 0",
                room->gguf->path);
    }
    return KILN_OK;
}

static kiln_status read_all(struct room *room)
{
    const struct kiln__lm_shape *shape = &room->lm->shape;
    struct kiln__lm_weights *weights = &room->lm->weights;
    const struct matrix words = {{"token_embd.weight"}, {shape->words}, 1, shape->width, false};
    const struct matrix output = {{"output.weight"}, {shape->words}, 1, shape->width, false};
    const struct matrix norm = {{"output_norm.weight"}, {shape->width}, 1, 0, true};
    kiln_status status = read_matrix(room, &words, NO_LAYER, &weights->words);
    if (!status)
        status = read_matrix(room, &norm, NO_LAYER, &weights->norm);
    if (!status && kiln__gguf_tensor(room->gguf, "output.weight")) {
        status = read_matrix(room, &output, NO_LAYER, &weights->output);
    } else if (!status) {
        kiln_buffer_retain(weights->words);
        weights->output = weights->words;
    }
    for (size_t i = 0; i < shape->layers && !status; i++)
        status = read_layer(room, i);
    return status ? status : read_factors(room);
}

kiln_status kiln__lm_weights_read(const struct kiln__gguf *gguf, kiln_lm *lm)
{
    struct room room = {gguf, lm, malloc(CHUNK * sizeof(float)), malloc(CHUNK * sizeof(float)),
                        CHUNK};
    if (lm->shape.layers <= gguf->n_tensors) /* else the file says more than it has */
        lm->weights.layers = calloc(lm->shape.layers, sizeof *lm->weights.layers);
    kiln_status status;
    if (lm->shape.layers > gguf->n_tensors)
        status =
            kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s has %zu tensors for %zu layers",
                          gguf->path, gguf->n_tensors, lm->shape.layers);
    else if (!room.wide || !room.narrow || !lm->weights.layers)
        status = kiln__lm_no_memory("kiln_lm_load");
    else
        status = read_all(&room);
    free(room.wide);
    free(room.narrow);
    return status;
}

void kiln__lm_weights_free(kiln_lm *lm)
{
    struct kiln__lm_weights *weights = &lm->weights;
    kiln_buffer_release(weights->words);
    kiln_buffer_release(weights->norm);
    kiln_buffer_release(weights->output);
    for (size_t i = 0; weights->layers && i < lm->shape.layers; i++) {
        const struct kiln__lm_layer *layer = &weights->layers[i];
        kiln_buffer *const all[] = {layer->attention_norm, layer->qkv,     layer->qkv_bias,
                                    layer->q_norm,         layer->k_norm,  layer->out,
                                    layer->inner_norm,     layer->gate_up, layer->down};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            kiln_buffer_release(all[k]);
    }
    free(weights->layers);
    free(weights->factors);
}
