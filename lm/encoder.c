/* SPDX-License-Identifier: Apache-2.0 */
/* Sentence encoders: texts become vectors. */
#include <stdlib.h>
#include <string.h>

#include "lm/decoder.h"
#include "lm/error.h"

/* What all layers share. */
struct recording {
    kiln_batch *batch;
    const kiln_lm *lm;
    const struct kiln__lm_shape *shape;
    size_t texts, longest;
    kiln_tensor lengths;      /* [texts], at least 1 */
    kiln_tensor cosine, sine; /* of each place [longest,turned/2]; empty: nothing is turned */
};

/* ---- a layer ---- */

static kiln_tensor vector(struct recording *r, const struct kiln__lm_matrix *matrix)
{
    return kiln_import(r->batch, matrix->parts[0]);
}

/* A product and what is added to it, where the architecture has that. */
static kiln_tensor product(struct recording *r, kiln_tensor x, const struct kiln__lm_matrix *matrix,
                           const struct kiln__lm_matrix *bias)
{
    x = kiln__lm_product(r->batch, x, matrix);
    return bias->parts[0] ? kiln_add(r->batch, x, vector(r, bias)) : x;
}

static kiln_tensor normalize(struct recording *r, kiln_tensor x,
                             const struct kiln__lm_matrix *scale,
                             const struct kiln__lm_matrix *shift)
{
    return kiln_layer_norm(r->batch, x, vector(r, scale), vector(r, shift), kiln_axes(-1),
                           r->shape->epsilon);
}

/* Queries or keys [heads,texts,longest,size]. */
static kiln_tensor turn(struct recording *r, kiln_tensor x)
{
    return r->lm->weights.cosine ? kiln_rotary(r->batch, x, r->cosine, r->sine, 0) : x;
}

static kiln_tensor attention(struct recording *r, kiln_tensor x, const struct kiln__lm_layer *layer)
{
    const size_t heads = r->shape->heads, size = r->shape->size;
    kiln_batch *b = r->batch;
    kiln_attention_options options = KILN_ATTENTION_OPTIONS_INIT;
    kiln_tensor part[3], qkv = product(r, x, &layer->qkv, &layer->qkv_bias);
    qkv = kiln_reshape(b, qkv, kiln_shape(r->texts, r->longest, 3 * heads, size));
    kiln_split(b, kiln_transpose(b, qkv, kiln_dims(2, 0, 1, 3)), 0, 3, NULL, part);
    options.scale = r->shape->attention_scale;
    kiln_tensor seen = kiln_attention_with_lengths(b, turn(r, part[0]), turn(r, part[1]), part[2],
                                                   (kiln_tensor){0}, r->lengths, &options);
    seen = kiln_transpose(b, seen, kiln_dims(1, 2, 0, 3));
    seen = kiln_reshape(b, seen, kiln_shape(r->texts * r->longest, heads * size));
    return product(r, seen, &layer->out, &layer->out_bias);
}

static kiln_tensor feed_forward(struct recording *r, kiln_tensor x,
                                const struct kiln__lm_layer *layer)
{
    kiln_tensor part[2], up = product(r, x, &layer->gate_up, &layer->up_bias);
    if (r->shape->architecture->plain) {
        up = kiln_gelu(r->batch, up);
    } else {
        kiln_split(r->batch, up, 1, 2, NULL, part);
        up = kiln_mul(r->batch, kiln_swish(r->batch, part[0]), part[1]);
    }
    return product(r, up, &layer->down, &layer->down_bias);
}

/* ---- all layers ---- */

