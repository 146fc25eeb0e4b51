/* SPDX-License-Identifier: Apache-2.0 */
/* Einstein's sums as transposes, products and sums. Operands are taken in from the left: what a
 * later one or the result has not is added up as soon as it can be. */
#include <kiln/elementwise.h>
#include <kiln/movement.h>
#include <kiln/product.h>
#include <kiln/reductions.h>

#include <string.h>

#include "record/call.h"
#include "record/operations.h"

/* Dimensions by name: letters as their codes, those of an ellipsis as 1, 2, ... from the last one
 * to the left. */
struct term {
    unsigned count;
    char names[KILN_MAX_RANK];
    bool ellipsis; /* of a text: it has one, before names[dots] */
    unsigned dots;
};

struct named {
    kiln_tensor tensor;
    struct term term;
    size_t dims[KILN_MAX_RANK];
};

struct call {
    kiln_batch *batch;
    const char *equation;
    bool floating;
    size_t extent[128]; /* of each name; 0: none yet, which one of 0 elements is as well */
    bool known[128];
};

static bool einsum_fail(struct call *call, const char *what)
{
    if (!call->batch->error.status)
        kiln__fail(&call->batch->error, KILN_INVALID_ARGUMENT, "kiln_einsum: \"%s\" %s",
                   call->equation, what);
    return false;
}

/* ---- reading ---- */

/* Of ASCII, whatever the locale: letters are numbers below 128 in tables. */
static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* The term that *text begins with; *text moves behind it. term = (letter | "...")* */
static bool read_term(struct call *call, const char **text, struct term *term)
{
    const char *at = *text;
    *term = (struct term){0};
    for (; *at && *at != ',' && strncmp(at, "->", 2) != 0; at++) {
        if (*at == ' ')
            continue;
        if (!strncmp(at, "...", 3) && !term->ellipsis) {
            term->ellipsis = true;
            term->dots = term->count;
            at += 2;
        } else if (!is_letter(*at)) {
            return einsum_fail(call,
                               "has something else than letters, commas, one ... a term and ->");
        } else if (term->count == KILN_MAX_RANK) {
            return einsum_fail(call, "has a term of more than 8 letters");
        } else {
            term->names[term->count++] = *at;
        }
    }
    *text = at;
    return true;
}

/* Put names for the dimensions of an ellipsis, so many, in its place. */
static bool expand(struct call *call, struct term *term, size_t dots)
{
    if (term->count + dots > KILN_MAX_RANK)
        return einsum_fail(call, "makes a term of more than 8 dimensions");
    memmove(term->names + term->dots + dots, term->names + term->dots, term->count - term->dots);
    for (size_t i = 0; i < dots; i++)
        term->names[term->dots + i] = (char)(dots - i);
    term->count += (unsigned)dots;
    return true;
}

static bool term_has(const struct term *term, char name)
{
    return memchr(term->names, name, term->count) != NULL;
}

/* Sizes of one name agree, or are 1. */
static bool note_extents(struct call *call, const struct named *x)
{
    for (unsigned d = 0; d < x->term.count; d++) {
        const unsigned char name = (unsigned char)x->term.names[d];
        if (call->known[name] && call->extent[name] != x->dims[d] && call->extent[name] != 1 &&
            x->dims[d] != 1)
            return einsum_fail(call, "gives one letter to dimensions of different size");
        if (!call->known[name] || call->extent[name] == 1)
            call->extent[name] = x->dims[d];
        call->known[name] = true;
    }
    return true;
}

static bool read_operand(struct call *call, const char **text, kiln_tensor tensor, struct named *x,
                         size_t *dots)
{
    const struct kiln__node *node = kiln__batch_node(call->batch, tensor, "kiln_einsum", "operand");
    if (!node || !read_term(call, text, &x->term))
        return false;
    const uint32_t rank = node->shape.rank;
    if (rank < x->term.count || (!x->term.ellipsis && rank != x->term.count))
        return einsum_fail(call, "has a term that is not of its operand's rank");
    const size_t own = rank - x->term.count;
    x->tensor = tensor;
    memcpy(x->dims, node->shape.dims, rank * sizeof *x->dims);
    *dots = own > *dots ? own : *dots;
    call->floating = kiln__node_is_floating(node);
    return expand(call, &x->term, own) && note_extents(call, x);
}

