/* SPDX-License-Identifier: Apache-2.0 */
/* Types of blocks: elements to the bit as PyPI's gguf has them, in casts, products, gathers and
 * whatever else reads them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <kiln/attention.h>
#include <kiln/gradient.h>
#include <kiln/movement.h>
#include <kiln/product.h>

#include "../support/check.h"
#include "../support/gradient.h"
#include "ops/ops.h"

static const kiln_type types[] = {
#define TYPE(name, value, bytes, elements) KILN_##name,
    KILN_BLOCK_TYPE_MAP(TYPE)
#undef TYPE
};

/* ---- answers of gguf ---- */

struct known {
    kiln_type type;
    const char *from, *to; /* hexadecimal */
};

static const struct known known_blocks[] = {
#define KNOWN_BLOCK(type, block, values) {type, block, values},
#define KNOWN_QUANTIZED(type, floats, blocks)
#include "../known/blocks.def"
#undef KNOWN_BLOCK
#undef KNOWN_QUANTIZED
};

static const struct known known_quantized[] = {
#define KNOWN_BLOCK(type, block, values)
#define KNOWN_QUANTIZED(type, floats, blocks) {type, floats, blocks},
#include "../known/blocks.def"
#undef KNOWN_BLOCK
#undef KNOWN_QUANTIZED
};

static size_t parse(const char *digits, void *bytes)
{
    size_t count = 0;
    for (unsigned byte; sscanf(digits + 2 * count, "%2x", &byte) == 1; count++)
        ((uint8_t *)bytes)[count] = (uint8_t)byte;
    return count;
}

/* Floats of the same bits, or both NaN: a device gives any of these. */
static void expect_bits(const char *what, const float *found, const float *wanted, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (memcmp(&found[i], &wanted[i], sizeof *found) &&
            !(isnan(found[i]) && isnan(wanted[i]))) {
            cr_expect(false, "%s, element %zu: %a is not %a", what, i, (double)found[i],
                      (double)wanted[i]);
            return;
        }
}

/* The blocks as the device reads them. */
static void cast_blocks(kiln_type type, const void *blocks, size_t rows, size_t columns,
                        float *values)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_given(batch, type, DIMS(rows, columns), blocks);
    expect_ok(
        kiln_read(batch, kiln_cast(batch, x, KILN_F32), values, rows * columns * sizeof *values));
    run_batch(batch);
    check_end(batch);
}

Test(blocks, known_answers)
{
    check_cheaply();
    for (size_t i = 0; i < sizeof known_blocks / sizeof *known_blocks; i++) {
        const kiln_type type = known_blocks[i].type;
        const size_t count = kiln_type_block(type);
        uint8_t block[256];
        float wanted[KILN__MOST_BLOCK], host[KILN__MOST_BLOCK], device[KILN__MOST_BLOCK];
        cr_assert_eq(parse(known_blocks[i].from, block), kiln_type_size(type));
        cr_assert_eq(parse(known_blocks[i].to, wanted), count * sizeof *wanted);
        kiln__block_load(type, block, host);
        expect_bits(kiln_type_name(type), host, wanted, count);
        cast_blocks(type, block, 1, count, device);
        expect_bits(kiln_type_name(type), device, wanted, count);
    }
    check_close();
}

Test(blocks, quantized_known_answers)
{
    for (size_t i = 0; i < sizeof known_quantized / sizeof *known_quantized; i++) {
        const kiln_type type = known_quantized[i].type;
        float values[64];
        uint8_t wanted[68], found[68];
        cr_assert_eq(parse(known_quantized[i].from, values), sizeof values);
        const size_t bytes = parse(known_quantized[i].to, wanted);
        expect_ok(kiln_quantize_blocks(type, 64, values, found, bytes));
        for (size_t k = 0; k < bytes; k++)
            cr_expect_eq(found[k], wanted[k], "%s: byte %zu is %u, not %u", kiln_type_name(type), k,
                         found[k], wanted[k]);
    }
}

/* ---- an independent reading ---- */

