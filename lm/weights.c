/* SPDX-License-Identifier: Apache-2.0 */
/* From a file's tensors to buffers: as they are, or cast by a batch. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm/caches.h"
#include "lm/error.h"
#include "lm/folder.h"
#include "lm/model.h"

#define NO_LAYER SIZE_MAX

enum { LONGEST = 128 };

/* A buffer in the making: `parts` tensors of so many rows of `width`; vectors have a width alone.
 */
struct matrix {
    const char *names[KILN__LM_MOST_PARTS];
    size_t rows[KILN__LM_MOST_PARTS], parts, width;
    bool is_vector;
};

struct room {
    const struct kiln__gguf *gguf;
    kiln_lm *lm;
    bool *used; /* of each tensor of the file, whether the model has it */
};

/* ---- tensors ---- */

/* What a tensor is called, in a layer or in none. */
static const char *name_tensor(const struct room *room, char full[LONGEST], const char *name,
                               size_t layer)
{
    if (room->gguf->prefix)
        kiln__lm_folder_name(room->lm->shape.architecture, room->gguf->prefix, name, layer, full,
                             LONGEST);
    else if (layer == NO_LAYER)
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

/* NULL: there is none. */
static const struct kiln__gguf_tensor *use_tensor(const struct room *room, const char *name)
{
    const struct kiln__gguf_tensor *tensor = kiln__gguf_tensor(room->gguf, name);
    if (tensor)
        room->used[tensor - room->gguf->tensors] = true;
    return tensor;
}

static kiln_status find_tensors(const struct room *room, const struct matrix *matrix, size_t layer,
                                const struct kiln__gguf_tensor **tensors)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < matrix->parts && !status; i++) {
        char name[LONGEST];
        tensors[i] = use_tensor(room, name_tensor(room, name, matrix->names[i], layer));
        status = tensors[i]
                     ? check_shape(room->gguf, tensors[i], matrix, i)
                     : kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s has no tensor \"%s\"",
                                     room->gguf->path, name);
    }
    return status;
}

static kiln_status make_buffer(const struct room *room, const struct matrix *matrix, kiln_type type,
                               size_t rows, kiln_buffer **buffer)
{
    return kiln_buffer_create(room->lm->context, type, matrix->is_vector ? 1 : 2,
                              (size_t[]){rows, matrix->width}, buffer);
}

/* Neighbours of one type share a buffer. */
static kiln_status copy(const struct room *room, const struct matrix *matrix,
                        const struct kiln__gguf_tensor **tensors, struct kiln__lm_matrix *made)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0, count = 0, next; i < matrix->parts && !status; i = next, count++) {
        size_t rows = 0, offset = 0;
        for (next = i; next < matrix->parts && tensors[next]->format == tensors[i]->format; next++)
            rows += matrix->rows[next];
        status = make_buffer(room, matrix, tensors[i]->format->type, rows, &made->parts[count]);
        for (size_t k = i; k < next && !status; k++) {
            status = kiln_buffer_write(made->parts[count], offset, tensors[k]->blocks,
                                       tensors[k]->bytes);
            offset += tensors[k]->bytes;
        }
    }
    return status;
}

/* A folder's tensor is in a buffer already, perhaps with a dimension of 1 more. */
static kiln_tensor operand(kiln_batch *b, const struct matrix *matrix, size_t part,
                           const struct kiln__gguf_tensor *tensor)
{
    const size_t rank = matrix->is_vector ? 1 : 2, dims[] = {matrix->rows[part], matrix->width};
    if (tensor->buffer)
        return kiln_reshape(b, kiln_import(b, tensor->buffer), rank, dims);
    return kiln_upload(b, tensor->format->type, rank, dims, tensor->blocks);
}

/* Whether 1 is to be added. */
static bool is_shifted(const struct room *room, const struct matrix *matrix)
{
    return matrix->is_vector && room->gguf->prefix && room->lm->shape.architecture->shifted;
}

