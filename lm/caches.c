/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of keys, values and angles, filled. */
#include "lm/caches.h"

#include <math.h>
#include <stdlib.h>

#include "lm/error.h"
#include "lm/genai.h"

enum { USUAL_CONTEXT = 4096 };

size_t kiln__lm_usual_context(const kiln_lm *lm)
{
    return lm->shape.context < USUAL_CONTEXT ? lm->shape.context : USUAL_CONTEXT;
}

kiln_type kiln__lm_usual_cache(const kiln_lm *lm)
{
    return lm->genai                                           ? kiln__lm_genai_cache(lm->genai)
           : lm->stored && !kiln__lm_is_block_type(lm->stored) ? lm->stored
                                                               : KILN_F32;
}

kiln_status kiln__lm_check_caches(const char *call, kiln_type type, size_t context)
{
    if (type && type != KILN_F32 && type != KILN_F16 && type != KILN_BF16)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "%s: options->cache is %s, and can be f32, f16 or bf16", call,
                             kiln_type_name(type));
    if (context > INT32_MAX / 2)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: options->context is %zu", call, context);
    return KILN_OK;
}

double kiln__lm_slot_bytes(const kiln_lm *lm, kiln_type type, size_t context)
{
    const struct kiln__lm_shape *shape = &lm->shape;
    return 2.0 * (double)shape->layers * (double)shape->pairs * (double)context *
           (double)shape->size * (double)kiln_type_size(type);
}

void kiln__lm_caches_get_dims(const kiln_lm *lm, const struct kiln__lm_caches *caches,
                              size_t dims[4])
{
    dims[lm->genai ? 1 : 0] = lm->shape.pairs;
    dims[lm->genai ? 0 : 1] = caches->slots;
    dims[2] = caches->context;
    dims[3] = lm->shape.size;
}

/* In double precision until they are stored. */
static kiln_status fill_angles(const char *call, const kiln_lm *lm, size_t context,
                               enum kiln__lm_reach reach, kiln_buffer *to[2])
{
    const struct kiln__lm_shape *shape = &lm->shape;
    const float *factors = lm->weights.factors;
    const size_t half = shape->turned / 2, bytes = half * sizeof(float);
    float *cosine = malloc(context * bytes), *sine = malloc(context * bytes);
    kiln_status status = cosine && sine ? KILN_OK : kiln__lm_no_memory(call);
    for (size_t i = 0; i < half && !status; i++) {
        const double frequency = shape->scale[reach] *
                                 pow(shape->base[reach], -2.0 * (double)i / (double)shape->turned) /
                                 (factors ? (double)factors[i] : 1);
        for (size_t place = 0; place < context; place++) {
            cosine[place * half + i] = (float)cos((double)place * frequency);
            sine[place * half + i] = (float)sin((double)place * frequency);
        }
    }
    if (!status)
        status = kiln_buffer_write(to[0], 0, cosine, context * bytes);
    if (!status)
        status = kiln_buffer_write(to[1], 0, sine, context * bytes);
    free(cosine);
    free(sine);
    return status;
}

kiln_status kiln__lm_angles_make(const char *call, const kiln_lm *lm, size_t context,
                                 enum kiln__lm_reach reach, kiln_buffer **cosine,
                                 kiln_buffer **sine)
{
    const size_t dims[] = {context, lm->shape.turned / 2};
    kiln_status status = kiln_buffer_create(lm->context, KILN_F32, 2, dims, cosine);
    if (!status)
        status = kiln_buffer_create(lm->context, KILN_F32, 2, dims, sine);
    return status ? status
                  : fill_angles(call, lm, context, reach, (kiln_buffer *[]){*cosine, *sine});
}

/* Of layers that see a window only where there are such. */
static kiln_status make_angles(const char *call, const kiln_lm *lm, struct kiln__lm_caches *caches)
{
    kiln_status status = KILN_OK;
    for (int reach = 0; reach < (lm->shape.window ? KILN__LM_REACHES : 1) && !status; reach++)
        status = kiln__lm_angles_make(call, lm, caches->context, (enum kiln__lm_reach)reach,
                                      &caches->cosine[reach], &caches->sine[reach]);
    return status;
}

/* Zeros: what lies behind the text takes part in products, with a weight of 0. `zeros` are those of
 * one slot. */
static kiln_status make_cache(const kiln_lm *lm, kiln_type type, const size_t *dims,
                              const void *zeros, kiln_buffer **cache)
{
    kiln_status status = kiln_buffer_create(lm->context, type, 4, dims, cache);
    const size_t bytes = status ? 0 : kiln_buffer_bytes(*cache) / dims[1];
    for (size_t slot = 0; slot < dims[1] && !status; slot++)
        status = kiln_buffer_write(*cache, slot * bytes, zeros, bytes);
    return status;
}

/* An ONNX file has its own type of caches, and often tables of as many positions as it knows. */
static kiln_status check_genai(const char *call, const kiln_lm *lm,
                               const struct kiln__lm_caches *caches)
{
    const kiln_type type = kiln__lm_genai_cache(lm->genai);
    if (caches->type != type)
        return kiln__lm_fail(KILN_UNSUPPORTED, "%s: options->cache is %s, and the model's is %s",
                             call, kiln_type_name(caches->type), kiln_type_name(type));
    return caches->context <= lm->shape.context
               ? KILN_OK
               : kiln__lm_fail(KILN_INVALID_ARGUMENT,
                               "%s: options->context is %zu tokens, and the model has %zu", call,
                               caches->context, lm->shape.context);
}

kiln_status kiln__lm_caches_make(const char *call, const kiln_lm *lm,
                                 struct kiln__lm_caches *caches)
{
    kiln_status fits = lm->genai ? check_genai(call, lm, caches) : KILN_OK;
    if (fits)
        return fits;
    const struct kiln__lm_shape *shape = &lm->shape;
    size_t dims[4];
    kiln__lm_caches_get_dims(lm, caches, dims);
    void *zeros = calloc(dims[0] * dims[2] * dims[3], kiln_type_size(caches->type));
    caches->keys = calloc(shape->layers, sizeof *caches->keys);
    caches->values = calloc(shape->layers, sizeof *caches->values);
    kiln_status status =
        zeros && caches->keys && caches->values ? KILN_OK : kiln__lm_no_memory(call);
    for (size_t i = 0; i < shape->layers && !status; i++) {
        status = make_cache(lm, caches->type, dims, zeros, &caches->keys[i]);
        if (!status)
            status = make_cache(lm, caches->type, dims, zeros, &caches->values[i]);
    }
    free(zeros);
    return status || lm->genai ? status : make_angles(call, lm, caches);
}

void kiln__lm_caches_free(const kiln_lm *lm, struct kiln__lm_caches *caches)
{
    for (size_t i = 0; i < lm->shape.layers; i++) {
        kiln_buffer_release(caches->keys ? caches->keys[i] : NULL);
        kiln_buffer_release(caches->values ? caches->values[i] : NULL);
    }
    free(caches->keys);
    free(caches->values);
    for (size_t i = 0; i < KILN__LM_REACHES; i++) {
        kiln_buffer_release(caches->cosine[i]);
        kiln_buffer_release(caches->sine[i]);
    }
}
