/* SPDX-License-Identifier: Apache-2.0 */
/* Attention's windows beside float64, where the option of kiln's call says them, and where a mask
 * does. `make check-onnx` has a few more. */
#include <criterion/criterion.h>
#include <math.h>

#include <kiln/kiln.h>

#include "support/context.h"
#include "tests/onnx/models.h"

TestSuite(onnx_attention, .init = begin_models, .fini = end_models);

enum { HEADS = 2, ROWS = 4, SIZE = 8, KEYS = 11, NONE = -1 };

/* Rows stand `offset` keys behind the first; of KEYS so many are there. */
struct window {
    int64_t left, right, causal;
    int64_t offset, there;
};

static bool sees(const struct window *w, int64_t row, int64_t key)
{
    const int64_t ahead = key - row - w->offset;
    return key < w->there && (!w->causal || ahead <= 0) && (w->left < 0 || -ahead <= w->left) &&
           (w->right < 0 || ahead <= w->right);
}

static void attend(const struct window *w, size_t row, const float *q, const float *k,
                   const float *v, double *result)
{
    double total = 0;
    for (size_t c = 0; c < SIZE; c++)
        result[c] = 0;
    for (size_t j = 0; j < KEYS; j++) {
        double score = 0;
        for (size_t c = 0; c < SIZE; c++)
            score += (double)q[c] * k[j * SIZE + c];
        const double weight =
            sees(w, (int64_t)row, (int64_t)j) ? exp(score / sqrt((double)SIZE)) : 0;
        total += weight;
        for (size_t c = 0; c < SIZE; c++)
            result[c] += weight * v[j * SIZE + c];
    }
    for (size_t c = 0; c < SIZE && total > 0; c++)
        result[c] /= total;
}

static const char *const names[] = {"q", "k", "v", "past_k", "past_v"};

/* past: rows of the keys that come as a cache. */
static kiln_onnx_model *make(const struct window *w, size_t past, bool counted)
{
    Onnx__ModelProto *proto = new_model(24);
    const int64_t there = w->there;
    for (size_t i = 0; i < (past ? 5 : 3); i++)
        add_input(proto, names[i], FLOAT, i == 0 ? "1 2 4 8" : i < 3 ? "1 1 keys 8" : "1 1 past 8");
    add_output(proto, "y", FLOAT, "1 2 4 8");
    if (counted)
        add_integers(proto, "there", "1", &there);
    Onnx__NodeProto *node = add_node(proto, "Attention",
                                     past      ? "q k v - past_k past_v"
                                     : counted ? "q k v - - - there"
                                               : "q k v",
                                     "y");
    set_int(node, "left_window_size", w->left);
    set_int(node, "right_window_size", w->right);
    set_int(node, "is_causal", w->causal);
    return loaded(proto);
}

static void check(struct window w, size_t past, bool counted)
{
    static float q[HEADS * ROWS * SIZE], k[KEYS * SIZE], v[KEYS * SIZE];
    const size_t own = KEYS - past;
    const kiln_array in[] = {{KILN_F32, 4, {1, HEADS, ROWS, SIZE}, q},
                             {KILN_F32, 4, {1, 1, own, SIZE}, k + past * SIZE},
                             {KILN_F32, 4, {1, 1, own, SIZE}, v + past * SIZE},
                             {KILN_F32, 4, {1, 1, past, SIZE}, k},
                             {KILN_F32, 4, {1, 1, past, SIZE}, v}};
    kiln_array out[1] = {{0}};
    fill(q, (size_t)HEADS * ROWS * SIZE, 1);
    fill(k, (size_t)KEYS * SIZE, 2);
    fill(v, (size_t)KEYS * SIZE, 3);
    w.there = counted ? w.there : KEYS;
    w.offset = counted ? w.there - ROWS : (int64_t)past;
    kiln_onnx_model *model = make(&w, past, counted);
    expect_ok(kiln_model_run(model, in, out));
    for (size_t row = 0; row < (size_t)HEADS * ROWS; row++) {
        double wanted[SIZE];
        attend(&w, row % ROWS, q + row * SIZE, k, v, wanted);
        for (size_t c = 0; c < SIZE; c++)
            cr_assert_float_eq(((float *)out->data)[row * SIZE + c], wanted[c], 1e-4,
                               "left %d, right %d, causal %d, past %zu, counted %d, row %zu: %g is "
                               "not %g",
                               (int)w.left, (int)w.right, (int)w.causal, past, counted, row,
                               (double)((float *)out->data)[row * SIZE + c], wanted[c]);
    }
    kiln_free(out->data);
    kiln_model_release(model);
}

Test(onnx_attention, windows)
{
    static const int64_t sizes[] = {NONE, 0, 2, 100, INT64_MAX};
    for (size_t left = 0; left < sizeof sizes / sizeof *sizes; left++)
        for (size_t right = 0; right < sizeof sizes / sizeof *sizes; right++)
            for (int64_t causal = 0; causal < 2; causal++) {
                const struct window w = {sizes[left], sizes[right], causal, 0, 9};
                check(w, 0, false);
                check(w, 5, false);
                check(w, 0, true);
            }
}
