/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of quantised weights to f32, to the bit as PyPI's `gguf` does it (the file is compiled
 * without contraction: a product and a sum round twice), and f32 to narrower types. */
#include "lm/blocks.h"

#include <string.h>

static uint16_t word16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t word32(const uint8_t *at)
{
    return (uint32_t)word16(at) | (uint32_t)word16(at + 2) << 16;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float half(const uint8_t *at)
{
    const uint32_t bits = word16(at), sign = (bits & 0x8000) << 16, rest = bits & 0x7fff;
    if (rest >= 0x7c00)
        return from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest >= 0x400)
        return from_bits(sign | ((rest << 13) + ((127 - 15) << 23)));
    float small = (float)rest * 0x1p-24f;
    return sign ? -small : small;
}

/* ---- numbers ---- */

static void widen_f32(const uint8_t *block, float *weights)
{
    *weights = from_bits(word32(block));
}

static void widen_f16(const uint8_t *block, float *weights)
{
    *weights = half(block);
}

static void widen_bf16(const uint8_t *block, float *weights)
{
    *weights = from_bits((uint32_t)word16(block) << 16);
}

/* ---- blocks of 32 ---- */

static void widen_q8_0(const uint8_t *block, float *weights)
{
    const float d = half(block);
    for (int i = 0; i < 32; i++)
        weights[i] = d * (float)(int8_t)block[2 + i];
}

/* Weight i of 16 bytes whose low halves come first. */
static int nibble(const uint8_t *bytes, int i)
{
    return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4;
}

static void widen_q4_0(const uint8_t *block, float *weights)
{
    const float d = half(block);
    for (int i = 0; i < 32; i++)
        weights[i] = d * (float)(nibble(block + 2, i) - 8);
}

static void widen_q4_1(const uint8_t *block, float *weights)
{
    const float d = half(block), m = half(block + 2);
    for (int i = 0; i < 32; i++)
        weights[i] = d * (float)nibble(block + 4, i) + m;
}

static int fifth_bit(uint32_t bits, int i)
{
    return (int)(bits >> i & 1) << 4;
}

static void widen_q5_0(const uint8_t *block, float *weights)
{
    const float d = half(block);
    const uint32_t fifth = word32(block + 2);
    for (int i = 0; i < 32; i++)
        weights[i] = d * (float)((nibble(block + 6, i) | fifth_bit(fifth, i)) - 16);
}

static void widen_q5_1(const uint8_t *block, float *weights)
{
    const float d = half(block), m = half(block + 2);
    const uint32_t fifth = word32(block + 4);
    for (int i = 0; i < 32; i++)
        weights[i] = d * (float)(nibble(block + 8, i) | fifth_bit(fifth, i)) + m;
}

/* ---- blocks of 256 ---- */

/* Scale and minimum of sub-block i, 6 bits each, of 12 bytes. */
static void six_bits(const uint8_t *b, int i, int *scale, int *minimum)
{
    if (i < 4) {
        *scale = b[i] & 63;
        *minimum = b[i + 4] & 63;
    } else {
        *scale = (b[i + 4] & 15) | (b[i - 4] >> 6) << 4;
        *minimum = b[i + 4] >> 4 | (b[i] >> 6) << 4;
    }
}

/* Eight sub-blocks of 32; 32 bytes hold two of them. `fifth` may be NULL: a byte for each place of
 * a sub-block, a bit for each sub-block. */
static void widen_sub_blocks(const uint8_t *block, const uint8_t *fifth, const uint8_t *nibbles,
                             float *weights)
{
    const float d = half(block), dmin = half(block + 2);
    for (int sub = 0; sub < 8; sub++) {
        int scale, minimum;
        six_bits(block + 4, sub, &scale, &minimum);
        const float factor = d * (float)scale, offset = dmin * (float)minimum;
        for (int i = 0; i < 32; i++) {
            int q = nibbles[sub / 2 * 32 + i] >> sub % 2 * 4 & 15;
            if (fifth)
                q |= (fifth[i] >> sub & 1) << 4;
            weights[sub * 32 + i] = factor * (float)q - offset;
        }
    }
}

static void widen_q4_k(const uint8_t *block, float *weights)
{
    widen_sub_blocks(block, NULL, block + 16, weights);
}

static void widen_q5_k(const uint8_t *block, float *weights)
{
    widen_sub_blocks(block, block + 16, block + 48, weights);
}

static void widen_q6_k(const uint8_t *block, float *weights)
{
    const uint8_t *low = block, *high = block + 128;
    const float d = half(block + 208);
    for (int i = 0; i < 256; i++) {
        const int side = i / 128, part = i % 128 / 32, place = i % 32;
        int q = low[side * 64 + part % 2 * 32 + place] >> part / 2 * 4 & 15;
        q |= (high[side * 32 + place] >> 2 * part & 3) << 4;
        const float scale = d * (float)(int8_t)block[192 + i / 16];
        weights[i] = scale * (float)(q - 32);
    }
}

static const struct kiln__block_format formats[] = {
    {"F32", 0, 1, 4, widen_f32},        {"F16", 1, 1, 2, widen_f16},
    {"BF16", 30, 1, 2, widen_bf16},     {"Q8_0", 8, 32, 34, widen_q8_0},
    {"Q4_0", 2, 32, 18, widen_q4_0},    {"Q4_1", 3, 32, 20, widen_q4_1},
    {"Q5_0", 6, 32, 22, widen_q5_0},    {"Q5_1", 7, 32, 24, widen_q5_1},
    {"Q4_K", 12, 256, 144, widen_q4_k}, {"Q5_K", 13, 256, 176, widen_q5_k},
    {"Q6_K", 14, 256, 210, widen_q6_k},
};

const struct kiln__block_format *kiln__block_format_at(size_t i)
{
    return i < sizeof formats / sizeof *formats ? &formats[i] : NULL;
}

const struct kiln__block_format *kiln__block_format(uint32_t number)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i].number == number)
            return &formats[i];
    return NULL;
}

/* ---- narrower types ---- */

static uint16_t to_bf16(float value)
{
    const uint32_t bits = to_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_f16(float value)
{
    const uint32_t bits = to_bits(value), rest = bits & 0x7fffffff;
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    if (rest > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (rest >= 0x477ff000) /* rounds to 65536 or more */
        return (uint16_t)(sign | 0x7c00);
    if (rest < 0x38800000) /* below 2^-14: adding a half of the last place's 2^24 rounds it */
        return (uint16_t)(sign | (to_bits(from_bits(rest) + 0.5f) - 0x3f000000));
    return (uint16_t)(sign | (rest + 0xfff + (rest >> 13 & 1) - ((127 - 15) << 23)) >> 13);
}

void kiln__lm_store(const float *from, size_t count, kiln_type type, void *to)
{
    uint16_t *narrow = to;
    if (type == KILN_F32)
        memcpy(to, from, count * sizeof *from);
    else
        for (size_t i = 0; i < count; i++)
            narrow[i] = type == KILN_F16 ? to_f16(from[i]) : to_bf16(from[i]);
}