static kiln_status convert(const struct room *room, const struct matrix *matrix, kiln_type type,
                           const struct kiln__gguf_tensor **tensors, struct kiln__lm_matrix *made)
{
    kiln_tensor parts[KILN__LM_MOST_PARTS];
    size_t rows = 0;
    kiln_batch *b = kiln_batch_create(room->lm->context);
    if (!b)
        return kiln__lm_no_memory("kiln_lm_load");
    for (size_t i = 0; i < matrix->parts; i++) {
        rows += matrix->rows[i];
        parts[i] = kiln_cast(b, operand(b, matrix, i, tensors[i]), type);
        if (is_shifted(room, matrix))
            parts[i] = kiln_add(b, parts[i], kiln_constant(b, KILN_F32, 1));
    }
    kiln_status status = make_buffer(room, matrix, type, rows, &made->parts[0]);
    if (!status) {
        kiln_export(b, kiln_concat(b, matrix->parts, parts, 0), made->parts[0]);
        status = kiln_batch_execute(b);
        if (status)
            kiln_error_set(status, kiln_batch_error(b));
    }
    kiln_batch_release(b);
    return status;
}

/* A buffer of the folder's becomes the model's, where it is one already. */
static bool take(const struct room *room, const struct matrix *matrix,
                 const struct kiln__gguf_tensor *tensor, struct kiln__lm_matrix *made)
{
    if (matrix->parts > 1 || is_shifted(room, matrix) ||
        tensor->rank != (matrix->is_vector ? 1 : 2))
        return false;
    made->parts[0] = tensor->buffer;
    kiln_buffer_retain(tensor->buffer);
    return true;
}

/* Whatever they were for, a folder's buffers have served. */
static void let_go(const struct room *room, const struct matrix *matrix,
                   const struct kiln__gguf_tensor **tensors)
{
    for (size_t i = 0; i < matrix->parts; i++) {
        kiln_buffer_release(tensors[i]->buffer);
        room->gguf->tensors[tensors[i] - room->gguf->tensors].buffer = NULL;
    }
}

static kiln_status read_folder(const struct room *room, const struct matrix *matrix,
                               kiln_type wanted, const struct kiln__gguf_tensor **tensors,
                               struct kiln__lm_matrix *made)
{
    kiln_type type = tensors[0]->format->type;
    for (size_t i = 1; i < matrix->parts; i++)
        type = tensors[i]->format->type == type ? type : KILN_F32;
    kiln_status status = KILN_OK;
    if ((wanted && wanted != type) || !take(room, matrix, tensors[0], made))
        status = convert(room, matrix, wanted ? wanted : type, tensors, made);
    let_go(room, matrix, tensors);
    return status;
}

/* In f32 first, which stays where blocks cannot have it. */
static kiln_status read_blocks(const struct room *room, const struct matrix *matrix,
                               const struct kiln__gguf_tensor **tensors,
                               struct kiln__lm_matrix *made)
{
    size_t rows = 0;
    for (size_t i = 0; i < matrix->parts; i++)
        rows += matrix->rows[i];
    kiln_status status = room->gguf->prefix ? read_folder(room, matrix, KILN_F32, tensors, made)
                                            : convert(room, matrix, KILN_F32, tensors, made);
    return status ? status
                  : kiln__lm_quantise(room->lm->context, room->lm->stored, rows, matrix->width,
                                      &made->parts[0]);
}

/* Vectors are f32. What the file has in blocks stays in these. */
static kiln_status read_tensors(const struct room *room, const struct matrix *matrix,
                                const struct kiln__gguf_tensor **tensors,
                                struct kiln__lm_matrix *made)
{
    const kiln_type wanted = matrix->is_vector ? KILN_F32 : room->lm->stored;
    bool as_it_is = true, quantised = false;
    for (size_t i = 0; i < matrix->parts; i++) {
        as_it_is = as_it_is && (!wanted || tensors[i]->format->type == wanted);
        quantised = quantised || tensors[i]->format->weights > 1;
    }
    if (kiln__lm_is_block_type(wanted))
        return quantised ? copy(room, matrix, tensors, made)
                         : read_blocks(room, matrix, tensors, made);
    if (room->gguf->prefix)
        return read_folder(room, matrix, wanted, tensors, made);
    return as_it_is ? copy(room, matrix, tensors, made)
                    : convert(room, matrix, wanted, tensors, made);
}

