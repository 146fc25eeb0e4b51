/* SPDX-License-Identifier: Apache-2.0 */
/* A step of a decoder as a batch: tokens at positions that only the run knows become logits. */
#include "lm/decoder.h"

#include <math.h>

#include "lm/genai.h"

/* What all layers share. */
struct recording {
    kiln_batch *batch;
    const struct kiln__lm_step *step;
    const struct kiln__lm_shape *shape;
    enum kiln__lm_reach reach; /* of the layer */
    size_t rows;               /* of all lanes */
    kiln_tensor positions;     /* of each slot's first row */
    kiln_tensor lengths;       /* of each lane's text with all its rows; of a single lane [] */
    kiln_tensor cosine[KILN__LM_REACHES], sine[KILN__LM_REACHES]; /* of each row [rows,turned/2] */
};

kiln_tensor kiln__lm_product(kiln_batch *batch, kiln_tensor x, const struct kiln__lm_matrix *matrix)
{
    kiln_tensor parts[KILN__LM_MOST_PARTS];
    size_t count = 0;
    for (; count < KILN__LM_MOST_PARTS && matrix->parts[count]; count++)
        parts[count] =
            kiln_matmul_transposed(batch, x, 0, kiln_import(batch, matrix->parts[count]), 1);
    return count == 1 ? parts[0] : kiln_concat(batch, count, parts, 1);
}

static kiln_tensor product(struct recording *r, kiln_tensor x, const struct kiln__lm_matrix *matrix)
{
    return kiln__lm_product(r->batch, x, matrix);
}

static kiln_tensor vector(struct recording *r, const struct kiln__lm_matrix *matrix)
{
    return kiln_import(r->batch, matrix->parts[0]);
}

/* Without a scale it stays as it is. */
static kiln_tensor normalize(struct recording *r, kiln_tensor x,
                             const struct kiln__lm_matrix *scale)
{
    if (!scale->parts[0])
        return x;
    return kiln_rms_norm(r->batch, x, vector(r, scale), kiln_axes(-1), r->shape->epsilon);
}

/* Queries or keys [heads,rows,size]. */
static kiln_tensor turn(struct recording *r, kiln_tensor x, const struct kiln__lm_matrix *norm)
{
    return kiln_rotary(r->batch, normalize(r, x, norm), r->cosine[r->reach], r->sine[r->reach], 0);
}

/* Put rows [pairs,rows,size] into a cache at their positions; gives the keys or values of the
 * lanes. */
static kiln_tensor remember(struct recording *r, kiln_tensor x, kiln_buffer *buffer)
{
    const struct kiln__lm_caches *caches = r->step->caches;
    const size_t pairs = r->shape->pairs, size = r->shape->size, lanes = r->step->lanes;
    kiln_batch *b = r->batch;
    x = kiln_reshape(b, kiln_cast(b, x, caches->type),
                     kiln_shape(pairs, lanes, r->step->rows, size));
    if (lanes < caches->slots)
        x = kiln_pad(b, x, kiln_dims(0, 0, 0, 0), kiln_dims(0, caches->slots - lanes, 0, 0), 0);
    x = kiln_update_slice(b, kiln_import(b, buffer), x, r->positions, 2);
    kiln_export(b, x, buffer);
    return lanes < caches->slots
               ? kiln_slice(b, x, kiln_positions(0, 0, 0, 0),
                            kiln_positions((int64_t)pairs, (int64_t)lanes, (int64_t)caches->context,
                                           (int64_t)size),
                            NULL)
               : x;
}

/* Whether the lanes are some slots' texts: then a single one is recorded as several are. */
static bool has_lanes(const struct kiln__lm_step *step)
{
    return step->caches->slots > 1;
}

/* Queries as matrices of rows that see the same keys, [pairs,heads of them,...]. Heads that share
 * keys are the rows where there is one token of one text. */
static kiln_tensor queries(struct recording *r, kiln_tensor q)
{
    const size_t pairs = r->shape->pairs, shared = r->shape->heads / pairs, size = r->shape->size;
    if (has_lanes(r->step))
        return kiln_reshape(r->batch, q,
                            kiln_shape(pairs, shared, r->step->lanes, r->step->rows, size));
    if (r->rows > 1)
        return kiln_reshape(r->batch, q, kiln_shape(pairs, shared, r->rows, size));
    return kiln_reshape(r->batch, q, kiln_shape(pairs, 1, shared, size));
}

/* Keys or values beside such queries. */
static kiln_tensor keys(struct recording *r, kiln_tensor k)
{
    return has_lanes(r->step) ? kiln_reshape(r->batch, k,
                                             kiln_shape(r->shape->pairs, 1, r->step->lanes,
                                                        r->step->caches->context, r->shape->size))
                              : k;
}

static kiln_tensor attend(struct recording *r, kiln_tensor q, kiln_tensor k, kiln_tensor v)
{
    const size_t heads = r->shape->heads, rows = r->rows, size = r->shape->size;
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.causal = r->step->rows > 1;
    options.scale = r->shape->attention_scale;
    if (r->reach == KILN__LM_NEAR && r->shape->window < r->step->caches->context)
        options.window = (int64_t)r->shape->window;
    kiln_tensor a = kiln_attention_with_lengths(r->batch, queries(r, q), keys(r, k), keys(r, v),
                                                (kiln_tensor){0}, r->lengths, &options);
    if (rows > 1)
        a = kiln_transpose(r->batch, kiln_reshape(r->batch, a, kiln_shape(heads, rows, size)),
                           kiln_dims(1, 0, 2));
    return kiln_reshape(r->batch, a, kiln_shape(rows, heads * size));
}

