/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of quantised numbers on the host, to the bit as PyPI's gguf has them: what is loaded of
 * each type, and what floats become. */
#include <kiln/product.h>

#include <math.h>
#include <string.h>

#include "ops/ops.h"
#include "util/error.h"

/* A product is rounded before anything is added to it: no compiler may make one instruction of
 * both.
 */
static float times(float a, float b)
{
    return (float)((double)a * (double)b);
}

/* ---- what is loaded ---- */

static float half_at(const uint8_t *from)
{
    return (float)kiln__type_load(KILN_F16, from);
}

/* Nibble i of 16 bytes: first the lower ones of all. */
static int nibble(const uint8_t *bytes, unsigned i)
{
    return bytes[i % 16] >> (i / 16 * 4) & 15;
}

static int bit(const uint8_t *bytes, unsigned i)
{
    return bytes[i / 8] >> i % 8 & 1;
}

static void load_q8_0(const uint8_t *block, float *values)
{
    const float scale = half_at(block);
    for (unsigned i = 0; i < 32; i++)
        values[i] = times(scale, (float)(int8_t)block[2 + i]);
}

static void load_q4_0(const uint8_t *block, float *values)
{
    const float scale = half_at(block);
    for (unsigned i = 0; i < 32; i++)
        values[i] = times(scale, (float)(nibble(block + 2, i) - 8));
}

static void load_q4_1(const uint8_t *block, float *values)
{
    const float scale = half_at(block), low = half_at(block + 2);
    for (unsigned i = 0; i < 32; i++)
        values[i] = times(scale, (float)nibble(block + 4, i)) + low;
}

static float float_at(const uint8_t *from)
{
    return (float)kiln__type_load(KILN_F32, from);
}

static void load_q4_z(const uint8_t *block, float *values)
{
    const float scale = float_at(block), zero = float_at(block + 4);
    for (unsigned i = 0; i < 32; i++)
        values[i] = times(scale, (float)nibble(block + 8, i) - zero);
}

static void load_q8_z(const uint8_t *block, float *values)
{
    const float scale = float_at(block), zero = float_at(block + 4);
    for (unsigned i = 0; i < 32; i++)
        values[i] = times(scale, (float)block[8 + i] - zero);
}

static void load_q5_0(const uint8_t *block, float *values)
{
    const float scale = half_at(block);
    for (unsigned i = 0; i < 32; i++)
        values[i] = times(scale, (float)((nibble(block + 6, i) | bit(block + 2, i) << 4) - 16));
}

static void load_q5_1(const uint8_t *block, float *values)
{
    const float scale = half_at(block), low = half_at(block + 2);
    for (unsigned i = 0; i < 32; i++)
        values[i] = times(scale, (float)(nibble(block + 8, i) | bit(block + 4, i) << 4)) + low;
}

/* Of part j of 8 the integers, of 6 bits each, that its scale and what it starts below 0 are made
 * with: of the first four parts in 4 bytes each; of the others the lower bits in 4 more, and the
 * upper ones in those of the first. */
static void unpack_part(const uint8_t *packed, unsigned j, int *scale, int *below)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *below = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
        *below = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
    }
}

/* Both types of eight parts; `fifth` is NULL or has a bit more of each. */
static void load_parts(const uint8_t *block, const uint8_t *fifth, const uint8_t *nibbles,
                       float *values)
{
    for (unsigned i = 0; i < 256; i++) {
        const unsigned j = i / 32;
        int scale, below, whole = nibbles[i / 64 * 32 + i % 32] >> j % 2 * 4 & 15;
        unpack_part(block + 4, j, &scale, &below);
        whole |= fifth ? (fifth[i % 32] >> j & 1) << 4 : 0;
        const float step = times(half_at(block), (float)scale);
        const float low = times(half_at(block + 2), (float)below);
        values[i] = times(step, (float)whole) - low;
    }
}

static void load_q4_k(const uint8_t *block, float *values)
{
    load_parts(block, NULL, block + 16, values);
}

static void load_q5_k(const uint8_t *block, float *values)
{
    load_parts(block, block + 16, block + 48, values);
}

static void load_q6_k(const uint8_t *block, float *values)
{
    const float scale = half_at(block + 208);
    for (unsigned i = 0; i < 256; i++) {
        const int low = block[i / 128 * 64 + i % 64] >> i / 64 % 2 * 4 & 15;
        const int high = block[128 + i / 128 * 32 + i % 32] >> i / 32 % 4 * 2 & 3;
        const float step = times(scale, (float)(int8_t)block[192 + i / 16]);
        values[i] = times(step, (float)((low | high << 4) - 32));
    }
}

