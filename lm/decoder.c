/* SPDX-License-Identifier: Apache-2.0 */
/* A step of a decoder as a batch: tokens at a position that only the run knows become logits. */
#include "lm/session.h"

/* What all layers share. */
struct recording {
    kiln_batch *batch;
    kiln_lm_session *session;
    const struct kiln__lm_shape *shape;
    size_t rows;
    kiln_tensor position;     /* of the first row */
    kiln_tensor length;       /* of the text with all rows */
    kiln_tensor cosine, sine; /* of each row [rows,turned/2] */
};

static kiln_tensor product(struct recording *r, kiln_tensor x, const struct kiln__lm_matrix *matrix)
{
    kiln_tensor parts[KILN__LM_MOST_PARTS];
    size_t count = 0;
    for (; count < KILN__LM_MOST_PARTS && matrix->parts[count]; count++)
        parts[count] =
            kiln_matmul_transposed(r->batch, x, 0, kiln_import(r->batch, matrix->parts[count]), 1);
    return count == 1 ? parts[0] : kiln_concat(r->batch, count, parts, 1);
}

static kiln_tensor vector(struct recording *r, const struct kiln__lm_matrix *matrix)
{
    return kiln_import(r->batch, matrix->parts[0]);
}

static kiln_tensor normalize(struct recording *r, kiln_tensor x,
                             const struct kiln__lm_matrix *scale)
{
    return kiln_rms_norm(r->batch, x, vector(r, scale), kiln_axes(-1), r->shape->epsilon);
}

/* Queries or keys [heads,rows,size]. */
static kiln_tensor turn(struct recording *r, kiln_tensor x, const struct kiln__lm_matrix *norm)
{
    if (norm->parts[0])
        x = normalize(r, x, norm);
    return kiln_rotary(r->batch, x, r->cosine, r->sine, r->shape->architecture->neighbours);
}

/* Put rows [pairs,rows,size] into a cache at their positions; gives the cache. */
static kiln_tensor remember(struct recording *r, kiln_tensor x, kiln_buffer *cache)
{
    x = kiln_reshape(r->batch, kiln_cast(r->batch, x, r->session->cache),
                     kiln_shape(r->shape->pairs, 1, r->rows, r->shape->size));
    x = kiln_update_slice(r->batch, kiln_import(r->batch, cache), x, r->position, 2);
    kiln_export(r->batch, x, cache);
    return x;
}

/* Heads that share keys are rows of one product where there is one token, and see the same keys. */
static kiln_tensor attend(struct recording *r, kiln_tensor q, kiln_tensor k, kiln_tensor v)
{
    const struct kiln__lm_shape *shape = r->shape;
    const size_t shared = shape->heads / shape->pairs, rows = r->rows, size = shape->size;
    kiln_batch *b = r->batch;
    q = rows == 1 ? kiln_reshape(b, q, kiln_shape(shape->pairs, 1, shared, size))
                  : kiln_reshape(b, q, kiln_shape(shape->pairs, shared, rows, size));
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    options.causal = rows > 1;
    kiln_tensor a = kiln_attention_with_lengths(b, q, k, v, (kiln_tensor){0}, r->length, &options);
    if (rows > 1)
        a = kiln_transpose(b, kiln_reshape(b, a, kiln_shape(shape->heads, rows, size)),
                           kiln_dims(1, 0, 2));
    return kiln_reshape(b, a, kiln_shape(rows, shape->heads * size));
}

static kiln_tensor attention(struct recording *r, kiln_tensor x, size_t number)
{
    const struct kiln__lm_shape *shape = r->shape;
    const struct kiln__lm_layer *layer = &r->session->lm->weights.layers[number];
    kiln_batch *b = r->batch;
    kiln_tensor qkv = product(r, normalize(r, x, &layer->attention_norm), &layer->qkv), part[3];
    if (layer->qkv_bias.parts[0])
        qkv = kiln_add(b, qkv, vector(r, &layer->qkv_bias));
    qkv = kiln_reshape(b, qkv, kiln_shape(r->rows, shape->heads + 2 * shape->pairs, shape->size));
    kiln_split(b, kiln_transpose(b, qkv, kiln_dims(1, 0, 2)), 0, 3,
               kiln_dims(shape->heads, shape->pairs, shape->pairs), part);
    kiln_tensor q = turn(r, part[0], &layer->q_norm);
    kiln_tensor k = remember(r, turn(r, part[1], &layer->k_norm), r->session->keys[number]);
    kiln_tensor v = remember(r, part[2], r->session->values[number]);
    return product(r, attend(r, q, k, v), &layer->out);
}

static kiln_tensor feed_forward(struct recording *r, kiln_tensor x, size_t number)
{
    const struct kiln__lm_layer *layer = &r->session->lm->weights.layers[number];
    kiln_tensor part[2];
    kiln_split(r->batch, product(r, normalize(r, x, &layer->inner_norm), &layer->gate_up), 1, 2,
               NULL, part);
    return product(r, kiln_mul(r->batch, kiln_swish(r->batch, part[0]), part[1]), &layer->down);
}

static void begin(struct recording *r)
{
    kiln_lm_session *session = r->session;
    kiln_batch *b = r->batch;
    r->position = kiln_upload(b, KILN_I32, kiln_shape(1), &session->position);
    kiln_tensor places = kiln_add(b, kiln_iota(b, kiln_shape(r->rows), 0), r->position);
    r->cosine = kiln_gather(b, kiln_import(b, session->cosine), places, 0);
    r->sine = kiln_gather(b, kiln_import(b, session->sine), places, 0);
    r->position = kiln_reshape(b, r->position, KILN_SCALAR);
    r->length = kiln_add(b, r->position, kiln_constant(b, KILN_I32, (double)r->rows));
}

kiln_status kiln__lm_record(kiln_lm_session *session, size_t rows, kiln_batch **batch)
{
    const struct kiln__lm_weights *weights = &session->lm->weights;
    struct recording r = {.session = session, .shape = &session->lm->shape, .rows = rows};
    kiln_batch *b = r.batch = *batch = kiln_batch_create(session->lm->context);
    if (!b)
        return KILN_OUT_OF_HOST_MEMORY;
    begin(&r);
    kiln_tensor tokens = kiln_upload(b, KILN_I32, kiln_shape(rows), session->rows);
    kiln_tensor x = kiln_cast(b, kiln_gather(b, vector(&r, &weights->words), tokens, 0), KILN_F32);
    for (size_t i = 0; i < r.shape->layers; i++) {
        x = kiln_add(b, x, attention(&r, x, i));
        x = kiln_add(b, x, feed_forward(&r, x, i));
    }
    if (rows > 1)
        x = kiln_gather(b, x, kiln_upload(b, KILN_I32, kiln_shape(1), &session->last), 0);
    kiln_tensor logits = product(&r, normalize(&r, x, &weights->norm), &weights->output);
    kiln_read(b, logits, session->logits, r.shape->words * sizeof *session->logits);
    const kiln_status status = kiln_batch_status(b);
    if (status) {
        kiln_error_set(status, kiln_batch_error(b));
        kiln_batch_release(b);
        *batch = NULL;
    }
    return status;
}