static float half_of(const uint8_t *from)
{
    const int bits = from[0] | from[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                        : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                       : ldexp(fraction, -24);
    return (float)(bits >> 15 ? -size : size);
}

/* Four bytes, the lowest first. */
static float float_of(const uint8_t *from)
{
    const uint32_t bits = from[0] | from[1] << 8 | from[2] << 16 | (uint32_t)from[3] << 24;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* In GGUF's words: `qs` are the lower bits, `qh` further ones, of each of them in order. */
struct parts {
    int whole[KILN__MOST_BLOCK];
    float scale[KILN__MOST_BLOCK], low[KILN__MOST_BLOCK];
};

/* Of the types of 32: whether a minimum follows the scale, and how many bits are apart. */
static void read_small(const uint8_t *block, bool minimum, bool fifth, struct parts *parts)
{
    const uint8_t *qh = block + 2 + 2 * minimum, *qs = qh + 4 * fifth;
    for (int i = 0; i < 16; i++) {
        parts->whole[i] = qs[i] % 16;
        parts->whole[i + 16] = qs[i] / 16;
    }
    for (int i = 0; i < 32; i++) {
        parts->whole[i] += fifth && (qh[i / 8] & 1 << i % 8) ? 16 : 0;
        parts->whole[i] -= minimum ? 0 : fifth ? 16 : 8;
        parts->scale[i] = half_of(block);
        parts->low[i] = minimum ? half_of(block + 2) : 0;
    }
}

/* The scales of 6 bits as one number of 96. */
static int sixth(const uint8_t *packed, int j, bool minimum)
{
    const uint8_t *first = packed + 4 * minimum;
    if (j < 4)
        return first[j] % 64;
    return (minimum ? packed[j + 4] / 16 : packed[j + 4] % 16) + first[j - 4] / 64 * 16;
}

static void read_large(const uint8_t *block, bool fifth, struct parts *parts)
{
    const uint8_t *qh = block + 16, *qs = qh + 32 * fifth;
    int i = 0;
    for (int pair = 0; pair < 4; pair++)
        for (int upper = 0; upper < 2; upper++)
            for (int l = 0; l < 32; l++, i++) {
                const int j = 2 * pair + upper;
                parts->whole[i] = upper ? qs[32 * pair + l] / 16 : qs[32 * pair + l] % 16;
                parts->whole[i] += fifth && (qh[l] & 1 << j) ? 16 : 0;
                parts->scale[i] = half_of(block) * (float)sixth(block + 4, j, false);
                parts->low[i] = -(half_of(block + 2) * (float)sixth(block + 4, j, true));
            }
}

static void read_q6_k(const uint8_t *block, struct parts *parts)
{
    for (int n = 0; n < 2; n++) {
        const uint8_t *ql = block + 64 * n, *qh = block + 128 + 32 * n;
        for (int l = 0; l < 32; l++) {
            const int low[] = {ql[l] % 16, ql[l + 32] % 16, ql[l] / 16, ql[l + 32] / 16};
            for (int q = 0; q < 4; q++)
                parts->whole[128 * n + 32 * q + l] = low[q] + (qh[l] >> 2 * q) % 4 * 16 - 32;
        }
    }
    for (int i = 0; i < 256; i++)
        parts->scale[i] = half_of(block + 208) * (float)((const int8_t *)block)[192 + i / 16];
}

/* ONNX's: (whole - zero point) * scale. */
static void read_with_zero(kiln_type type, const uint8_t *block, float *values)
{
    for (int i = 0; i < 32; i++) {
        const int whole = type == KILN_Q8_Z ? block[8 + i]
                          : i < 16          ? block[8 + i] % 16
                                            : block[8 + i - 16] / 16;
        volatile float apart = (float)whole - float_of(block + 4);
        values[i] = apart * float_of(block);
    }
}

static void read_block(kiln_type type, const uint8_t *block, float *values)
{
    if (type == KILN_Q4_Z || type == KILN_Q8_Z) {
        read_with_zero(type, block, values);
        return;
    }
    static struct parts parts;
    const bool minimum =
        type == KILN_Q4_1 || type == KILN_Q5_1 || type == KILN_Q4_K || type == KILN_Q5_K;
    const bool fifth = type == KILN_Q5_0 || type == KILN_Q5_1 || type == KILN_Q5_K;
    if (type == KILN_Q6_K)
        read_q6_k(block, &parts);
    else if (kiln_type_block(type) == 256)
        read_large(block, fifth, &parts);
    else
        read_small(block, minimum, fifth, &parts);
    for (size_t i = 0; i < kiln_type_block(type); i++) {
        if (type == KILN_Q8_0) {
            parts.whole[i] = ((const int8_t *)block)[2 + i];
            parts.scale[i] = half_of(block);
        }
        volatile float scaled = parts.scale[i] * (float)parts.whole[i];
        values[i] = minimum ? scaled + parts.low[i] : scaled;
    }
}

/* ---- blocks to read ---- */

static size_t bytes_of(kiln_type type, size_t elements)
{
    return elements / kiln_type_block(type) * kiln_type_size(type);
}

/* Where the scales of a block are that are f16. */
static const struct {
    kiln_type type;
    size_t places[2];
} scales[] = {{KILN_Q8_0, {0, 0}}, {KILN_Q4_0, {0, 0}},    {KILN_Q4_1, {0, 2}},
              {KILN_Q5_0, {0, 0}}, {KILN_Q5_1, {0, 2}},    {KILN_Q4_K, {0, 2}},
              {KILN_Q5_K, {0, 2}}, {KILN_Q6_K, {208, 208}}};

static void set_scales(kiln_type type, uint8_t *block, uint16_t bits)
{
    if (type == KILN_Q4_Z || type == KILN_Q8_Z) {
        const float wide[] = {half_of((const uint8_t *)&bits) * 1.0001F, (float)(bits % 31) / 2};
        memcpy(block, wide, sizeof wide);
    }
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (size_t k = 0; scales[i].type == type && k < 2; k++)
            memcpy(block + scales[i].places[k], &bits, sizeof bits);
}

/* Random blocks, with numbers of about 1; or, `special`, scales of all kinds. */
static void fill_blocks(kiln_type type, uint8_t *blocks, size_t count, bool special)
{
    static const uint16_t kinds[] = {0x7c00, 0xfc00, 0x7e00, 0x7bff, 0x0001, 0x83ff, 0, 0x8000};
    for (size_t i = 0; i < count; i++) {
        uint8_t *block = blocks + i * kiln_type_size(type);
        for (size_t k = 0; k < kiln_type_size(type); k++)
            block[k] = (uint8_t)check_random(256);
        set_scales(type, block,
                   special && check_random(2)
                       ? kinds[check_random(sizeof kinds / sizeof *kinds)]
                       : (uint16_t)(check_random(2) << 15 | (0x1800 + check_random(0x1000))));
    }
}

static kiln_tensor blocks_of(kiln_batch *batch, kiln_type type, size_t rank, const size_t *dims)
{
    size_t count = 1;
    for (size_t d = 0; d < rank; d++)
        count *= dims[d];
    uint8_t *blocks = malloc(bytes_of(type, count) + 1);
    fill_blocks(type, blocks, count / kiln_type_block(type), false);
    kiln_tensor made = check_given(batch, type, rank, dims, blocks);
    free(blocks);
    return made;
}

/* Every block of many, with every scale. */
Test(blocks, casts)
{
    enum { ROWS = 7, BLOCKS = 5 };
    check_cheaply();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const kiln_type type = types[i];
        const size_t columns = BLOCKS * kiln_type_block(type), count = ROWS * columns;
        uint8_t *blocks = malloc(bytes_of(type, count));
        float *wanted = malloc(count * sizeof *wanted), *found = malloc(count * sizeof *found);
        fill_blocks(type, blocks, ROWS * BLOCKS, true);
        for (size_t k = 0; k < ROWS * BLOCKS; k++)
            read_block(type, blocks + k * kiln_type_size(type), wanted + k * kiln_type_block(type));
        cast_blocks(type, blocks, ROWS, columns, found);
        expect_bits(kiln_type_name(type), found, wanted, count);
        for (size_t k = 0; k < ROWS * BLOCKS; k++)
            kiln__block_load(type, blocks + k * kiln_type_size(type),
                             found + k * kiln_type_block(type));
        expect_bits(kiln_type_name(type), found, wanted, count);
        free(blocks);
        free(wanted);
        free(found);
    }
    check_close();
}

/* ---- products ---- */

static kiln_tensor product(kiln_batch *batch, kiln_type type, size_t rows, size_t blocks,
                           size_t columns)
{
    const size_t depth = blocks * kiln_type_block(type);
    kiln_tensor x = check_plain(batch, DIMS(rows, depth));
    kiln_tensor w = blocks_of(batch, type, DIMS(columns, depth));
    return kiln_matmul_transposed(batch, x, 0, w, 1);
}

Test(blocks, products)
{
    static const size_t sizes[][3] = {{1, 1, 1}, {1, 3, 31}, {3, 2, 67}, {13, 1, 17}, {37, 3, 101}};
    check_cheaply();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
            kiln_batch *batch = check_begin();
            check_tensor(batch, product(batch, types[i], sizes[k][0], sizes[k][1], sizes[k][2]));
        }
    check_close();
}