static void (*const loads[])(const uint8_t *block, float *values) = {
    [KILN_Q8_0] = load_q8_0, [KILN_Q4_0] = load_q4_0, [KILN_Q4_1] = load_q4_1,
    [KILN_Q5_0] = load_q5_0, [KILN_Q5_1] = load_q5_1, [KILN_Q4_K] = load_q4_k,
    [KILN_Q5_K] = load_q5_k, [KILN_Q6_K] = load_q6_k, [KILN_Q4_Z] = load_q4_z,
    [KILN_Q8_Z] = load_q8_z,
};

#define ROW(name, value, bytes, elements)                                                          \
    _Static_assert(KILN_##name < sizeof loads / sizeof *loads, "a row for each type");             \
    _Static_assert((elements) <= KILN__MOST_BLOCK, "room for each");
KILN_BLOCK_TYPE_MAP(ROW)
#undef ROW

void kiln__block_load(kiln_type type, const void *block, float *values)
{
    loads[type](block, values);
}

/* ---- what floats become ---- */

/* 1 / scale, or 0 where there is nothing to divide by. */
static float inverse_of(float scale)
{
    const float inverse = scale == 0 ? 0 : 1 / scale;
    return isfinite(inverse) ? inverse : 0;
}

/* The element farthest from 0, the first of several. */
static float largest_of(const float *values)
{
    float largest = values[0];
    for (unsigned i = 1; i < 32; i++)
        largest = fabsf(values[i]) > fabsf(largest) ? values[i] : largest;
    return largest;
}

static void make_q8_0(const float *values, float scale, uint8_t *block)
{
    const float inverse = inverse_of(scale);
    for (unsigned i = 0; i < 32; i++)
        block[2 + i] = (uint8_t)(int8_t)roundf(times(values[i], inverse));
}

static void make_q4_0(const float *values, float scale, uint8_t *block)
{
    const float inverse = inverse_of(scale);
    memset(block + 2, 0, 16);
    for (unsigned i = 0; i < 32; i++) {
        const int whole = (int)(times(values[i], inverse) + 8.5f);
        block[2 + i % 16] |= (uint8_t)((whole > 15 ? 15 : whole) << i / 16 * 4);
    }
}

static float scale_of_q8_0(float largest)
{
    return fabsf(largest) / 127;
}

static float scale_of_q4_0(float largest)
{
    return largest / -8;
}

static const struct {
    float (*scale)(float largest);
    void (*make)(const float *values, float scale, uint8_t *block);
} makes[] = {[KILN_Q8_0] = {scale_of_q8_0, make_q8_0}, [KILN_Q4_0] = {scale_of_q4_0, make_q4_0}};

static const char call[] = "kiln_quantize_blocks";

static kiln_status check_values(const float *values, size_t from, float scale)
{
    for (size_t i = 0; i < 32; i++)
        if (!isfinite(values[i]))
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: element %zu is not finite", call,
                              from + i);
    if (fabsf(scale) >= kiln__type_overflow(KILN_F16))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: the scale of the block at element %zu is beyond f16", call, from);
    return KILN_OK;
}

static kiln_status check_arguments(kiln_type type, size_t count, const float *values,
                                   const void *blocks, size_t bytes)
{
    if ((size_t)type >= sizeof makes / sizeof *makes || !makes[type].make)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is neither q8_0 nor q4_0", call,
                          kiln_type_name(type));
    if (count % kiln_type_block(type))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: %zu elements are no whole blocks of %zu", call, count,
                          kiln_type_block(type));
    if (bytes != kiln__type_bytes(type, count))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                          "%s: the blocks take %zu bytes, and room for %zu was given", call,
                          kiln__type_bytes(type, count), bytes);
    if (count && (!values || !blocks))
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                          values ? "blocks" : "values");
    return KILN_OK;
}

kiln_status kiln_quantize_blocks(kiln_type type, size_t count, const float *values, void *blocks,
                                 size_t bytes)
{
    uint8_t *block = blocks;
    kiln_status status = check_arguments(type, count, values, blocks, bytes);
    for (size_t i = 0; i < count && !status; i += 32, block += kiln_type_size(type)) {
        const float scale = makes[type].scale(largest_of(values + i));
        status = check_values(values + i, i, scale);
        if (status)
            break;
        kiln__type_store(KILN_F16, (double)scale, block);
        makes[type].make(values + i, scale, block);
    }
    return status;
}
