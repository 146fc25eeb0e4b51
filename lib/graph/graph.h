/* SPDX-License-Identifier: Apache-2.0 */
/* The recorded operations as a graph: nodes in an order in which inputs come before users. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kiln/movement.h>

#include "graph/custom_calls.h"
#include "graph/labels.h"
#include "graph/shape.h"
#include "ops/ops.h"
#include "util/text.h"
#include "util/vector.h"

enum kiln__kind {
    KILN__UPLOAD,       /* host memory, by binding */
    KILN__IMPORT,       /* a buffer, by binding; recorded ones that have inputs are what a loop
                           leaves, whose step is recorded once: record/replayed.h */
    KILN__CONSTANT,     /* one value, repeated over the shape */
    KILN__ELEMENTWISE,  /* a row of elementwise.def; operands broadcast */
    KILN__CAST,         /* to the node's type */
    KILN__REDUCE,       /* a row of reduce.def over the axes of a mask, which it drops */
    KILN__VIEW,         /* transpose, slice, broadcast: the input's elements at affine positions */
    KILN__RESHAPE,      /* the input's elements in row-major order */
    KILN__MATMUL,       /* [..., m, k] times [..., k, n] with equal leading dimensions */
    KILN__ATTENTION,    /* softmax of queries times keys, times values: graph/attention.h */
    KILN__SCAN,         /* running sums along the one axis of a mask */
    KILN__INSERT_SLICE, /* the second input with the first put where a view finds it; without a
                           second input the elements beside the part are undefined */
    KILN__IOTA,         /* i32: the row-major number of each element; read without any memory */
    KILN__GATHER,       /* numpy.take(data, indices, axis): [data[:axis], indices, data[axis+1:]] */
    KILN__SCATTER, /* values, indices, base: the base with each value, in their order, put, added,
                      ... (a kiln_scatter_mode, or KILN__SCATTER_DISTINCT) where its index is */
    KILN__SORT, /* i32: where, along the last dimension, the element is that comes there in order;
                   of the first few, if it has fewer along it */
    KILN__ATTENTION_BACKWARD, /* what the gradient of attention is made of:
                                 graph/attention_backward.h */
    KILN__CUSTOM              /* an output of a kernel of the program's own: graph/custom_calls.h */
};

/* A cast to the type that its input has can mark where gradients end. Integers that become shorter
 * ones wrap around; what is an index stays beyond a range instead. */
enum kiln__cast_name { KILN__CAST_PLAIN, KILN__DETACH, KILN__CAST_SATURATED };

/* How a product adds up: in f32; on tensor cores, with operands rounded to tf32, or as sums of
 * three such products (both may be more exact); in f32, of operands that are stored in a narrow
 * type (rewrite/narrow.c makes an exact one of it); or, of whole numbers from -128 to 127, exactly,
 * rounded once. All but the last are numbered as kiln_precision has them, from 0 on. */
enum kiln__product_name {
    KILN__PRODUCT_EXACT,
    KILN__PRODUCT_TF32,
    KILN__PRODUCT_F32X3,
    KILN__PRODUCT_BF16,
    KILN__PRODUCT_F16,
    KILN__PRODUCT_EXACT_INTEGER
};

/* What a gather gives where its index is none of the data's: NaN, of integers 0; or 0. */
enum kiln__gather_name { KILN__GATHER_OPEN, KILN__GATHER_PADDED };

/* As many products of i8 have a sum of at most 2^24: -128 * -128 is 2^14. More are added up in
 * parts, or not in f32. */
#define KILN__INTEGERS_IN_F32 1024

/* Where a scan starts. */
enum kiln__scan { KILN__SCAN_FORWARD, KILN__SCAN_BACKWARD };

/* Which element a sort puts first. */
enum kiln__sort { KILN__SORT_ASCENDING, KILN__SORT_DESCENDING };

/* The inputs of a SCATTER. */
enum { KILN__SCATTER_VALUES, KILN__SCATTER_INDICES, KILN__SCATTER_BASE };

/* A scatter that puts values where no two indices are the same, as parts of a slice: in any order,
 * and as they are stored. */
enum { KILN__SCATTER_DISTINCT = KILN_SCATTER_MAX + 1 };

/* What a view is called in texts; it makes no other difference. */
enum kiln__view_name {
    KILN__TRANSPOSE,
    KILN__SLICE,
    KILN__BROADCAST,
    KILN__VIEW_COMPOSED,
    KILN__WINDOWS
};

/* A strided view: element (i0, i1, ...) is the input's element whose index in dimension d is
 * start[d] plus the sum of step[k] * i_k over the dimensions k with source[k] == d. An insertion
 * (KILN__INSERT_SLICE) writes through its view of the result, so no two elements may coincide
 * there. */
struct kiln__view {
    int8_t source[KILN_MAX_RANK]; /* per dimension of the view: dimension of the input, or -1 */
    int64_t step[KILN_MAX_RANK];  /* per dimension of the view; 0 repeats */
    int64_t start[KILN_MAX_RANK]; /* per dimension of the input */
};