static kiln_tensor attention(struct recording *r, kiln_tensor x, size_t number)
{
    const struct kiln__lm_shape *shape = r->shape;
    const struct kiln__lm_layer *layer = &r->step->lm->weights.layers[number];
    kiln_batch *b = r->batch;
    kiln_tensor qkv = product(r, normalize(r, x, &layer->attention_norm), &layer->qkv), part[3];
    if (layer->qkv_bias.parts[0])
        qkv = kiln_add(b, qkv, vector(r, &layer->qkv_bias));
    qkv = kiln_reshape(b, qkv, kiln_shape(r->rows, shape->heads + 2 * shape->pairs, shape->size));
    kiln_split(b, kiln_transpose(b, qkv, kiln_dims(1, 0, 2)), 0, 3,
               kiln_dims(shape->heads, shape->pairs, shape->pairs), part);
    kiln_tensor q = turn(r, part[0], &layer->q_norm);
    kiln_tensor k = remember(r, turn(r, part[1], &layer->k_norm), r->step->caches->keys[number]);
    kiln_tensor v = remember(r, part[2], r->step->caches->values[number]);
    return normalize(r, product(r, attend(r, q, k, v), &layer->out), &layer->out_norm);
}

static kiln_tensor feed_forward(struct recording *r, kiln_tensor x, size_t number)
{
    const struct kiln__lm_layer *layer = &r->step->lm->weights.layers[number];
    kiln_tensor part[2];
    kiln_split(r->batch, product(r, normalize(r, x, &layer->inner_norm), &layer->gate_up), 1, 2,
               NULL, part);
    kiln_tensor gate = r->shape->architecture->gelu ? kiln_gelu_tanh(r->batch, part[0])
                                                    : kiln_swish(r->batch, part[0]);
    return normalize(r, product(r, kiln_mul(r->batch, gate, part[1]), &layer->down),
                     &layer->down_norm);
}

/* Angles of the rows. */
static void look(struct recording *r, kiln_tensor places)
{
    const struct kiln__lm_caches *caches = r->step->caches;
    kiln_batch *b = r->batch;
    for (int i = 0; i < KILN__LM_REACHES && caches->cosine[i]; i++) {
        r->cosine[i] = kiln_gather(b, kiln_import(b, caches->cosine[i]), places, 0);
        r->sine[i] = kiln_gather(b, kiln_import(b, caches->sine[i]), places, 0);
    }
}

static void begin(struct recording *r)
{
    const struct kiln__lm_step *step = r->step;
    const size_t slots = step->caches->slots, lanes = step->lanes, rows = step->rows;
    kiln_batch *b = r->batch;
    r->positions = kiln_upload(b, KILN_I32, kiln_shape(slots), step->positions);
    kiln_tensor first = lanes < slots ? kiln_slice(b, r->positions, kiln_positions(0),
                                                   kiln_positions((int64_t)lanes), NULL)
                                      : r->positions;
    kiln_tensor places = kiln_add(b, kiln_iota(b, kiln_shape(1, rows), 1),
                                  kiln_reshape(b, first, kiln_shape(lanes, 1)));
    look(r, kiln_reshape(b, places, kiln_shape(r->rows)));
    if (slots == 1)
        first = r->positions = kiln_reshape(b, first, KILN_SCALAR);
    r->lengths = kiln_add(b, first, kiln_constant(b, KILN_I32, (double)rows));
}

static void record_weights(const struct kiln__lm_step *step, kiln_batch *b)
{
    const struct kiln__lm_weights *weights = &step->lm->weights;
    struct recording r = {
        .batch = b, .step = step, .shape = &step->lm->shape, .rows = step->lanes * step->rows};
    begin(&r);
    kiln_tensor tokens = kiln_upload(b, KILN_I32, kiln_shape(r.rows), step->tokens);
    kiln_tensor x = kiln_cast(b, kiln_gather(b, vector(&r, &weights->words), tokens, 0), KILN_F32);
    if (r.shape->architecture->scaled)
        x = kiln_scale(b, x, sqrt((double)r.shape->width));
    for (size_t i = 0; i < r.shape->layers; i++) {
        r.reach = kiln__lm_reach(r.shape, i);
        x = kiln_add(b, x, attention(&r, x, i));
        x = kiln_add(b, x, feed_forward(&r, x, i));
    }
    if (step->rows > 1)
        x = kiln_gather(b, x, kiln_upload(b, KILN_I32, kiln_shape(1), step->last), 0);
    kiln_tensor logits = product(&r, normalize(&r, x, &weights->norm), &weights->output);
    kiln_read(b, logits, step->logits, step->lanes * r.shape->words * sizeof *step->logits);
}

kiln_status kiln__lm_record(const struct kiln__lm_step *step, kiln_batch **batch)
{
    kiln_batch *b = *batch = kiln_batch_create(step->lm->context);
    if (!b)
        return KILN_OUT_OF_HOST_MEMORY;
    kiln_status status = has_lanes(step) ? kiln_batch_set_batch_invariant(b) : KILN_OK;
    if (step->lm->genai)
        status = status ? status : kiln__lm_genai_record(step, b);
    else
        record_weights(step, b);
    if (!status && (status = kiln_batch_status(b)))
        kiln_error_set(status, kiln_batch_error(b));
    if (status) {
        kiln_batch_release(b);
        *batch = NULL;
    }
    return status;
}
