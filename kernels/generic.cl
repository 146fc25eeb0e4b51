/* SPDX-License-Identifier: Apache-2.0 */
/* Any group of steps, by the table of lower/generic.h. A cell holds a value of any type that is
 * computed in: of integers their bits with the sign before them. Every function has one caller: compilers that put a function's text wherever it is
 * called would compile it as often.
 *
 * The macros and functions G_... stand before this text (codegen/generic_text.c). */

static int g_place(global const int *strides, const int offset, const int *index, const int rank)
{
    int at = offset;
    for (int d = 0; d < rank; d++)
        at += strides[d] * index[d];
    return at;
}

static ulong g_step(global const int *t, global uchar *const *memory, global const int *s,
                   const int *index, const ulong *v)
{
    const int kind = s[G_KIND];
    if (kind == G_APPLY)
        return g_apply(s[G_KEY_], v[s[G_A]], v[s[G_B]], v[s[G_C]]);
    if (kind == G_CONVERT)
        return g_convert(s[G_KEY_], v[s[G_A]]);
    if (kind == G_SCALAR)
        return (ulong)(long)s[G_VALUE];
    global const int *access = t + t[G_ACCESSES_AT] + s[G_INDEX] * G_ACCESS_INTS;
    int at = g_place(access + G_STRIDES, access[G_OFFSET], index, t[G_RANK]);
    if (kind == G_NUMBER)
        return (ulong)(long)at;
    if (kind == G_GATHER) {
        const int number = (int)v[s[G_A]];
        if (number < 0 || number >= access[G_EXTENT])
            return (ulong)(long)s[G_VALUE];
        at += number * access[G_JUMP];
    }
    return g_load(s[G_TYPE], memory[access[G_MEMORY]], at);
}

/* The product of a line and a column that lie in memory as floats. */
static float g_dot(global const int *t, global uchar *const *memory, const int *index,
                   const int depth, global const int *a, global const int *b)
{
    const int rank = t[G_RANK];
    global const float *x = (global const float *)memory[a[G_MEMORY]], *y = (global const float *)memory[b[G_MEMORY]];
    int at_x = g_place(a + G_STRIDES, a[G_OFFSET], index, rank) - a[G_STRIDES + rank - 1] * index[rank - 1];
    int at_y = g_place(b + G_STRIDES, b[G_OFFSET], index, rank) - b[G_STRIDES + rank - 2] * index[rank - 2];
    const int by_x = a[G_STRIDES + rank - 1], by_y = b[G_STRIDES + rank - 2];
    float total = 0;
    for (int q = 0; q < depth;) {
        const int to = min(depth, q + 64);
        float sum = 0;
        for (; q < to; q++, at_x += by_x, at_y += by_y)
            sum += x[at_x] * y[at_y];
        total += sum;
    }
    return total;
}

/* How many keys of its matrix there are. */
static int g_length(global const int *t, global uchar *const *memory, const int *index)
{
    global const int *lengths = t + t[G_ACCESSES_AT] + t[G_LENGTHS] * G_ACCESS_INTS;
    const int at = g_place(lengths + G_STRIDES, lengths[G_OFFSET], index, t[G_RANK] - 2);
    return clamp(((global const int *)memory[lengths[G_MEMORY]])[at], 0, t[G_KEYS]);
}

/* An element of an attention's result: what comes of it so far is scaled down whenever a score is
 * greater than all before. */
static float g_attend(global const int *t, global uchar *const *memory, const int *index)
{
    const int rank = t[G_RANK], row = index[rank - 2];
    global const int *q = t + t[G_ACCESSES_AT], *k = q + G_ACCESS_INTS, *v = k + G_ACCESS_INTS,
                     *mask = v + G_ACCESS_INTS;
    global const int *by_q = q + G_STRIDES + rank - 2, *by_k = k + G_STRIDES + rank - 2,
                     *by_v = v + G_STRIDES + rank - 2, *by_mask = mask + G_STRIDES + rank - 2;
    global const float *a = (global const float *)memory[q[G_MEMORY]];
    global const float *b = (global const float *)memory[k[G_MEMORY]];
    global const float *c = (global const float *)memory[v[G_MEMORY]];
    const int at_q = g_place(q + G_STRIDES, q[G_OFFSET], index, rank - 2) + row * by_q[0];
    const int at_k = g_place(k + G_STRIDES, k[G_OFFSET], index, rank - 2);
    const int at_v =
        g_place(v + G_STRIDES, v[G_OFFSET], index, rank - 2) + index[rank - 1] * by_v[1];
    const int at_mask = t[G_MASK] ? g_place(mask + G_STRIDES, mask[G_OFFSET], index, rank - 2) +
                                        row * by_mask[0]
                                  : 0;
    const int length = t[G_LENGTHS] ? g_length(t, memory, index) : t[G_KEYS];
    const int reach = t[G_DIAGONAL] + row + 1 + (t[G_LENGTHS] ? length : 0);
    const int keys = clamp(reach, 0, length);
    const float scale = as_float(t[G_SCALE]);
    float most = -INFINITY, total = 0, result = 0;
    for (int j = 0; j < keys; j++) {
        float score = 0;
        for (int i = 0; i < t[G_DEPTH]; i++)
            score += a[at_q + i * by_q[1]] * b[at_k + j * by_k[0] + i * by_k[1]];
        score *= scale;
        if (t[G_MASK] == G_BYTES) {
            if (!((global const uchar *)memory[mask[G_MEMORY]])[at_mask + j * by_mask[1]])
                continue;
        } else if (t[G_MASK]) {
            const float bias =
                ((global const float *)memory[mask[G_MEMORY]])[at_mask + j * by_mask[1]];
            if (bias == -INFINITY)
                continue;
            score += bias;
        }
        if (score == -INFINITY)
            continue;
        const bool greater = score > most;
        const float factor = exp(greater ? most - score : score - most);
        total = greater ? total * factor + 1 : total + factor;
        const float value = c[at_v + j * by_v[0]] + (score - score); /* NaN of an infinite score */
        result = greater ? result * factor + value : result + factor * value;
        most = greater ? score : most;
    }
    return total == 0 ? 0 : result / total;
}