/* Without an arrow: what an ellipsis is for, and the letters that stand in one place alone, in the
 * order of the alphabet. */
static bool infer_output(struct call *call, const struct named *operands, size_t n, size_t dots,
                         struct term *result)
{
    *result = (struct term){0};
    for (size_t i = 0; i < dots; i++)
        result->names[result->count++] = (char)(dots - i);
    for (int name = 'A'; name <= 'z'; name++) {
        unsigned places = 0;
        for (size_t i = 0; i < n; i++)
            for (unsigned d = 0; d < operands[i].term.count; d++)
                places += operands[i].term.names[d] == name;
        if (places == 1 && result->count == KILN_MAX_RANK)
            return einsum_fail(call, "makes a result of more than 8 dimensions");
        if (places == 1)
            result->names[result->count++] = (char)name;
    }
    return true;
}

static bool read_result(struct call *call, const char *text, const struct named *operands, size_t n,
                        size_t dots, struct term *result)
{
    if (!*text)
        return infer_output(call, operands, n, dots, result);
    text += 2;
    if (!read_term(call, &text, result) ||
        (*text && einsum_fail(call, "goes on behind its result")) || *text ||
        (result->ellipsis && !expand(call, result, dots)))
        return false;
    for (unsigned d = 0; d < result->count; d++) {
        if (!call->known[(unsigned char)result->names[d]])
            return einsum_fail(call, "has a letter in its result that no operand has");
        if (memchr(result->names, result->names[d], d))
            return einsum_fail(call, "has a letter twice in its result");
    }
    return true;
}

/* ---- one operand ---- */

/* Its dimensions in this order of names, all of which it has. */
static void permute_to(struct call *call, struct named *x, const char *names, unsigned count)
{
    size_t order[KILN_MAX_RANK], dims[KILN_MAX_RANK] = {0};
    bool moves = false;
    for (unsigned d = 0; d < count; d++) {
        order[d] = (size_t)((const char *)memchr(x->term.names, names[d], count) - x->term.names);
        dims[d] = x->dims[order[d]];
        moves = moves || order[d] != d;
    }
    if (moves)
        x->tensor = kiln_transpose(call->batch, x->tensor, order);
    memcpy(x->dims, dims, sizeof *dims * count);
    memmove(x->term.names, names, count);
}

/* Of dimensions with the same name the diagonal, as the last one: every n + 1st element of both as
 * one. */
static bool take_diagonals(struct call *call, struct named *x)
{
    for (unsigned d = 0; d < x->term.count; d++) {
        const char name = x->term.names[d];
        const char *again = memchr(x->term.names + d + 1, name, x->term.count - d - 1);
        if (!again)
            continue;
        const unsigned e = (unsigned)(again - x->term.names), last = x->term.count - 2;
        size_t order[KILN_MAX_RANK], n = x->dims[d];
        int64_t start[KILN_MAX_RANK] = {0}, stop[KILN_MAX_RANK], step[KILN_MAX_RANK];
        struct named y = {.term.count = x->term.count - 1};
        unsigned k = 0;
        if (x->dims[e] != n)
            return einsum_fail(call, "takes a diagonal of dimensions of different size");
        for (unsigned i = 0; i < x->term.count; i++)
            if (i != d && i != e) {
                y.term.names[k] = x->term.names[i];
                y.dims[k] = x->dims[i];
                order[k++] = i;
            }
        order[k] = d, order[k + 1] = e;
        y.term.names[last] = name;
        y.dims[last] = n * n;
        for (unsigned i = 0; i <= last; i++)
            stop[i] = (int64_t)y.dims[i], step[i] = i == last ? (int64_t)n + 1 : 1;
        y.tensor = kiln_transpose(call->batch, x->tensor, order);
        y.tensor = kiln_reshape(call->batch, y.tensor, y.term.count, y.dims);
        y.tensor = kiln_slice(call->batch, y.tensor, start, stop, step);
        y.dims[last] = n;
        *x = y;
        d = UINT32_MAX; /* from the start again */
    }
    return true;
}

