/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a node as the C call that records it, a function for each kind. */
#include "reproduce_calls.h"

#include <math.h>

const struct kiln__node *reproduce_node(const struct printer *printer, uint32_t index)
{
    return &printer->batch->graph.nodes.items[index];
}

const char *reproduce_type(const struct kiln__node *node)
{
    static const char *const names[] = {
#define NAME(name, value, bytes, ctype) [KILN_##name] = "KILN_" #name,
        KILN_TYPE_MAP(NAME)
#undef NAME
    };
    return names[node->type];
}

void reproduce_number(struct printer *printer, double value)
{
    if (isnan(value))
        kiln__text_add(printer->text, "NAN");
    else if (isinf(value))
        kiln__text_add(printer->text, "%sINFINITY", value < 0 ? "-" : "");
    else if (value == -2147483648.0)
        kiln__text_add(printer->text, "INT32_MIN");
    else if (value == trunc(value) && fabs(value) < 1e6 && !(value == 0 && signbit(value)))
        kiln__text_add(printer->text, "%.0f", value);
    else
        kiln__text_add(printer->text, "%.17g", value);
}

void reproduce_value(struct printer *printer, kiln_type type, double value)
{
    if (type != KILN_I64)
        reproduce_number(printer, value);
    else if (kiln__value_integer(type, value) == INT64_MIN)
        kiln__text_add(printer->text, "INT64_MIN");
    else
        kiln__text_add(printer->text, "%sLL", kiln__value_text(type, value).text);
}

/* ", (TYPE[]){1, 2}" or ", NULL". */
#define PRINT_LIST(printer, type, count, value)                                                    \
    do {                                                                                           \
        kiln__text_add((printer)->text, (count) ? ", (" type "[]){" : ", NULL");                   \
        for (uint32_t d = 0; d < (count); d++)                                                     \
            kiln__text_add((printer)->text, "%s%lld", d ? ", " : "", (long long)(value));          \
        kiln__text_add((printer)->text, (count) ? "}" : "");                                       \
    } while (0)

void reproduce_dims(struct printer *printer, const struct kiln__shape *shape)
{
    kiln__text_add(printer->text, ", %u", shape->rank);
    PRINT_LIST(printer, "size_t", shape->rank, shape->dims[d]);
}

static void print_operands(struct printer *printer, const struct kiln__node *node)
{
    for (unsigned k = 0; k < node->n_inputs; k++)
        kiln__text_add(printer->text, ", t%u", node->input[k]);
}

typedef void print_call(struct printer *printer, const struct kiln__node *node);

/* As an array before main(), see print_data(). */
static void print_upload(struct printer *printer, const struct kiln__node *node)
{
    kiln__text_add(printer->text, "kiln_upload(b, %s", reproduce_type(node));
    reproduce_dims(printer, &node->shape);
    if (kiln__node_count(node))
        kiln__text_add(printer->text, ", data%llu)", (unsigned long long)node->binding);
    else
        kiln__text_add(printer->text, ", NULL)");
}

static void print_constant(struct printer *printer, const struct kiln__node *node)
{
    if (node->shape.rank)
        kiln__text_add(printer->text, "kiln_broadcast(b, ");
    kiln__text_add(printer->text, "kiln_constant(b, %s, ", reproduce_type(node));
    reproduce_value(printer, node->type, node->value);
    kiln__text_add(printer->text, ")");
    if (!node->shape.rank)
        return;
    reproduce_dims(printer, &node->shape);
    kiln__text_add(printer->text, ")");
}

bool reproduce_stands_in(const struct kiln__node *node)
{
    return node->kind == KILN__ELEMENTWISE && kiln__elementwise_rows[node->op].types == KILN__WORDS;
}

static void print_elementwise(struct printer *printer, const struct kiln__node *node)
{
    const struct kiln__elementwise_row *row = &kiln__elementwise_rows[node->op];
    if (reproduce_stands_in(node)) {
        kiln__text_add(printer->text, "kiln_upload(b, %s", reproduce_type(node));
        reproduce_dims(printer, &node->shape);
        if (kiln__node_count(node))
            kiln__text_add(printer->text, ", words%td)", node - reproduce_node(printer, 0));
        else
            kiln__text_add(printer->text, ", NULL)");
        return;
    }
    kiln__text_add(printer->text, "kiln_%s(b", node->op == KILN__OP_pow_whole ? "pow" : row->name);
    for (unsigned k = 0; k < row->tensors; k++)
        kiln__text_add(printer->text, ", t%u", node->input[k]);
    for (unsigned k = row->tensors; k < row->arity; k++) {
        kiln__text_add(printer->text, ", ");
        const struct kiln__node *number = reproduce_node(printer, node->input[k]);
        reproduce_value(printer, number->type, number->value);
    }
    kiln__text_add(printer->text, ")");
}

static void print_cast(struct printer *printer, const struct kiln__node *node)
{
    if (node->op == KILN__DETACH)
        kiln__text_add(printer->text, "kiln_detach(b, t%u)", node->input[0]);
    else
        kiln__text_add(printer->text, "kiln_cast(b, t%u, %s)", node->input[0],
                       reproduce_type(node));
}