/* Few rows on either side, several matrices, a chain on the way to the operand and after the sums.
 */
Test(blocks, products_of_all_forms)
{
    const kiln_type type = KILN_Q5_1;
    check_cheaply();
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_plain(batch, DIMS(3, 5, 64)), w = blocks_of(batch, type, DIMS(33, 64));
    kiln_tensor many = blocks_of(batch, type, DIMS(3, 32, 64));
    kiln_tensor down = check_plain(batch, DIMS(33, 4)), bias = check_plain(batch, DIMS(33));
    check_read(batch, kiln_matmul_transposed(batch, x, 0, w, 1));
    check_read(batch, kiln_matmul_transposed(batch, x, 0, many, 1));
    check_read(batch, kiln_matmul_transposed(batch, w, 0, x, 1));
    check_read(batch, kiln_matmul_transposed(batch, w, 1, down, 0));
    check_read(batch, kiln_matmul_transposed(batch, w, 0, w, 1));
    check_read(batch, kiln_matmul_transposed(batch, x, 0, kiln_scale(batch, w, 0.5), 1));
    check_read(batch,
               kiln_gelu(batch, kiln_add(batch, kiln_matmul_transposed(batch, x, 0, w, 1), bias)));
    check_run(batch);
    check_end(batch);
    check_close();
}