/* Which of attention_backward.h. */
enum kiln__attention_backward_result {
    KILN__BACKWARD_LOG_SUM_EXP,
    KILN__BACKWARD_VALUES,
    KILN__BACKWARD_KEYS,
    KILN__BACKWARD_QUERIES,
    KILN__BACKWARD_BOTH /* of no node: what a kernel computes for two, KEYS and VALUES */
};

/* Of an attention, and of its backward nodes. Scores are scaled; query i of a causal node sees keys
 * 0 to i + diagonal, which counts from the last queries' own keys where there are lengths
 * (attention.h). The node's op is the type that its weights may be rounded to before they meet the
 * values, or 0. */
struct kiln__attention {
    double scale;
    int64_t diagonal;
    uint64_t causal;
    uint64_t backward_result; /* ATTENTION_BACKWARD: enum kiln__attention_backward_result */
    uint64_t product; /* ATTENTION: a narrow enum kiln__product_name, or KILN__PRODUCT_EXACT */
    int64_t window;   /* ATTENTION: keys that a row sees at most, up to its place; 0: all */
    uint64_t lengths; /* ATTENTION: whether its last input says how many keys there are */
};

/* An output of a call, whose other outputs are nodes of their own with the same inputs. */
struct kiln__custom_node {
    const struct kiln__custom *call; /* held by the graph */
    uint64_t output;
};

#define KILN__MOST_INPUTS 9

/* Rows of a product from which on packing the weights anew in every run takes a hundredth of its
 * time; keeping them packed takes as much memory as the weights. */
#define KILN__MANY_ROWS 1024

/* Compared and hashed as bytes, which kiln__node_copy() makes possible. */
struct kiln__node {
    enum kiln__kind kind : 8;
    uint8_t op; /* enum kiln__elementwise, kiln__reduction, kiln__cast_name, kiln__view_name,
                   kiln__product_name, kiln__gather_name or kiln_scatter_mode, and
                   KILN__SCATTER_DISTINCT */
    kiln_type type : 8;
    uint8_t n_inputs;
    uint32_t input[KILN__MOST_INPUTS];
    struct kiln__shape shape;
    union {
        double value;     /* CONSTANT: as ops.h says of values */
        uint64_t binding; /* UPLOAD, IMPORT: its number among the batch's inputs */
        uint64_t axes;    /* REDUCE, SCAN: bit d is set if the input's dimension d is reduced */
        uint64_t axis;    /* GATHER, SCATTER */
        struct kiln__view view;           /* VIEW, INSERT_SLICE */
        struct kiln__attention attention; /* ATTENTION, ATTENTION_BACKWARD */
        struct kiln__custom_node custom;  /* CUSTOM */
    };
};
_Static_assert(offsetof(struct kiln__node, input) == 4, "no padding before the inputs");
_Static_assert(KILN_CUSTOM_INPUTS <= KILN__MOST_INPUTS, "a node has room for them");

enum kiln__request_kind { KILN__READ, KILN__EXPORT };

/* A result that was asked for; its number is its binding among the batch's results. */
struct kiln__request {
    uint32_t node;
    enum kiln__request_kind kind;
    uint32_t replaces; /* EXPORT: 1 + the input that is the same buffer; 0: none, or several */
};

/* An operation and the one that does the same for it at other elements. */
struct kiln__sunk_copy {
    uint32_t node, copy;
};

/* Of a node where some values are computed more than once, for want of memory
 * (memory/rematerialise_graph.h). */
struct kiln__rematerialised {
    uint32_t since; /* its kernel is begun by this node or a later one */
    bool held;      /* it goes to memory: one of these values */
    uint32_t of;    /* not 0: it is a copy, and the node of number of - 1 does the same */
};

struct kiln__graph {
    KILN__VECTOR(struct kiln__node) nodes;
    KILN__VECTOR(struct kiln__request) requests;
    bool batch_invariant;              /* products add up in the same order whatever their size */
    const struct kiln__labels *labels; /* of a recorded graph, not owned; NULL: it has none */
    KILN__VECTOR(const struct kiln__custom *) calls; /* that nodes name, each once */
    /* Of a rewritten graph, per node of the one that was recorded: what became of it. */
    KILN__VECTOR(uint32_t) became;
    /* Operations that the last pass copied to another place. If the original has no users left,
     * `became` follows the copy. */
    KILN__VECTOR(struct kiln__sunk_copy) sunk_copies;
    KILN__VECTOR(struct kiln__rematerialised) rematerialised; /* per node; or none */
};

#define KILN__DROPPED UINT32_MAX

void kiln__graph_free(struct kiln__graph *graph);

/* Let go of the calls, whose nodes are no more. */
void kiln__graph_drop_calls(struct kiln__graph *graph);