static void print_reduce(struct printer *printer, const struct kiln__node *node)
{
    const struct kiln__shape *shape = &reproduce_node(printer, node->input[0])->shape;
    int axes[KILN_MAX_RANK];
    uint32_t count = 0;
    for (uint32_t k = 0; k < shape->rank; k++)
        if (node->axes >> k & 1)
            axes[count++] = (int)k;
    kiln__text_add(printer->text, "kiln_%s(b, t%u, %u", kiln__reduce_rows[node->op].name,
                   node->input[0], count);
    PRINT_LIST(printer, "int", count, axes[d]);
    kiln__text_add(printer->text, ", 0)");
}

/* Where dimension d of an input starts and stops, and by which step. */
static void print_slice(struct printer *printer, const struct kiln__node *node)
{
    const struct kiln__view *view = &node->view;
    const size_t *dims = node->shape.dims;
    uint32_t rank = node->shape.rank;
    kiln__text_add(printer->text, "kiln_slice(b, t%u", node->input[0]);
    PRINT_LIST(printer, "int64_t", rank, view->start[d]);
    PRINT_LIST(printer, "int64_t", rank,
               dims[d] ? view->start[d] + view->step[d] * ((int64_t)dims[d] - 1) +
                             (view->step[d] < 0 ? -1 : 1)
                       : view->start[d]);
    PRINT_LIST(printer, "int64_t", rank, view->step[d] ? view->step[d] : 1);
    kiln__text_add(printer->text, ")");
}

static void print_windows(struct printer *printer, const struct kiln__node *node)
{
    const struct kiln__view *view = &node->view;
    const size_t *size = node->shape.dims;
    uint32_t n = node->shape.rank - reproduce_node(printer, node->input[0])->shape.rank, axis = 0;
    while (axis + 2 * n < node->shape.rank && view->source[axis] != view->source[axis + n])
        axis++;
    kiln__text_add(printer->text, "kiln_windows(b, t%u, %u, %u", node->input[0], axis, n);
    PRINT_LIST(printer, "size_t", n, size[axis + n + d]);
    PRINT_LIST(printer, "size_t", n, view->step[axis + d] ? view->step[axis + d] : 1);
    PRINT_LIST(printer, "size_t", n, view->step[axis + n + d] ? view->step[axis + n + d] : 1);
    kiln__text_add(printer->text, ")");
}

static void print_view(struct printer *printer, const struct kiln__node *node)
{
    if (node->op == KILN__SLICE) {
        print_slice(printer, node);
    } else if (node->op == KILN__WINDOWS) {
        print_windows(printer, node);
    } else if (node->op == KILN__TRANSPOSE) {
        kiln__text_add(printer->text, "kiln_transpose(b, t%u", node->input[0]);
        PRINT_LIST(printer, "size_t", node->shape.rank, node->view.source[d]);
        kiln__text_add(printer->text, ")");
    } else {
        kiln__text_add(printer->text, "kiln_broadcast(b, t%u", node->input[0]);
        reproduce_dims(printer, &node->shape);
        kiln__text_add(printer->text, ")");
    }
}

static void print_reshape(struct printer *printer, const struct kiln__node *node)
{
    kiln__text_add(printer->text, "kiln_reshape(b, t%u", node->input[0]);
    reproduce_dims(printer, &node->shape);
    kiln__text_add(printer->text, ")");
}

/* Without a tensor beneath, the elements beside the part are undefined; any will do. */
static void print_insert_slice(struct printer *printer, const struct kiln__node *node)
{
    kiln__text_add(printer->text, "kiln_insert_slice(b, ");
    if (node->n_inputs > 1) {
        kiln__text_add(printer->text, "t%u", node->input[1]);
    } else {
        kiln__text_add(printer->text, "kiln_broadcast(b, kiln_constant(b, %s, 0)",
                       reproduce_type(node));
        reproduce_dims(printer, &node->shape);
        kiln__text_add(printer->text, ")");
    }
    kiln__text_add(printer->text, ", t%u", node->input[0]);
    PRINT_LIST(printer, "int64_t", node->shape.rank, node->view.start[d]);
    PRINT_LIST(printer, "int64_t", node->shape.rank, node->view.step[d] ? node->view.step[d] : 1);
    kiln__text_add(printer->text, ")");
}

static void print_matmul(struct printer *printer, const struct kiln__node *node)
{
    kiln__text_add(printer->text, "kiln_matmul(b");
    print_operands(printer, node);
    kiln__text_add(printer->text, ")");
}

/* Without the two dimensions that recording gave them. */
static void print_lengths(struct printer *printer, uint32_t index)
{
    struct kiln__shape shape = reproduce_node(printer, index)->shape;
    shape.rank -= 2;
    kiln__text_add(printer->text, ", kiln_reshape(b, t%u", index);
    reproduce_dims(printer, &shape);
    kiln__text_add(printer->text, ")");
}