/* One of each way in which blocks become weights. */
static const kiln_type company[] = {KILN_Q4_1, KILN_Q5_1, KILN_Q6_K, KILN_Q4_Z};
enum { WEIGHTS = 37 };

/* What the first of `lines` lines makes with blocks, batch-invariantly. `along`: lines are
 * contiguous; `turned`: the blocks are the first operand. */
static void multiply_lines(kiln_type type, const uint8_t *blocks, size_t lines, bool along,
                           bool turned, float *y)
{
    const size_t depth = 2 * kiln_type_block(type);
    float *x = malloc(lines * depth * sizeof *x), *all = malloc(lines * WEIGHTS * sizeof *all);
    for (size_t i = 0; i < lines * depth; i++) /* the first line is always the same */
        x[along ? i : i % depth * lines + i / depth] =
            (float)(i * 37 % 101 + i / depth * 7) / 64 - 0.8F;
    kiln_batch *batch = check_begin();
    expect_ok(kiln_batch_set_batch_invariant(batch));
    kiln_tensor w = kiln_upload(batch, type, DIMS(WEIGHTS, depth), blocks);
    kiln_tensor few = along ? kiln_upload(batch, KILN_F32, DIMS(lines, depth), x)
                            : kiln_upload(batch, KILN_F32, DIMS(depth, lines), x);
    kiln_tensor product = turned ? kiln_matmul_transposed(batch, w, 0, few, along)
                                 : kiln_matmul_transposed(batch, few, !along, w, 1);
    expect_ok(kiln_read(batch, product, all, lines * WEIGHTS * sizeof *all));
    expect_ok(kiln_batch_execute(batch));
    for (size_t i = 0; i < WEIGHTS; i++)
        y[i] = all[turned ? i * lines : i];
    check_end(batch);
    free(x);
    free(all);
}

