/* SPDX-License-Identifier: Apache-2.0 */
/* The ordered table of passes; each runs over the result of the one before, which is verified in
 * between. */
#include "rewrite/passes.h"

#include <stdlib.h>

#include "rewrite/rewrite.h"
#include "util/verify.h"

static bool is_narrow(const struct kiln__graph *graph, const struct kiln__kernel_support *support)
{
    (void)support;
    return kiln__graph_narrow(graph) != 0;
}

static bool has_pads(const struct kiln__graph *graph, const struct kiln__kernel_support *support)
{
    return support->reads_padded && kiln__rewrite_finds_pads(graph);
}

/* ---- whether a rule may find something: if not, it copies every node as it is ---- */

static bool multiplies_integers(const struct kiln__graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.items[i].kind == KILN__MATMUL &&
            graph->nodes.items[i].op == KILN__PRODUCT_EXACT_INTEGER)
            return true;
    return false;
}

static bool has_products(const struct kiln__graph *graph)
{
    size_t count = 0;
    for (size_t i = 0; i < graph->nodes.count; i++)
        count += graph->nodes.items[i].kind == KILN__MATMUL;
    return count > 1;
}

static bool views_inserted_slices(const struct kiln__graph *graph)
{
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.items[i].kind == KILN__VIEW &&
            graph->nodes.items[graph->nodes.items[i].input[0]].kind == KILN__INSERT_SLICE)
            return true;
    return false;
}

static const struct {
    const char *name;
    kiln__rule *rule;
    /* NULL: by every graph */
    bool (*wanted)(const struct kiln__graph *graph, const struct kiln__kernel_support *support);
    bool (*finds)(const struct kiln__graph *graph); /* NULL: in every graph, maybe */
} passes[] = {
    {"narrow", kiln__rewrite_narrow, is_narrow, NULL},
    /* first of most, so that later ones speak of live nodes only */
    {"dce", kiln__rewrite_split_integers, NULL, multiplies_integers},
    {"cse", kiln__rewrite_cse, NULL, NULL}, /* before sink, which asks how often a value is used */
    {"fold", kiln__rewrite_fold, NULL, NULL},
    {"sink", kiln__rewrite_sink, NULL, NULL},
    /* after fold, which knows that two values are one */
    {"merge", kiln__rewrite_merge, NULL, has_products},
    {"lift", kiln__rewrite_lift, NULL, NULL}, /* folds too: sunk views meet views */
    /* once it is known who reads them */
    {"windows", kiln__rewrite_depthwise, NULL, views_inserted_slices},
    {"cse", kiln__rewrite_cse, NULL, NULL}, /* views sunk from several places meet, and tables */
    {"pads", kiln__rewrite_pads, has_pads, NULL},
};

/* Whether some request needs each node. */
static bool is_all_live(const struct kiln__graph *graph)
{
    bool *needed = kiln__graph_needed(graph), all = needed;
    for (size_t i = 0; i < graph->nodes.count && all; i++)
        all = needed[i];
    free(needed);
    return all;
}

static kiln_status verify(const struct kiln__graph *graph, const char *pass,
                          struct kiln__error *error)
{
    char wrong[160];
    if (kiln__verifies && kiln__graph_verify(graph, wrong))
        return kiln__fail(error, KILN_WRONG_STATE, "kiln: pass %s left a broken graph: %s", pass,
                          wrong);
    return KILN_OK;
}

kiln_status kiln__rewrite(struct kiln__graph *graph, const struct kiln__kernel_support *support,
                          struct kiln__text *log, struct kiln__error *error)
{
    struct kiln__graph spare = {0};
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < sizeof passes / sizeof *passes && !status; i++) {
        if (passes[i].wanted && !passes[i].wanted(graph, support))
            continue;
        size_t before = graph->nodes.count;
        struct kiln__text changes = {0};
        bool runs = !passes[i].finds || passes[i].finds(graph) || !is_all_live(graph);
        bool done = !runs || kiln__rewrite_run(graph, &spare, passes[i].rule, support,
                                               log ? &changes : NULL);
        if (!runs)
            graph->sunk_copies.count = 0; /* nothing is dropped for which one of them stands */
        if (log)
            kiln__text_add(log, "%s: %zu nodes to %zu\n%s", passes[i].name, before,
                           graph->nodes.count, changes.data ? changes.data : "");
        kiln__text_free(&changes);
        status = done ? verify(graph, passes[i].name, error)
                      : kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for pass %s",
                                   passes[i].name);
    }
    kiln__graph_free(&spare);
    return status;
}
