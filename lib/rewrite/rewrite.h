/* SPDX-License-Identifier: Apache-2.0 */
/* The skeleton that passes share: copy a graph node by node, in order, through one rule. Nodes that
 * no request reaches are not copied. */
#pragma once

#include "graph/graph.h"
#include "graph/kernel_support.h"

#define KILN__NO_NODE UINT32_MAX

/* The positions that some elements have: none, or low to high in each dimension. */
struct kiln__box {
    bool empty;
    int64_t low[KILN_MAX_RANK], high[KILN_MAX_RANK];
};

/* Of an insertion (KILN__INSERT_SLICE) with a base: an insertion further down its chain, or what
 * the chain begins with, and a box around the parts from here to there. */
struct kiln__link {
    uint32_t node, jump;
    uint32_t depth; /* insertions from here to the chain's beginning */
    struct kiln__box box;
};

/* Who reads a node, through movements and as narrow as it is. */
enum kiln__reader {
    KILN__READ_BY_PRODUCT = 1,
    KILN__READ_BY_ATTENTION = 2,
    KILN__READ_ONCE_COPIED = 4 /* a product, that cannot read it from where it would lie */
};

struct kiln__rewrite {
    const struct kiln__graph *from;
    struct kiln__graph *to;
    uint32_t *map;               /* node of `from` to node of `to`; KILN__NO_NODE: not yet */
    uint32_t *from_uses;         /* users of each node of `from`, requests included */
    uint8_t *readers;            /* per node of `from`: enum kiln__reader, a bit each */
    KILN__VECTOR(uint32_t) uses; /* the same for `to`, as far as copied */
    uint32_t *table;             /* scratch of the `cse` rule: open-addressed node numbers */
    size_t table_size;
    KILN__VECTOR(struct kiln__link) links; /* of `to`, ascending */
    uint32_t current;                      /* node of `from` being copied */
    unsigned depth;                        /* how deep the `sink` rule has gone */
    KILN__VECTOR(struct kiln__sunk {
        struct kiln__node moved;
        uint32_t result;
    })
    sunk;                        /* and what it has done on the way */
    struct kiln__merge *merge;   /* scratch of the `merge` rule; or NULL */
    struct kiln__narrow *narrow; /* that of the `narrow` rule */
    struct kiln__pads *pads;     /* that of the `pads` rule */
    const struct kiln__kernel_support *support;
    struct kiln__text *log; /* what changed, in words; NULL: not wanted */
    uint32_t (*rule)(struct kiln__rewrite *rewrite, const struct kiln__node *node);
};

/* Put `node`, whose inputs are nodes of `to`, into `to` in some form; returns the node that stands
 * for it, or KILN__NO_NODE without memory. */
typedef uint32_t kiln__rule(struct kiln__rewrite *rewrite, const struct kiln__node *node);

/* Run one rule over `graph`, which is replaced. What it was is left in `spare`, whose memory the
 * result takes over. False without memory. */
bool kiln__rewrite_run(struct kiln__graph *graph, struct kiln__graph *spare, kiln__rule *rule,
                       const struct kiln__kernel_support *support, struct kiln__text *log);

/* The copy of a node of `from`, made now, with all that it is made of, if it is not there yet: of
 * one that comes after the current one, too, as long as it is made of nothing that is being copied.
 */
uint32_t kiln__rewrite_copy(struct kiln__rewrite *rewrite, uint32_t index);

/* Let node `to` be what becomes of `from`, which is not copied any more. */
void kiln__rewrite_replace(struct kiln__rewrite *rewrite, uint32_t from, uint32_t to);

static inline const struct kiln__node *kiln__rewrite_at(const struct kiln__rewrite *rewrite,
                                                        uint32_t index)
{
    return &rewrite->to->nodes.items[index];
}

/* Append a node to `to`. */
uint32_t kiln__rewrite_add(struct kiln__rewrite *rewrite, const struct kiln__node *node);

/* The same of one that does what the node `index` of `to` does, at other elements. */
uint32_t kiln__rewrite_clone_at(struct kiln__rewrite *rewrite, uint32_t index,
                                const struct kiln__node *node);

/* insert_chain.c: note an insertion that has a base; false without memory. */
bool kiln__rewrite_add_link(struct kiln__rewrite *rewrite, uint32_t index);

/* From the insertion `index` down its chain as far as long stretches show nothing of what is seen:
 * the node where to look on. */
uint32_t kiln__rewrite_skip_links(const struct kiln__rewrite *rewrite, uint32_t index,
                                  const struct kiln__box *seen);

/* What a view of `shape` shows of an input of `rank` dimensions. */
struct kiln__box kiln__rewrite_box(const struct kiln__view *view, const struct kiln__shape *shape,
                                   uint32_t rank);
bool kiln__rewrite_boxes_overlap(const struct kiln__box *a, const struct kiln__box *b);

/* Elementwise operations that a parameter is looked through. */
#define KILN__PARAMETER_DEPTH 6

/* Whether `node` of `to` is made from what comes from outside alone, by movements and a few
 * elementwise operations: a bias, or a deviation that becomes a factor. */
bool kiln__rewrite_depends_on_inputs_only(const struct kiln__rewrite *rewrite,
                                          const struct kiln__node *node, unsigned deeper);

/* Log what happened to the current node. */
void kiln__rewrite_log(struct kiln__rewrite *rewrite, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* lift_update.c: an update of a buffer whose values come out of a reshape, done before it. False:
 * it is none. `result` is as a rule's. */
bool kiln__rewrite_lift_update(struct kiln__rewrite *rewrite, const struct kiln__node *node,
                               uint32_t *result);

/* The rules. */
kiln__rule kiln__rewrite_fold, kiln__rewrite_cse, kiln__rewrite_sink, kiln__rewrite_lift;
kiln__rule kiln__rewrite_merge;
void kiln__rewrite_free_merge(struct kiln__rewrite *rewrite);
kiln__rule kiln__rewrite_narrow;
void kiln__rewrite_free_narrow(struct kiln__rewrite *rewrite);
kiln__rule kiln__rewrite_pads; /* last: sunk views are not read between padding any more */
bool kiln__rewrite_finds_pads(const struct kiln__graph *graph);
void kiln__rewrite_free_pads(struct kiln__rewrite *rewrite);
kiln__rule kiln__rewrite_split_integers, kiln__rewrite_depthwise;