/* A tensor whose pairs of rows 2 i and 2 i + 1 of each head's first `turned` have become rows i and
 * turned / 2 + i. NULL: no memory. */
static void *part_neighbours(const struct kiln__lm_shape *shape,
                             const struct kiln__gguf_tensor *tensor, size_t rows)
{
    const size_t bytes = tensor->bytes / rows, half = shape->turned / 2;
    const char *from = (const char *)tensor->blocks;
    char *to = malloc(tensor->bytes);
    for (size_t row = 0; to && row < rows; row++) {
        const size_t at = row % shape->size, first = row - at;
        const size_t old = at < half ? 2 * at : at < shape->turned ? 2 * (at - half) + 1 : at;
        memcpy(to + row * bytes, from + (first + old) * bytes, bytes);
    }
    return to;
}

/* Heads' elements in the order in which decoders turn them: halves, which are turned as vectors,
 * where llama's GGUF files have neighbours. Products of queries and keys are the same sums. */
static kiln_status read_matrix(const struct room *room, const struct matrix *matrix, size_t layer,
                               struct kiln__lm_matrix *made)
{
    const struct kiln__lm_shape *shape = &room->lm->shape;
    const struct kiln__gguf_tensor *tensors[KILN__LM_MOST_PARTS] = {NULL};
    struct kiln__gguf_tensor ordered[2];
    void *blocks[2] = {NULL, NULL};
    const bool are_turned = shape->neighbours && !strcmp(matrix->names[0], "attn_q.weight");
    kiln_status status = find_tensors(room, matrix, layer, tensors);
    for (size_t i = 0; i < 2 && are_turned && !status; i++) { /* attn_k.weight, too */
        blocks[i] = part_neighbours(shape, tensors[i], matrix->rows[i]);
        if (!blocks[i])
            status = kiln__lm_no_memory("kiln_lm_load");
        ordered[i] = *tensors[i];
        ordered[i].blocks = blocks[i];
        tensors[i] = &ordered[i];
    }
    if (!status)
        status = read_tensors(room, matrix, tensors, made);
    free(blocks[0]);
    free(blocks[1]);
    return status;
}

/* ---- all of them ---- */

/* Whether queries, keys and values are one tensor: of encoders either may be. */
static bool is_fused(const struct room *room, size_t layer)
{
    const struct kiln__architecture *row = room->lm->shape.architecture;
    char name[LONGEST];
    name_tensor(room, name, "attn_qkv.weight", layer);
    return row->encodes ? kiln__gguf_tensor(room->gguf, name) != NULL : row->fused;
}