/* Move what it consists of into one piece of memory, now that it is complete. */
void kiln__graph_pack(struct kiln__graph *graph, struct kiln__pack *pack);

/* Copy a node so that equal nodes have equal bytes: padding and unused members are zero. */
void kiln__node_copy(struct kiln__node *to, const struct kiln__node *from);

/* Append a copy of `node`, and hold what it names; false without memory. */
bool kiln__graph_add(struct kiln__graph *graph, const struct kiln__node *node, uint32_t *index);

static inline const struct kiln__node *kiln__graph_input(const struct kiln__graph *graph,
                                                         const struct kiln__node *node, unsigned i)
{
    return &graph->nodes.items[node->input[i]];
}

/* Ask `to` for what `from` is asked for, whose node i is number map[i] there; false without memory.
 */
bool kiln__graph_pass_requests(const struct kiln__graph *from, const uint32_t *map,
                               struct kiln__graph *to);

/* A copy of all that `from` has; false without memory, `to` is to be freed then too. */
bool kiln__graph_copy(const struct kiln__graph *from, struct kiln__graph *to);

size_t kiln__node_count(const struct kiln__node *node);
size_t kiln__node_bytes(const struct kiln__node *node);
bool kiln__node_is_input(const struct kiln__node *node);
bool kiln__node_is_floating(const struct kiln__node *node);   /* its type */
kiln_type kiln__node_computed(const struct kiln__node *node); /* what operations read it as */

/* Whether operand `k` is taken as it is stored; otherwise it is of a type that is computed in. */
bool kiln__node_takes_stored(const struct kiln__node *node, unsigned k);

/* Whether the node is of a type of blocks, as inputs alone are; and whether operand `k` may be,
 * which a gather reads as f32. */
bool kiln__node_has_blocks(const struct kiln__node *node);
bool kiln__node_takes_blocks(const struct kiln__node *node, unsigned k);

/* Of a scan: its axis, and how far apart neighbours along it are in a dense tensor. */
uint32_t kiln__scan_axis(const struct kiln__node *node);
size_t kiln__scan_stride(const struct kiln__node *node);

/* Operations that are fused: elementwise rows and casts. */
bool kiln__node_is_pointwise(const struct kiln__node *node);

/* Those and gathers: what kernels compute in registers where it is used. */
bool kiln__node_is_computed(const struct kiln__node *node);

/* Reductions and scans: what goes over the rows of its input, along its axes. */
bool kiln__node_goes_over_rows(const struct kiln__node *node);

/* Whether it puts a part over its base that a map can store at once: elsewhere for each element. */
bool kiln__node_puts_part(const struct kiln__node *node);

/* Operations that only say where elements are: views and reshapes. */
bool kiln__node_is_movement(const struct kiln__node *node);

/* The row-major number, in a tensor of shape `input`, of the element that a view shows at `index`
 * of its `rank` dimensions. */
size_t kiln__view_number(const struct kiln__view *view, uint32_t rank, const size_t *index,
                         const struct kiln__shape *input);

/* The lowest and the highest index of each dimension of the input that a view of `shape`, which has
 * elements, shows. */
void kiln__view_range(const struct kiln__view *view, const struct kiln__shape *shape,
                      uint32_t input_rank, int64_t *low, int64_t *high);

/* The view that shows all `rank` dimensions as they are. */
struct kiln__view kiln__view_straight(uint32_t rank);

/* Whether a view of `shape` shows all of an input of shape `input` as it is. */
bool kiln__view_is_identity(const struct kiln__view *view, const struct kiln__shape *shape,
                            const struct kiln__shape *input);

/* The operand that is below what an insertion or a scatter puts on it; none: UINT32_MAX. */
uint32_t kiln__node_base(const struct kiln__node *node);

/* "add", "sum", "transpose", ... */
const char *kiln__node_name(const struct kiln__node *node);

/* "exact", "tf32", "f32x3", "bf16", "f16", "whole": of enum kiln__product_name; NULL beyond. */
const char *kiln__product_name_text(size_t name);

/* The narrow type of operands that such a product asks for; 0: of none. */
kiln_type kiln__product_narrow(size_t name);

/* That of a product or an attention; and of the first such node of a graph. */
kiln_type kiln__node_narrow(const struct kiln__node *node);
kiln_type kiln__graph_narrow(const struct kiln__graph *graph);

/* Per node whether a request needs it; the caller frees. NULL without memory. */
bool *kiln__graph_needed(const struct kiln__graph *graph);

/* Check what every stage relies on: order of inputs, types, shapes. Returns NULL, or says what is
 * wrong with which node in `text`. */
const char *kiln__graph_verify(const struct kiln__graph *graph, char text[160]);

/* One line per node: '%3 f32[4,8] = add %1 %2 "its name"'. */
void kiln__graph_dump(const struct kiln__graph *graph, struct kiln__text *text);
void kiln__node_dump(const struct kiln__graph *graph, uint32_t index, struct kiln__text *text);