kernel void kiln_generic(
    global uchar *memory0, const long offset0, global uchar *memory1, const long offset1,
    global uchar *memory2, const long offset2, global uchar *memory3, const long offset3,
    global uchar *memory4, const long offset4, global uchar *memory5, const long offset5,
    global uchar *memory6, const long offset6, global uchar *memory7, const long offset7,
    global uchar *memory8, const long offset8, global uchar *memory9, const long offset9,
    global uchar *memory10, const long offset10, global uchar *memory11, const long offset11,
    global uchar *memory12, const long offset12, global uchar *memory13, const long offset13,
    global uchar *memory14, const long offset14, global uchar *memory15, const long offset15,
    global const int *table)
{
    global const int *t = table;
    global uchar *memory[] = {
        memory0 + offset0, memory1 + offset1, memory2 + offset2, memory3 + offset3,
        memory4 + offset4, memory5 + offset5, memory6 + offset6, memory7 + offset7,
        memory8 + offset8, memory9 + offset9, memory10 + offset10, memory11 + offset11,
        memory12 + offset12, memory13 + offset13, memory14 + offset14, memory15 + offset15};
    global const int *dims = t + t[G_DIMS_AT], *steps = t + t[G_STEPS_AT];
    const int rank = t[G_RANK], kept = t[G_KEPT];
    ulong v[G_MOST_STEPS];
    for (int item = (int)get_global_id(0); item < t[G_ITEMS]; item += (int)get_global_size(0)) {
        int first[G_MOST_RANK], second[G_MOST_RANK];
        int rest = item;
        for (int d = rank; d-- > 0;) {
            first[d] = d < kept ? rest % dims[d] : 0;
            rest /= d < kept ? dims[d] : 1;
            second[d] = first[d];
        }
        if (t[G_ATTENDS])
            v[(t + t[G_STORES_AT])[G_OF]] = (ulong)as_uint(g_attend(t, memory, first));
        for (int p = 0; p < t[G_PHASES]; p++) {
            global const int *phase = t + t[G_PHASES_AT] + p * G_PHASE_INTS;
            global const int *reduced = steps + phase[G_REDUCED] * G_STEP_INTS;
            const bool reduces = phase[G_REDUCED] >= 0;
            const bool product = reduces && reduced[G_KIND] == G_PRODUCT;
            const int row = first[rank - 1 - (rank > 1)], column = first[rank - 1];
            ulong best = reduces ? (ulong)(long)reduced[G_VALUE] : 0;
            float total = 0, sum = 0;
            int place = 0, visits = phase[G_VISITS];
            if (product && t[G_PLAIN]) {
                global const int *accesses = t + t[G_ACCESSES_AT];
                total = g_dot(t, memory, first, visits, accesses, accesses + G_ACCESS_INTS);
                visits = 0;
            }
            for (int e = 0; e < visits; e++) {
                if (product) {
                    first[rank - 1] = second[rank - 2] = e;
                } else {
                    rest = e;
                    for (int d = rank; d-- > kept;) {
                        first[d] = rest % dims[d];
                        rest /= dims[d];
                    }
                }
                for (int i = phase[G_FROM]; i < phase[G_TO]; i++) {
                    global const int *s = steps + i * G_STEP_INTS;
                    if (s[G_KIND] != G_REDUCED_STEP && s[G_KIND] != G_PRODUCT)
                        v[i] = g_step(t, memory, s, s[G_SECOND] ? second : first, v);
                }
                if (product) {
                    sum += as_float((uint)v[reduced[G_A]]) * as_float((uint)v[reduced[G_B]]);
                } else if (reduces && reduced[G_KEY_] < 0) {
                    sum += as_float((uint)v[reduced[G_A]]);
                } else if (reduces) {
                    const ulong value = v[reduced[G_A]];
                    const ulong combined = g_combine(reduced[G_KEY_], best, value);
                    if (reduced[G_B] == 0) {
                        best = combined;
                    } else if (combined) {
                        best = value;
                        place = e;
                    }
                } else {
                    for (int k = 0; k < t[G_STORES]; k++) {
                        global const int *store = t + t[G_STORES_AT] + k * G_STORE_INTS;
                        if (e == 0 || store[G_FULL])
                            g_store(store[G_AS], memory[store[G_INTO]],
                                    g_place(store + G_STEPS_OF, store[G_START], first, rank),
                                    v[store[G_OF]]);
                    }
                }
                if (e % 64 == 63) {
                    total += sum;
                    sum = 0;
                }
            }
            if (!reduces)
                continue;
            total += sum;
            if (product) {
                first[rank - 1] = column;
                second[rank - 2] = row;
                v[phase[G_REDUCED]] = as_uint(total);
            } else {
                if (reduced[G_KEY_] < 0)
                    best = as_uint(total);
                v[phase[G_REDUCED]] = reduced[G_B] ? (ulong)place : g_finish(reduced[G_C], best, phase[G_VISITS]);
                for (int d = kept; d < rank; d++)
                    first[d] = 0;
            }
        }
    }
}
