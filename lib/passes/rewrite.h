/* SPDX-License-Identifier: Apache-2.0 */
/* The skeleton that passes share: copy a graph node by node, in order, through one rule. Nodes that
 * no request reaches are not copied. */
#ifndef KILN_PASSES_REWRITE_H
#define KILN_PASSES_REWRITE_H

#include "graph/graph.h"

#define KILN__NO_NODE UINT32_MAX

struct kiln__rewrite {
    const struct kiln__graph *from;
    struct kiln__graph *to;
    uint32_t *map;               /* node of `from` to node of `to` */
    uint32_t *from_uses;         /* users of each node of `from`, requests included */
    bool *for_product;           /* per node of `from`: a matrix product reads it, through movements
                                    that its strides can say */
    KILN__VECTOR(uint32_t) uses; /* the same for `to`, as far as copied */
    uint32_t *table;             /* scratch of the `common` rule: open-addressed node numbers */
    size_t table_size;
    uint32_t current;       /* node of `from` being copied */
    unsigned depth;         /* how deep the `sink` rule has gone */
    struct kiln__text *log; /* what changed, in words; NULL: not wanted */
};

/* Put `node`, whose inputs are nodes of `to`, into `to` in some form; returns the node that stands
 * for it, or KILN__NO_NODE without memory. */
typedef uint32_t kiln__rule(struct kiln__rewrite *rewrite, const struct kiln__node *node);

/* Run one rule over `graph`, which is replaced. False without memory. */
bool kiln__rewrite_run(struct kiln__graph *graph, kiln__rule *rule, struct kiln__text *log);

/* Append a node to `to`. */
uint32_t kiln__rewrite_add(struct kiln__rewrite *rewrite, const struct kiln__node *node);

/* Log what happened to the current node. */
void kiln__rewrite_say(struct kiln__rewrite *rewrite, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The rules. */
kiln__rule kiln__rule_dead, kiln__rule_fold, kiln__rule_common, kiln__rule_sink;

#endif