/* A vector of each token, its place and its kind [texts longest,width]. */
static kiln_tensor begin(struct recording *r, kiln_tensor tokens)
{
    const struct kiln__lm_weights *weights = &r->lm->weights;
    const size_t rows = r->texts * r->longest, width = r->shape->width;
    kiln_batch *b = r->batch;
    kiln_tensor places = kiln_iota(b, kiln_shape(r->longest), 0);
    kiln_tensor x =
        kiln_gather(b, vector(r, &weights->words), kiln_reshape(b, tokens, kiln_shape(rows)), 0);
    x = kiln_reshape(b, kiln_cast(b, x, KILN_F32), kiln_shape(r->texts, r->longest, width));
    if (weights->places.parts[0])
        x = kiln_add(
            b, x, kiln_cast(b, kiln_gather(b, vector(r, &weights->places), places, 0), KILN_F32));
    if (weights->kinds.parts[0]) {
        const kiln_tensor first = kiln_iota(b, kiln_shape(1), 0);
        x = kiln_add(b, x,
                     kiln_cast(b, kiln_gather(b, vector(r, &weights->kinds), first, 0), KILN_F32));
    }
    if (weights->cosine) {
        r->cosine = kiln_gather(b, kiln_import(b, weights->cosine), places, 0);
        r->sine = kiln_gather(b, kiln_import(b, weights->sine), places, 0);
    }
    return normalize(r, kiln_reshape(b, x, kiln_shape(rows, width)), &weights->norm,
                     &weights->norm_shift);
}

/* Of rows [texts longest,width] one for each text. */
static kiln_tensor pool(struct recording *r, kiln_tensor x, kiln_lm_pooling pooling)
{
    const size_t texts = r->texts, longest = r->longest;
    kiln_batch *b = r->batch;
    if (pooling == KILN_LM_POOLING_MEAN) {
        const kiln_tensor lengths = kiln_reshape(b, r->lengths, kiln_shape(texts, 1));
        const kiln_tensor own = kiln_less(b, kiln_iota(b, kiln_shape(1, longest), 1), lengths);
        x = kiln_reshape(b, x, kiln_shape(texts, longest, r->shape->width));
        x = kiln_where(b, kiln_reshape(b, own, kiln_shape(texts, longest, 1)), x,
                       kiln_constant(b, KILN_F32, 0));
        return kiln_div(b, kiln_sum(b, x, kiln_axes(1), 0), kiln_cast(b, lengths, KILN_F32));
    }
    kiln_tensor row = kiln_mul(b, kiln_iota(b, kiln_shape(texts), 0),
                               kiln_constant(b, KILN_I32, (double)longest));
    if (pooling == KILN_LM_POOLING_LAST)
        row = kiln_add(b, row, kiln_add(b, r->lengths, kiln_constant(b, KILN_I32, -1)));
    return kiln_gather(b, x, row, 0);
}

static kiln_tensor encode(struct recording *r, kiln_tensor tokens, kiln_lm_pooling pooling)
{
    kiln_tensor x = begin(r, tokens);
    for (size_t i = 0; i < r->shape->layers; i++) {
        const struct kiln__lm_layer *layer = &r->lm->weights.layers[i];
        x = normalize(r, kiln_add(r->batch, x, attention(r, x, layer)), &layer->out_norm,
                      &layer->out_norm_shift);
        x = normalize(r, kiln_add(r->batch, x, feed_forward(r, x, layer)), &layer->down_norm,
                      &layer->down_norm_shift);
    }
    return pool(r, x, pooling);
}

/* ---- what callers give ---- */

static kiln_status check_encoder(const char *call, const kiln_lm *lm)
{
    if (!lm)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: lm is NULL", call);
    const struct kiln__architecture *row = lm->shape.architecture;
    return row && row->encodes
               ? KILN_OK
               : kiln__lm_fail(KILN_UNSUPPORTED, "%s: %s is no encoder, and makes no vectors", call,
                               lm->architecture);
}

static kiln_status choose_pooling(const char *call, const kiln_lm *lm, kiln_lm_pooling *pooling)
{
    if ((unsigned)*pooling > KILN_LM_POOLING_LAST)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: pooling is %d", call, (int)*pooling);
    if (*pooling == KILN_LM_POOLING_OF_FILE)
        *pooling = (kiln_lm_pooling)lm->shape.pooling;
    return *pooling ? KILN_OK
                    : kiln__lm_fail(KILN_UNSUPPORTED,
                                    "%s: the file's pooling_type is none: it does not say what "
                                    "a text's vector is made of, and nor does pooling",
                                    call);
}

