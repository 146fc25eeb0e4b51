/* SPDX-License-Identifier: Apache-2.0 */
/* The ordered table of passes; each runs over the result of the one before, which is verified in
 * between. */
#include "rewrite/passes.h"

#include "rewrite/rewrite.h"
#include "util/verify.h"

static bool is_narrow(const struct kiln__graph *graph)
{
    return kiln__graph_narrow(graph) != 0;
}

static const struct {
    const char *name;
    kiln__rule *rule;
    bool (*wanted)(const struct kiln__graph *graph); /* NULL: by every graph */
} passes[] = {
    {"narrow", kiln__rewrite_narrow, is_narrow},
    /* first of most, so that later ones speak of live nodes only */
    {"dce", kiln__rewrite_split_integers, NULL},
    {"cse", kiln__rewrite_cse, NULL}, /* before sink, which asks how often a value is used */
    {"fold", kiln__rewrite_fold, NULL},
    {"sink", kiln__rewrite_sink, NULL},
    {"merge", kiln__rewrite_merge, NULL}, /* after fold, which knows that two values are one */
    {"lift", kiln__rewrite_lift, NULL},   /* folds too: sunk views meet views */
    {"windows", kiln__rewrite_depthwise, NULL}, /* once it is known who reads them */
    {"cse", kiln__rewrite_cse, NULL}, /* views sunk from several places meet, and tables */
};

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
        if (passes[i].wanted && !passes[i].wanted(graph))
            continue;
        size_t before = graph->nodes.count;
        struct kiln__text changes = {0};
        bool done =
            kiln__rewrite_run(graph, &spare, passes[i].rule, support, log ? &changes : NULL);
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