Test(blocks, slow_products_of_a_line_are_the_same_in_company)
{
    static const size_t lines[] = {1, 3, 8, 9};
    for (size_t i = 0; i < sizeof company / sizeof *company; i++) {
        float wanted[WEIGHTS], found[WEIGHTS];
        uint8_t *blocks = malloc(2 * WEIGHTS * kiln_type_size(company[i]));
        fill_blocks(company[i], blocks, 2 * WEIGHTS, false);
        multiply_lines(company[i], blocks, 5, true, false, wanted);
        for (size_t k = 0; k < 4 * sizeof lines / sizeof *lines; k++) {
            multiply_lines(company[i], blocks, lines[k / 4], k % 2, k / 2 % 2, found);
            expect_bits(kiln_type_name(company[i]), found, wanted, WEIGHTS);
        }
        free(blocks);
    }
    check_close();
}

/* Lines that are no neighbours along the sum, matrices apart, and what follows. */
Test(blocks, slow_products_of_all_forms_in_company)
{
    check_cheaply();
    for (size_t i = 0; i < sizeof company / sizeof *company; i++) {
        const size_t depth = 2 * kiln_type_block(company[i]);
        kiln_batch *batch = check_begin();
        expect_ok(kiln_batch_set_batch_invariant(batch));
        kiln_tensor x = check_plain(batch, DIMS(3, 11, depth));
        kiln_tensor turned = check_plain(batch, DIMS(depth, 19)),
                    bias = check_plain(batch, DIMS(33));
        kiln_tensor w = blocks_of(batch, company[i], DIMS(33, depth));
        kiln_tensor many = blocks_of(batch, company[i], DIMS(3, 31, depth));
        check_read(batch, kiln_matmul_transposed(batch, x, 0, w, 1));
        check_read(batch, kiln_matmul_transposed(batch, x, 0, many, 1));
        check_read(batch, kiln_matmul_transposed(batch, many, 0, x, 1));
        check_read(batch, kiln_matmul_transposed(batch, turned, 1, w, 1));
        check_read(batch, kiln_matmul_transposed(batch, w, 0, turned, 0));
        check_read(
            batch,
            kiln_gelu(
                batch,
                kiln_add(batch, kiln_matmul_transposed(batch, kiln_sin(batch, x), 0, w, 1), bias)));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* ---- whatever else reads them ---- */

Test(blocks, gathers)
{
    static const int32_t numbers[] = {4, 0, -1, 6, 7, 2};
    check_cheaply();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor w = blocks_of(batch, types[i], DIMS(7, 256));
        kiln_tensor at = check_given(batch, KILN_I32, DIMS(6), numbers);
        check_read(batch, kiln_gather(batch, w, at, 0));
        if (types[i] == KILN_Q4_1)
            check_read(batch, kiln_gather(batch, w, at, 1));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

/* Movements that cut blocks, and what puts parts together. */
Test(blocks, movements)
{
    check_cheaply();
    kiln_batch *batch = check_begin();
    kiln_tensor w = blocks_of(batch, KILN_Q4_1, DIMS(6, 96)), x = check_plain(batch, DIMS(6, 96));
    kiln_tensor parts[] = {w, w};
    check_read(batch, kiln_transpose(batch, w, NULL));
    check_read(batch, kiln_reshape(batch, w, DIMS(9, 64)));
    check_read(batch, kiln_reshape(batch, kiln_transpose(batch, w, NULL), DIMS(64, 9)));
    check_read(batch, kiln_slice(batch, w, (int64_t[]){1, 5}, (int64_t[]){6, 94}, NULL));
    check_read(batch, kiln_concat(batch, 2, parts, 1));
    check_read(batch, kiln_broadcast(batch, w, DIMS(2, 6, 96)));
    check_read(batch, kiln_matmul_transposed(
                          batch, kiln_slice(batch, x, (int64_t[]){0, 3}, (int64_t[]){6, 90}, NULL),
                          0, kiln_slice(batch, w, (int64_t[]){2, 3}, (int64_t[]){5, 90}, NULL), 1));
    check_run(batch);
    check_end(batch);
    check_close();
}

Test(blocks, operations)
{
    check_cheaply();
    kiln_batch *batch = check_begin();
    kiln_tensor w = blocks_of(batch, KILN_Q8_0, DIMS(8, 64)), x = check_plain(batch, DIMS(8, 64));
    kiln_tensor q = check_plain(batch, DIMS(1, 8, 64));
    kiln_tensor k = blocks_of(batch, KILN_Q8_0, DIMS(1, 8, 64));
    check_read(batch, kiln_add(batch, w, x));
    check_read(batch, kiln_mul(batch, w, w));
    check_read(batch, kiln_sum(batch, w, 1, (int[]){1}, 0));
    check_read(batch, kiln_softmax(batch, w, 1, (int[]){1}));
    check_read(batch, kiln_cumsum(batch, w, 1, 0));
    check_read(batch, kiln_argsort(batch, w, 1, 0));
    check_read(batch, kiln_attention(batch, q, k, k, (kiln_tensor){0}, NULL));
    check_read(batch, kiln_cast(batch, w, KILN_F16));
    check_run(batch);
    check_end(batch);
    check_close();
}

/* Bytes that go in come out, through an upload, a buffer and a batch. */
/* Where uploads lie in the arena, one behind the other. */
Test(blocks, slow_memory_of_the_device)
{
    setenv("KILN_HOST_MEMORY", "separate", 1);
    check_cheaply();
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        kiln_batch *batch = check_begin();
        kiln_tensor a = blocks_of(batch, types[i], DIMS(3, 256));
        kiln_tensor b = blocks_of(batch, types[i], DIMS(5, 512));
        kiln_tensor c = blocks_of(batch, types[i], DIMS(3, 256));
        kiln_tensor x = check_plain(batch, DIMS(2, 256));
        check_read(batch, kiln_add(batch, a, c));
        check_read(batch, kiln_neg(batch, b));
        check_read(batch, kiln_matmul_transposed(batch, x, 0, c, 1));
        check_read(batch,
                   kiln_matmul_transposed(
                       batch, x, 0,
                       kiln_slice(batch, b, (int64_t[]){1, 256}, (int64_t[]){5, 512}, NULL), 1));
        check_run(batch);
        check_end(batch);
    }
    check_close();
}

Test(blocks, bytes)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const kiln_type type = types[i];
        const size_t columns = 2 * kiln_type_block(type), bytes = bytes_of(type, 3 * columns);
        uint8_t *blocks = malloc(bytes), *found = malloc(bytes);
        fill_blocks(type, blocks, 6, false);
        kiln_buffer *buffer, *other;
        expect_ok(kiln_buffer_create(check_context(), type, DIMS(3, columns), &buffer));
        expect_ok(kiln_buffer_create(check_context(), type, DIMS(3, columns), &other));
        cr_expect_eq(kiln_buffer_bytes(buffer), bytes);
        expect_ok(kiln_buffer_write(buffer, 0, blocks, bytes));
        kiln_batch *batch = check_begin();
        kiln_tensor x = kiln_import(batch, buffer);
        expect_ok(kiln_export(batch, x, other));
        expect_ok(
            kiln_read(batch, kiln_upload(batch, type, DIMS(3, columns), blocks), found, bytes));
        run_batch(batch);
        cr_expect_arr_eq(found, blocks, bytes);
        memset(found, 0, bytes);
        expect_ok(kiln_buffer_read(other, 0, found, bytes));
        cr_expect_arr_eq(found, blocks, bytes);
        check_end(batch);
        kiln_buffer_release(buffer);
        kiln_buffer_release(other);
        free(blocks);
        free(found);
    }
    check_close();
}