static kiln_status read_layer(struct room *room, size_t number)
{
    const struct kiln__lm_shape *shape = &room->lm->shape;
    const struct kiln__architecture *row = shape->architecture;
    const bool fused = is_fused(room, number), encodes = row->encodes, biases = row->biases;
    const size_t width = shape->width, inner = shape->inner, q = shape->heads * shape->size,
                 k = shape->pairs * shape->size;
    struct kiln__lm_layer *layer = &room->lm->weights.layers[number];
    const struct {
        bool wanted;
        struct matrix matrix;
        struct kiln__lm_matrix *made;
    } all[] = {
        {!encodes, {{"attn_norm.weight"}, {width}, 1, 0, true}, &layer->attention_norm},
        {!fused,
         {{"attn_q.weight", "attn_k.weight", "attn_v.weight"}, {q, k, k}, 3, width, false},
         &layer->qkv},
        {fused, {{"attn_qkv.weight"}, {q + 2 * k}, 1, width, false}, &layer->qkv},
        {biases && !fused,
         {{"attn_q.bias", "attn_k.bias", "attn_v.bias"}, {q, k, k}, 3, 0, true},
         &layer->qkv_bias},
        {biases && fused, {{"attn_qkv.bias"}, {q + 2 * k}, 1, 0, true}, &layer->qkv_bias},
        {row->head_norms, {{"attn_q_norm.weight"}, {shape->size}, 1, 0, true}, &layer->q_norm},
        {row->head_norms, {{"attn_k_norm.weight"}, {shape->size}, 1, 0, true}, &layer->k_norm},
        {true, {{"attn_output.weight"}, {width}, 1, q, false}, &layer->out},
        {encodes && biases, {{"attn_output.bias"}, {width}, 1, 0, true}, &layer->out_bias},
        {row->after_norms, {{"post_attention_norm.weight"}, {width}, 1, 0, true}, &layer->out_norm},
        {encodes, {{"attn_output_norm.weight"}, {width}, 1, 0, true}, &layer->out_norm},
        {encodes, {{"attn_output_norm.bias"}, {width}, 1, 0, true}, &layer->out_norm_shift},
        {!encodes, {{"ffn_norm.weight"}, {width}, 1, 0, true}, &layer->inner_norm},
        {row->fused, {{"ffn_up.weight"}, {2 * inner}, 1, width, false}, &layer->gate_up},
        {row->plain, {{"ffn_up.weight"}, {inner}, 1, width, false}, &layer->gate_up},
        {!row->fused && !row->plain,
         {{"ffn_gate.weight", "ffn_up.weight"}, {inner, inner}, 2, width, false},
         &layer->gate_up},
        {encodes && biases, {{"ffn_up.bias"}, {inner}, 1, 0, true}, &layer->up_bias},
        {true, {{"ffn_down.weight"}, {width}, 1, inner, false}, &layer->down},
        {encodes && biases, {{"ffn_down.bias"}, {width}, 1, 0, true}, &layer->down_bias},
        {row->after_norms, {{"post_ffw_norm.weight"}, {width}, 1, 0, true}, &layer->down_norm},
        {encodes, {{"layer_output_norm.weight"}, {width}, 1, 0, true}, &layer->down_norm},
        {encodes, {{"layer_output_norm.bias"}, {width}, 1, 0, true}, &layer->down_norm_shift},
    };
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !status; i++)
        if (all[i].wanted)
            status = read_matrix(room, &all[i].matrix, number, all[i].made);
    return status;
}

/* Llama 3.1's, which slow some of the angles down. */
static kiln_status read_factors(struct room *room)
{
    const struct kiln__gguf_tensor *tensor = use_tensor(room, "rope_freqs.weight");
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
        memcpy(&factors[i], tensor->blocks + 4 * i, sizeof factors[i]);
        if (!(factors[i] > 0))
            return kiln__lm_fail(
                KILN_INVALID_ARGUMENT,
                "kiln_lm_load: %s: a factor in \"rope_freqs.weight\" is not above 0",
                room->gguf->path);
    }
    return KILN_OK;
}

/* Without a tensor that kiln does not know, as a bias, it were another model. */
static kiln_status refuse_others(const struct room *room)
{
    const struct kiln__gguf *gguf = room->gguf;
    for (size_t i = 0; i < gguf->n_tensors; i++)
        if (!room->used[i])
            return kiln__lm_fail(
                KILN_UNSUPPORTED,
                "kiln_lm_load: %s: kiln knows no tensor \"%.*s\" (%s, layers: %zu)", gguf->path,
                KILN__GGUF_SAID(gguf->tensors[i].name), room->lm->shape.architecture->name,
                room->lm->shape.layers);
    return KILN_OK;
}

/* What is beside an encoder's layers. A text is of the first kind of two that some models have. */
static kiln_status read_encoder(struct room *room)
{
    kiln_lm *lm = room->lm;
    const struct kiln__lm_shape *shape = &lm->shape;
    struct kiln__lm_weights *weights = &lm->weights;
    const struct kiln__gguf_tensor *found = kiln__gguf_tensor(room->gguf, "token_types.weight");
    const size_t count = found ? found->dims[1] : 0, width = shape->width;
    const struct {
        bool wanted;
        struct matrix matrix;
        struct kiln__lm_matrix *made;
    } all[] = {
        {true, {{"token_embd_norm.weight"}, {width}, 1, 0, true}, &weights->norm},
        {true, {{"token_embd_norm.bias"}, {width}, 1, 0, true}, &weights->norm_shift},
        {shape->architecture->placed,
         {{"position_embd.weight"}, {shape->context}, 1, width, false},
         &weights->places},
        {found && found->rank > 1,
         {{"token_types.weight"}, {count}, 1, width, false},
         &weights->kinds},
    };
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < sizeof all / sizeof *all && !status; i++)
        if (all[i].wanted)
            status = read_matrix(room, &all[i].matrix, NO_LAYER, all[i].made);
    return status || shape->architecture->placed
               ? status
               : kiln__lm_angles_make("kiln_lm_load", lm, shape->context, KILN__LM_FAR,
                                      &weights->cosine, &weights->sine);
}