/* Add up what is not to be kept. */
static void add_up(struct call *call, struct named *x, const bool *keep)
{
    int axes[KILN_MAX_RANK];
    size_t n = 0;
    struct named y = *x;
    y.term.count = 0;
    for (unsigned d = 0; d < x->term.count; d++)
        if (keep[(unsigned char)x->term.names[d]]) {
            y.term.names[y.term.count] = x->term.names[d];
            y.dims[y.term.count++] = x->dims[d];
        } else {
            axes[n++] = (int)d;
        }
    if (n)
        y.tensor = kiln_sum(call->batch, x->tensor, n, axes, 0);
    *x = y;
}

/* ---- two operands ---- */

/* Names of x in their order for which `in` is in y as asked and `kept` too. */
static unsigned einsum_choose(const struct named *x, const struct named *y, bool in,
                              const bool *keep, bool kept, char *names)
{
    unsigned count = 0;
    for (unsigned d = 0; d < x->term.count; d++)
        if (term_has(&y->term, x->term.names[d]) == in &&
            keep[(unsigned char)x->term.names[d]] == kept)
            names[count++] = x->term.names[d];
    return count;
}

/* Where both have a name and one of them 1 element, that one is repeated. */
static void einsum_repeat(struct call *call, struct named *x, const struct named *y)
{
    bool grows = false;
    for (unsigned d = 0; d < x->term.count; d++) {
        const size_t extent = call->extent[(unsigned char)x->term.names[d]];
        if (term_has(&y->term, x->term.names[d]) && x->dims[d] != extent)
            grows = true, x->dims[d] = extent;
    }
    if (grows)
        x->tensor = kiln_broadcast(call->batch, x->tensor, x->term.count, x->dims);
}

static size_t product_of(const struct named *x, const char *names, unsigned count)
{
    size_t product = 1;
    for (unsigned d = 0; d < count; d++)
        product *=
            x->dims[(const char *)memchr(x->term.names, names[d], x->term.count) - x->term.names];
    return product;
}

/* The names of both, those that only y has last, with dimensions of 1 where one of them has not
 * got one: what broadcasts. */
static bool multiply_elements(struct call *call, struct named *x, struct named *y,
                              struct named *made)
{
    *made = *x;
    for (unsigned d = 0; d < y->term.count; d++) {
        if (term_has(&x->term, y->term.names[d]))
            continue;
        if (made->term.count == KILN_MAX_RANK)
            return einsum_fail(call, "makes a product of more than 8 dimensions on its way");
        made->dims[made->term.count] = y->dims[d];
        made->term.names[made->term.count++] = y->term.names[d];
    }
    size_t dims[KILN_MAX_RANK];
    char own[KILN_MAX_RANK];
    unsigned count = 0;
    for (unsigned d = 0; d < made->term.count; d++) {
        const bool there = term_has(&y->term, made->term.names[d]);
        dims[d] = there ? made->dims[d] : 1;
        if (there)
            own[count++] = made->term.names[d];
    }
    permute_to(call, y, own, count);
    kiln_tensor right = kiln_reshape(call->batch, y->tensor, made->term.count, dims);
    for (unsigned d = 0; d < made->term.count; d++)
        dims[d] = d < x->term.count ? x->dims[d] : 1;
    kiln_tensor left = kiln_reshape(call->batch, x->tensor, made->term.count, dims);
    made->tensor = kiln_mul(call->batch, left, right);
    return true;
}

/* [both, left, sums] times [both, sums, right], each of several dimensions as one. */
static bool multiply_matrices(struct call *call, struct named *x, struct named *y, const bool *keep,
                              struct named *made)
{
    char both[KILN_MAX_RANK], left[KILN_MAX_RANK], right[KILN_MAX_RANK], sums[KILN_MAX_RANK];
    char order[2 * KILN_MAX_RANK];
    const unsigned b = einsum_choose(x, y, true, keep, true, both);
    const unsigned l = einsum_choose(x, y, false, keep, true, left);
    const unsigned r = einsum_choose(y, x, false, keep, true, right);
    const unsigned s = einsum_choose(x, y, true, keep, false, sums);
    if (b + l + r > KILN_MAX_RANK)
        return einsum_fail(call, "makes a product of more than 8 dimensions on its way");
    memcpy(order, both, b);
    memcpy(order + b, left, l);
    memcpy(order + b + l, sums, s);
    permute_to(call, x, order, b + l + s);
    memcpy(order + b, sums, s);
    memcpy(order + b + s, right, r);
    permute_to(call, y, order, b + s + r);
    const size_t batches = product_of(x, both, b), m = product_of(x, left, l);
    const size_t k = product_of(x, sums, s), n = product_of(y, right, r);
    kiln_tensor p =
        kiln_matmul(call->batch, kiln_reshape(call->batch, x->tensor, 3, (size_t[]){batches, m, k}),
                    kiln_reshape(call->batch, y->tensor, 3, (size_t[]){batches, k, n}));
    *made = (struct named){.term.count = b + l + r};
    memcpy(made->term.names, both, b);
    memcpy(made->term.names + b, left, l);
    memcpy(made->term.names + b + l, right, r);
    for (unsigned d = 0; d < made->term.count; d++)
        made->dims[d] = d < b + l ? x->dims[d] : y->dims[d - l + s];
    made->tensor = kiln_reshape(call->batch, p, made->term.count, made->dims);
    return true;
}