/* By what they are multiplied with; they are constants themselves. */
Test(blocks, gradients)
{
    check_cheaply();
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_plain(batch, DIMS(3, 64)), gradient;
    kiln_tensor w = blocks_of(batch, KILN_Q4_0, DIMS(5, 64));
    kiln_tensor y = kiln_matmul_transposed(batch, x, 0, w, 1);
    check_gradient(batch, y, 1, &x, GRADIENT_TOLERANCE, &gradient);
    check_read(batch, gradient);
    check_run(batch);
    check_end(batch);
    batch = check_begin();
    w = blocks_of(batch, KILN_Q4_0, DIMS(5, 64));
    y = kiln_sum(batch, kiln_cast(batch, w, KILN_F32), 0, NULL, 0);
    kiln_grad(batch, y, &w, 1, &gradient);
    check_refusal(batch, KILN_TYPE_MISMATCH,
                  "kiln_grad: inputs[0] is q4_0, and blocks have no gradient");
    check_close();
}

/* ---- what is refused ---- */

Test(blocks, refusals)
{
    uint8_t blocks[256] = {0};
    CHECK_REFUSED(
        kiln_upload(b, KILN_Q4_0, DIMS(32, 3), blocks), KILN_SHAPE_MISMATCH,
        "shape [32,3] has rows of a part of a block, and blocks of q4_0 have 32 elements");
    CHECK_REFUSED(kiln_upload(b, KILN_Q6_K, DIMS(32), blocks), KILN_SHAPE_MISMATCH,
                  "blocks of q6_k have 256 elements");
    CHECK_REFUSED(kiln_upload(b, KILN_Q8_0, SCALAR, blocks), KILN_SHAPE_MISMATCH, "shape []");
    CHECK_REFUSED(kiln_cast(b, kiln_constant(b, KILN_F32, 1), KILN_Q8_0), KILN_TYPE_MISMATCH,
                  "q8_0 is a type of blocks, of which there are uploads and buffers alone");
    CHECK_REFUSED(kiln_constant(b, KILN_Q4_K, 1), KILN_TYPE_MISMATCH, "q4_k is a type of blocks");
    CHECK_REFUSED(kiln_fill(b, KILN_Q4_K, DIMS(256), 1), KILN_TYPE_MISMATCH, "q4_k");
    CHECK_REFUSED(kiln_arange(b, KILN_Q8_0, 0, 32, 1), KILN_TYPE_MISMATCH, "q8_0");
    kiln_buffer *buffer;
    cr_expect_eq(kiln_buffer_create(check_context(), KILN_Q5_0, DIMS(33), &buffer),
                 KILN_SHAPE_MISMATCH);
    cr_expect_str_eq(kiln_last_error(), "kiln_buffer_create: shape [33] has rows of a part of a "
                                        "block, and blocks of q5_0 have 32 elements");
    check_close();
}