/* What is beside a decoder's. */
static kiln_status read_decoder(struct room *room)
{
    const struct kiln__lm_shape *shape = &room->lm->shape;
    struct kiln__lm_weights *weights = &room->lm->weights;
    const struct matrix output = {{"output.weight"}, {shape->words}, 1, shape->width, false};
    const struct matrix norm = {{"output_norm.weight"}, {shape->width}, 1, 0, true};
    char name[LONGEST];
    const bool is_there = use_tensor(room, name_tensor(room, name, output.names[0], NO_LAYER));
    const bool is_tied = shape->tied == KILN__LM_TIED_UNLESS_THERE ? !is_there : shape->tied;
    kiln_status status = read_matrix(room, &norm, NO_LAYER, &weights->norm);
    if (!status && !is_tied) {
        status = read_matrix(room, &output, NO_LAYER, &weights->output);
    } else if (!status) {
        for (size_t i = 0; i < KILN__LM_MOST_PARTS; i++)
            kiln_buffer_retain(weights->words.parts[i]);
        weights->output = weights->words;
    }
    return status ? status : read_factors(room);
}

static kiln_status read_all(struct room *room)
{
    const struct kiln__lm_shape *shape = &room->lm->shape;
    const struct matrix words = {{"token_embd.weight"}, {shape->words}, 1, shape->width, false};
    kiln_status status = read_matrix(room, &words, NO_LAYER, &room->lm->weights.words);
    for (size_t i = 0; i < shape->layers && !status; i++)
        status = read_layer(room, i);
    if (!status)
        status = (shape->architecture->encodes ? read_encoder : read_decoder)(room);
    return status ? status : refuse_others(room);
}

kiln_status kiln__lm_weights_read(const struct kiln__gguf *gguf, kiln_lm *lm)
{
    struct room room = {gguf, lm, calloc(gguf->n_tensors + 1, sizeof *room.used)};
    if (lm->shape.layers <= gguf->n_tensors) /* else the file says more than it has */
        lm->weights.layers = calloc(lm->shape.layers, sizeof *lm->weights.layers);
    kiln_status status;
    if (lm->shape.layers > gguf->n_tensors)
        status =
            kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s has %zu tensors for %zu layers",
                          gguf->path, gguf->n_tensors, lm->shape.layers);
    else if (!lm->weights.layers || !room.used)
        status = kiln__lm_no_memory("kiln_lm_load");
    else
        status = read_all(&room);
    free(room.used);
    return status;
}

static void release(const struct kiln__lm_matrix *matrix)
{
    for (size_t i = 0; i < KILN__LM_MOST_PARTS; i++)
        kiln_buffer_release(matrix->parts[i]);
}

void kiln__lm_weights_free(kiln_lm *lm)
{
    struct kiln__lm_weights *weights = &lm->weights;
    release(&weights->words);
    release(&weights->norm);
    release(&weights->output);
    release(&weights->norm_shift);
    release(&weights->places);
    release(&weights->kinds);
    kiln_buffer_release(weights->cosine);
    kiln_buffer_release(weights->sine);
    for (size_t i = 0; weights->layers && i < lm->shape.layers; i++) {
        const struct kiln__lm_layer *layer = &weights->layers[i];
        const struct kiln__lm_matrix *const all[] = {
            &layer->attention_norm, &layer->qkv,     &layer->qkv_bias,  &layer->q_norm,
            &layer->k_norm,         &layer->out,     &layer->out_norm,  &layer->inner_norm,
            &layer->gate_up,        &layer->down,    &layer->down_norm, &layer->out_bias,
            &layer->out_norm_shift, &layer->up_bias, &layer->down_bias, &layer->down_norm_shift};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            release(all[k]);
    }
    free(weights->layers);
    free(weights->factors);
}