static kiln_status check_tokens(const char *call, kiln_batch *batch, kiln_tensor tokens,
                                kiln_tensor lengths, struct recording *r)
{
    size_t rank, dims[KILN_MAX_RANK], ranks_of_lengths, texts[KILN_MAX_RANK];
    kiln_type type, other;
    kiln_status status = kiln_tensor_shape(batch, tokens, &type, &rank, dims);
    if (!status)
        status = kiln_tensor_shape(batch, lengths, &other, &ranks_of_lengths, texts);
    if (status)
        return status;
    if (type != KILN_I32 || other != KILN_I32 || rank != 2 || ranks_of_lengths != 1 ||
        texts[0] != dims[0] || !dims[0] || !dims[1])
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "%s: tokens are to be i32 [texts,longest] and lengths i32 [texts], "
                             "and are of rank %zu and %zu",
                             call, rank, ranks_of_lengths);
    if (dims[1] > r->shape->context)
        return kiln__lm_fail(KILN_TOO_LARGE, "%s: %zu tokens, and the encoder takes %zu", call,
                             dims[1], r->shape->context);
    r->texts = dims[0];
    r->longest = dims[1];
    return KILN_OK;
}

kiln_status kiln_lm_record_vectors(kiln_lm *lm, kiln_batch *batch, kiln_tensor tokens,
                                   kiln_tensor lengths, kiln_lm_pooling pooling,
                                   kiln_tensor *vectors)
{
    static const char call[] = "kiln_lm_record_vectors";
    if (vectors)
        *vectors = (kiln_tensor){0};
    if (!batch || !vectors)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                             batch ? "vectors" : "batch");
    kiln_status status = check_encoder(call, lm);
    if (!status)
        status = choose_pooling(call, lm, &pooling);
    if (status)
        return status;
    struct recording r = {.batch = batch, .lm = lm, .shape = &lm->shape};
    status = check_tokens(call, batch, tokens, lengths, &r);
    if (status)
        return status;
    r.lengths = kiln_maximum(batch, lengths, kiln_constant(batch, KILN_I32, 1));
    *vectors = encode(&r, tokens, pooling);
    status = kiln_batch_status(batch);
    if (status)
        kiln_error_set(status, kiln_batch_error(batch));
    return status;
}

/* ---- texts ---- */

/* Lengths are filled up to one of few, so that few batches serve all texts. */
enum { FEWEST = 8, MOST_TEXTS = 32, MOST_TOKENS = 4096 };

/* A text's tokens, and what it is filled up to, which depends on the text alone. */
struct text {
    int32_t *tokens;
    size_t count, filled, number;
};

static int longest_first(const void *a, const void *b)
{
    const struct text *x = a, *y = b;
    if (x->filled != y->filled)
        return x->filled < y->filled ? 1 : -1;
    return (x->number > y->number) - (x->number < y->number);
}

static size_t fill_up(size_t count, size_t least, size_t most)
{
    size_t filled = least;
    while (filled < count)
        filled *= 2;
    return filled < most ? filled : most;
}

/* Specials that are written out are tokens, as transformers has it. A text that is longer than the
 * encoder takes loses its end, but for the last token. */
static kiln_status cut(const kiln_lm *lm, const char *words, struct text *text)
{
    const size_t most = lm->shape.context;
    kiln_status status = kiln_lm_tokenize(lm, words, strlen(words), KILN_LM_BEGIN | KILN_LM_CONTROL,
                                          &text->tokens, &text->count);
    if (status)
        return status;
    if (text->count > most) {
        text->tokens[most - 1] = text->tokens[text->count - 1];
        text->count = most;
    }
    text->filled = fill_up(text->count, FEWEST, most);
    return KILN_OK;
}