static void expect_unquantized(kiln_type type, const float *values, size_t count, size_t bytes,
                               const char *sentence)
{
    uint8_t blocks[68];
    cr_expect_eq(kiln_quantize_blocks(type, count, values, blocks, bytes), KILN_INVALID_ARGUMENT);
    cr_expect_str_eq(kiln_last_error(), sentence);
}

Test(blocks, quantizing_is_refused)
{
    float values[64] = {0};
    expect_unquantized(KILN_Q4_1, values, 32, 20,
                       "kiln_quantize_blocks: q4_1 is neither q8_0 nor q4_0");
    expect_unquantized((kiln_type)99, values, 32, 20,
                       "kiln_quantize_blocks: unknown is neither q8_0 nor q4_0");
    expect_unquantized(KILN_Q8_0, values, 33, 34,
                       "kiln_quantize_blocks: 33 elements are no whole blocks of 32");
    expect_unquantized(KILN_Q8_0, values, 64, 34,
                       "kiln_quantize_blocks: the blocks take 68 bytes, and room for 34 was given");
    expect_unquantized(KILN_Q8_0, NULL, 32, 34, "kiln_quantize_blocks: values is NULL");
    values[40] = NAN;
    expect_unquantized(KILN_Q8_0, values, 64, 68, "kiln_quantize_blocks: element 40 is not finite");
    values[40] = 127 * 65520.0f;
    expect_unquantized(KILN_Q8_0, values, 64, 68,
                       "kiln_quantize_blocks: the scale of the block at element 32 is beyond f16");
}

/* Zeros, and what is too small to be divided by. */
Test(blocks, quantized_zeros)
{
    float values[32] = {0};
    uint8_t blocks[34];
    const uint8_t zeros[34] = {0};
    expect_ok(kiln_quantize_blocks(KILN_Q8_0, 32, values, blocks, 34));
    cr_expect_arr_eq(blocks, zeros, 34);
    values[7] = 0x1p-149f;
    expect_ok(kiln_quantize_blocks(KILN_Q8_0, 32, values, blocks, 34));
    cr_expect_arr_eq(blocks, zeros, 34);
    expect_ok(kiln_quantize_blocks(KILN_Q4_0, 0, NULL, NULL, 0));
}
