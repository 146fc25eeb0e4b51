/* SPDX-License-Identifier: Apache-2.0 */
/* The operators of a model that no row knows. */
#include <stdlib.h>
#include <string.h>

#include "onnx/graph.h"

static const char *text_of(const char *text)
{
    return text ? text : "";
}

struct missing {
    const struct kiln__onnx_node *node; /* the first */
    size_t count;
};

static bool same_operator(const struct kiln__onnx_node *a, const struct kiln__onnx_node *b)
{
    return a->version == b->version &&
           !strcmp(text_of(a->proto->op_type), text_of(b->proto->op_type)) &&
           !strcmp(kiln__onnx_domain(a->proto->domain), kiln__onnx_domain(b->proto->domain));
}

enum { MOST_MISSING = 256 };

static void find_missing(const struct kiln__onnx_graph *graph, struct missing *list, size_t *n)
{
    for (size_t k = 0; k < graph->n_nodes; k++) {
        const struct kiln__onnx_node *node = &graph->nodes[k];
        if (!node->live)
            continue;
        for (size_t i = 0; i < node->n_graphs; i++)
            if (node->graphs[i])
                find_missing(node->graphs[i], list, n);
        if (node->row)
            continue;
        size_t i = 0;
        while (i < *n && !same_operator(list[i].node, node))
            i++;
        if (i == MOST_MISSING)
            continue;
        if (i == *n)
            list[(*n)++] = (struct missing){node, 0};
        list[i].count++;
    }
}

kiln_status kiln__onnx_supported(const struct kiln__onnx_graphs *graphs)
{
    struct missing list[MOST_MISSING];
    size_t n = 0;
    find_missing(graphs->main, list, &n);
    if (n == 0)
        return KILN_OK;
    struct kiln__onnx_text text = {0};
    for (size_t i = 0; i < n; i++) {
        const Onnx__NodeProto *proto = list[i].node->proto;
        const char *domain = kiln__onnx_domain(proto->domain);
        kiln__onnx_say(&text, "%s%s%s%s of version %d (%zu time%s)", i ? ", " : "", domain,
                       *domain ? "." : "", text_of(proto->op_type), list[i].node->version,
                       list[i].count, list[i].count == 1 ? "" : "s");
    }
    kiln_status status = kiln__onnx_fail(
        KILN_UNSUPPORTED, "kiln_model_load: %zu operator%s that libkiln-onnx does not have: %s", n,
        n == 1 ? "" : "s", text.text ? text.text : "(no memory to say which)");
    free(text.text);
    return status;
}