static bool einsum_multiply(struct call *call, struct named *x, struct named *y, const bool *keep,
                            struct named *made)
{
    bool sums = false;
    einsum_repeat(call, x, y);
    einsum_repeat(call, y, x);
    for (unsigned d = 0; d < x->term.count; d++)
        sums = sums || !keep[(unsigned char)x->term.names[d]];
    if (sums && call->floating)
        return multiply_matrices(call, x, y, keep, made);
    if (!multiply_elements(call, x, y, made))
        return false;
    add_up(call, made, keep);
    return true;
}

/* ---- all ---- */

/* Names that the result or an operand from number `from` on has. */
static void note_kept(const struct named *operands, size_t from, size_t n,
                      const struct term *result, bool *keep)
{
    memset(keep, 0, 128 * sizeof *keep);
    for (unsigned d = 0; d < result->count; d++)
        keep[(unsigned char)result->names[d]] = true;
    for (size_t i = from; i < n; i++)
        for (unsigned d = 0; d < operands[i].term.count; d++)
            keep[(unsigned char)operands[i].term.names[d]] = true;
}

static kiln_tensor einsum_combine(struct call *call, struct named *operands, size_t n,
                                  const struct term *result)
{
    struct named made;
    bool keep[128];
    for (size_t i = 0; i < n; i++)
        if (!take_diagonals(call, &operands[i]))
            return kiln__none;
    note_kept(operands, 1, n, result, keep);
    add_up(call, &operands[0], keep);
    made = operands[0];
    for (size_t i = 1; i < n && !call->batch->error.status; i++) {
        struct named left = made;
        note_kept(operands, i + 1, n, result, keep);
        bool own[128];
        memcpy(own, keep, sizeof own);
        for (unsigned d = 0; d < left.term.count; d++)
            own[(unsigned char)left.term.names[d]] = true;
        add_up(call, &operands[i], own); /* what it alone has */
        if (!einsum_multiply(call, &left, &operands[i], keep, &made))
            return kiln__none;
    }
    if (call->batch->error.status)
        return kiln__none;
    permute_to(call, &made, result->names, result->count);
    return made.tensor;
}

#define MOST_OPERANDS 16

kiln_tensor kiln_einsum(kiln_batch *batch, const char *equation, size_t n,
                        const kiln_tensor *operands)
{
    KILN__CALL(batch);
    struct call call = {.batch = batch, .equation = equation};
    struct named terms[MOST_OPERANDS];
    struct term result;
    size_t dots = 0;
    if (!kiln__batch_is_open(batch, __func__))
        return kiln__none;
    if (!equation || !operands || n == 0 || n > MOST_OPERANDS) {
        kiln__fail(&batch->error, KILN_INVALID_ARGUMENT,
                   "%s: %zu operands, an equation and operands that must be there; 1 to %d are "
                   "taken",
                   __func__, n, MOST_OPERANDS);
        return kiln__none;
    }
    const char *at = equation;
    for (size_t i = 0; i < n; i++) {
        if (!read_operand(&call, &at, operands[i], &terms[i], &dots))
            return kiln__none;
        if ((*at == ',') != (i + 1 < n)) {
            einsum_fail(&call, "has not as many terms as there are operands");
            return kiln__none;
        }
        at += *at == ',';
    }
    if (!read_result(&call, at, terms, n, dots, &result))
        return kiln__none;
    kiln_tensor y = einsum_combine(&call, terms, n, &result);
    return batch->error.status ? kiln__none : y;
}