static kiln_tensor normal(kiln_batch *b, kiln_tensor x)
{
    const kiln_tensor squares = kiln_sum(b, kiln_mul(b, x, x), kiln_axes(1), 1);
    return kiln_div(b, x,
                    kiln_maximum(b, kiln_sqrt(b, squares), kiln_constant(b, KILN_F32, 1e-12)));
}

/* Texts that are filled up alike, in the first rows of a batch. */
static kiln_status run(kiln_lm *lm, const struct text *texts, size_t count, float *vectors)
{
    const size_t width = lm->shape.width, rows = fill_up(count, 2, MOST_TEXTS),
                 longest = texts[0].filled;
    int32_t lengths[MOST_TEXTS] = {0}, *tokens = calloc(rows * longest, sizeof *tokens);
    float *made = calloc(rows * width, sizeof *made);
    kiln_batch *b = tokens && made ? kiln_batch_create(lm->context) : NULL;
    kiln_status status =
        b ? kiln_batch_set_batch_invariant(b) : kiln__lm_no_memory("kiln_lm_embed");
    if (b && !status) {
        kiln_tensor found;
        for (size_t i = 0; i < count; i++) {
            lengths[i] = (int32_t)texts[i].count;
            memcpy(tokens + i * longest, texts[i].tokens, texts[i].count * sizeof *tokens);
        }
        const kiln_tensor all = kiln_upload(b, KILN_I32, kiln_shape(rows, longest), tokens);
        status =
            kiln_lm_record_vectors(lm, b, all, kiln_upload(b, KILN_I32, kiln_shape(rows), lengths),
                                   KILN_LM_POOLING_OF_FILE, &found);
        if (!status) {
            kiln_read(b, normal(b, found), made, rows * width * sizeof *made);
            status = kiln_batch_execute(b);
            if (status)
                kiln_error_set(status, kiln_batch_error(b));
        }
    }
    for (size_t i = 0; i < count && b && !status; i++)
        memcpy(vectors + texts[i].number * width, made + i * width, width * sizeof *made);
    kiln_batch_release(b);
    free(tokens);
    free(made);
    return status;
}

static kiln_status run_all(kiln_lm *lm, struct text *texts, size_t count, float *vectors)
{
    kiln_status status = KILN_OK;
    qsort(texts, count, sizeof *texts, longest_first);
    for (size_t i = 0, next; i < count && !status; i = next) {
        size_t most = MOST_TOKENS / texts[i].filled;
        most = most < 1 ? 1 : most < MOST_TEXTS ? most : MOST_TEXTS;
        for (next = i + 1;
             next < count && next < i + most && texts[next].filled == texts[i].filled;)
            next++;
        status = run(lm, texts + i, next - i, vectors);
    }
    return status;
}

kiln_status kiln_lm_embed(kiln_lm *lm, const char *const *texts, size_t count, float *vectors,
                          size_t elements)
{
    static const char call[] = "kiln_lm_embed";
    kiln_lm_pooling pooling = KILN_LM_POOLING_OF_FILE;
    kiln_status status = check_encoder(call, lm);
    if (!status)
        status = choose_pooling(call, lm, &pooling);
    if (status)
        return status;
    if (count && (!texts || !vectors))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                             texts ? "vectors" : "texts");
    for (size_t i = 0; i < count; i++)
        if (!texts[i])
            return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: text %zu is NULL", call, i);
    if (count > SIZE_MAX / lm->shape.width || elements != count * lm->shape.width)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: %zu elements for %zu vectors of %zu", call,
                             elements, count, lm->shape.width);
    struct text *all = calloc(count + 1, sizeof *all);
    if (!all)
        return kiln__lm_no_memory(call);
    for (size_t i = 0; i < count && !status; i++) {
        all[i].number = i;
        status = cut(lm, texts[i], &all[i]);
    }
    if (!status)
        status = run_all(lm, all, count, vectors);
    for (size_t i = 0; i < count; i++)
        free(all[i].tokens);
    free(all);
    return status;
}