static void print_attention(struct printer *printer, const struct kiln__node *node)
{
    const struct kiln__attention *attention = &node->attention;
    const bool lengths = attention->lengths, masked = node->n_inputs > 3u + lengths;
    kiln__text_add(printer->text, lengths ? "kiln_attention_with_lengths(b" : "kiln_attention(b");
    for (unsigned i = 0; i < node->n_inputs; i++) {
        if (i == 3 && !masked)
            kiln__text_add(printer->text, ", (kiln_tensor){0}");
        if (lengths && i + 1u == node->n_inputs)
            print_lengths(printer, node->input[i]);
        else
            kiln__text_add(printer->text, ", t%u", node->input[i]);
    }
    kiln__text_add(printer->text,
                   "%s,\n                        &(kiln_attention_options){"
                   "sizeof(kiln_attention_options), %.17g, %llu, %lld, %lld})",
                   node->n_inputs == 3 ? ", (kiln_tensor){0}" : "", attention->scale,
                   (unsigned long long)attention->causal, (long long)attention->diagonal,
                   (long long)attention->window);
}

static void print_iota(struct printer *printer, const struct kiln__node *node)
{
    kiln__text_add(printer->text, "kiln_reshape(b, kiln_arange(b, KILN_I32, 0, %zu, 1)",
                   kiln__node_count(node));
    reproduce_dims(printer, &node->shape);
    kiln__text_add(printer->text, ")");
}

static void print_gather(struct printer *printer, const struct kiln__node *node)
{
    kiln__text_add(printer->text, "kiln_gather(b");
    print_operands(printer, node);
    kiln__text_add(printer->text, ", %llu)", (unsigned long long)node->axis);
}

static void print_scan(struct printer *printer, const struct kiln__node *node)
{
    unsigned axis = 0;
    while (!(node->axes >> axis & 1))
        axis++;
    kiln__text_add(printer->text, "kiln_cumsum(b, t%u, %u, %d)", node->input[0], axis,
                   node->op == KILN__SCAN_BACKWARD);
}

/* No call takes positions that are apart: their scatter, in the type that it is stored in. */
static void print_scatter(struct printer *printer, const struct kiln__node *node)
{
    const bool apart = node->op == KILN__SCATTER_DISTINCT;
    kiln__text_add(printer->text, "%skiln_scatter(b, t%u, t%u, t%u, %llu, %u)",
                   apart ? "kiln_cast(b, " : "", node->input[KILN__SCATTER_BASE],
                   node->input[KILN__SCATTER_INDICES], node->input[KILN__SCATTER_VALUES],
                   (unsigned long long)node->axis, apart ? KILN_SCATTER_SET : (unsigned)node->op);
    if (apart)
        kiln__text_add(printer->text, ", %d)", (int)node->type);
}

bool reproduce_sorts_few(const struct printer *printer, const struct kiln__node *node)
{
    return node->kind == KILN__SORT &&
           !kiln__shape_equal(&node->shape, &reproduce_node(printer, node->input[0])->shape);
}

static void print_sort(struct printer *printer, const struct kiln__node *node)
{
    const bool descending = node->op == KILN__SORT_DESCENDING;
    if (reproduce_sorts_few(printer, node))
        kiln__text_add(printer->text, "(kiln_topk(b, t%u, %zu, -1, %d, &first), first)",
                       node->input[0], node->shape.dims[node->shape.rank - 1], !descending);
    else
        kiln__text_add(printer->text, "kiln_argsort(b, t%u, -1, %d)", node->input[0], descending);
}

static void print_import(struct printer *printer, const struct kiln__node *node)
{
    kiln__text_add(printer->text, "kiln_import(b, buffer%llu)", (unsigned long long)node->binding);
    (void)printer;
}

static void print_attention_backward(struct printer *printer, const struct kiln__node *node)
{
    kiln__text_add(printer->text, "(kiln_tensor){0} /* %s, of a gradient: no call makes it */",
                   kiln__node_name(node));
}

static void print_custom(struct printer *printer, const struct kiln__node *node)
{
    kiln__text_add(printer->text, "(kiln_tensor){0} /* kiln_custom: kernel %s */",
                   kiln__node_name(node));
}

static print_call *const print_calls[] = {
    [KILN__UPLOAD] = print_upload,
    [KILN__IMPORT] = print_import,
    [KILN__CONSTANT] = print_constant,
    [KILN__ELEMENTWISE] = print_elementwise,
    [KILN__CAST] = print_cast,
    [KILN__REDUCE] = print_reduce,
    [KILN__VIEW] = print_view,
    [KILN__RESHAPE] = print_reshape,
    [KILN__MATMUL] = print_matmul,
    [KILN__ATTENTION] = print_attention,
    [KILN__INSERT_SLICE] = print_insert_slice,
    [KILN__IOTA] = print_iota,
    [KILN__GATHER] = print_gather,
    [KILN__SCAN] = print_scan,
    [KILN__SCATTER] = print_scatter,
    [KILN__SORT] = print_sort,
    [KILN__ATTENTION_BACKWARD] = print_attention_backward,
    [KILN__CUSTOM] = print_custom,
};

void reproduce_call(struct printer *printer, const struct kiln__node *node)
{
    print_calls[node->kind](printer, node);
}
