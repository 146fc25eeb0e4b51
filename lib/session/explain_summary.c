/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in few words: its launches, and what it takes as a whole. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>

#include "plan/launch_text.h"
#include "plan/names.h"
#include "session/explain.h"

struct totals {
    size_t recorded, left; /* operations, before and after rewriting */
    size_t uploads, downloads, copies;
    uint64_t operations, bytes;
};

static size_t operations_in(const struct kiln__graph *graph)
{
    size_t count = 0;
    for (size_t i = 0; i < graph->nodes.count; i++)
        count += !kiln__node_is_input(&graph->nodes.items[i]) &&
                 graph->nodes.items[i].kind != KILN__CONSTANT;
    return count;
}

static struct totals totals_of(const struct kiln__graph *recorded, const struct kiln__plan *plan)
{
    struct totals totals = {.recorded = operations_in(recorded),
                            .left = operations_in(&plan->fusion.graph)};
    for (size_t i = 0; i < plan->steps.count; i++) {
        totals.uploads += plan->steps.items[i].kind == KILN__STEP_UPLOAD;
        totals.downloads += plan->steps.items[i].kind == KILN__STEP_DOWNLOAD;
        totals.copies += plan->steps.items[i].kind == KILN__STEP_COPY;
    }
    for (uint32_t i = 0; i < plan->launches.count; i++) {
        totals.operations += kiln__launch_operations(plan, i);
        totals.bytes += plan->launches.items[i].bytes;
    }
    return totals;
}

/* That of the first product that is not to be exact, or "exact". */
static const char *precision_of(const struct kiln__graph *graph)
{
    size_t name = KILN__PRODUCT_EXACT;
    for (size_t i = 0; i < graph->nodes.count && name == KILN__PRODUCT_EXACT; i++) {
        const struct kiln__node *node = &graph->nodes.items[i];
        name = node->kind == KILN__ATTENTION ? node->attention.product
               : node->kind != KILN__MATMUL || node->op == KILN__PRODUCT_EXACT_INTEGER
                   ? KILN__PRODUCT_EXACT
                   : node->op;
    }
    return kiln__product_name_text(name);
}

void kiln__explain_summary(const struct kiln__graph *recorded, const struct kiln__plan *plan,
                           struct kiln__text *text)
{
    struct totals totals = totals_of(recorded, plan);
    struct kiln__names names;
    kiln__names_make(plan, recorded->labels, &names);
    const bool later = kiln__plan_joins_later(plan);
    kiln__text_add(text, "operations: %zu recorded, %zu left; launches: %zu; ", totals.recorded,
                   totals.left, later ? plan->launches.count : kiln__plan_enqueued(plan));
    if (later)
        kiln__text_add(text, "%zu once it has run often; ", kiln__plan_enqueued(plan));
    kiln__text_add(text, "uploads: %zu; downloads: %zu; copies: %zu; precision: %s\n",
                   totals.uploads, totals.downloads, totals.copies, precision_of(recorded));
    kiln__text_add(text,
                   "%.6g million operations on numbers, %.6g MB moved, %.6g MB saved by fusion, "
                   "%.6g MB of memory at once\n",
                   (double)totals.operations / 1e6, (double)totals.bytes / 1e6,
                   (double)plan->fusion.saved_bytes / 1e6, (double)kiln__plan_peak(plan) / 1e6);
    for (uint32_t i = 0; i < plan->launches.count; i++) {
        const struct kiln__launch *launch = &plan->launches.items[i];
        kiln__text_add(text, "%5u %s: ", i, launch->kernel);
        kiln__launch_operation_names(plan, i, text);
        kiln__names_append(&names, i, "\n      for ", ", ", text);
        kiln__text_add(text, "\n      ");
        kiln__launch_shapes(plan, i, text);
        kiln__text_add(text, "; %" PRIu64 " operations, %" PRIu64 " bytes\n",
                       kiln__launch_operations(plan, i), launch->bytes);
    }
    kiln__names_free(&names);
}

/* ---- JSON ---- */

static json_t *words_json(const struct kiln__plan *plan, uint32_t launch,
                          void (*write)(const struct kiln__plan *, uint32_t, struct kiln__text *))
{
    struct kiln__text text = {0};
    write(plan, launch, &text);
    json_t *json = json_string(text.data ? text.data : "");
    kiln__text_free(&text);
    return json;
}

static json_t *names_json(const struct kiln__names *names, uint32_t launch)
{
    const char *found[KILN__MOST_NAMES];
    size_t count = kiln__names_of(names, launch, found);
    json_t *json = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(json, json_string(found[i]));
    return json;
}

static json_t *launch_json(const struct kiln__names *names, uint32_t index)
{
    const struct kiln__plan *plan = names->plan;
    const struct kiln__launch *launch = &plan->launches.items[index];
    json_t *json = json_pack(
        "{s:s, s:o, s:o, s:o, s:i, s:I, s:I}", "kernel", launch->kernel, "what",
        words_json(plan, index, kiln__launch_operation_names), "names", names_json(names, index),
        "shapes", words_json(plan, index, kiln__launch_shapes), "group", (int)launch->group,
        "operations", (json_int_t)kiln__launch_operations(plan, index), "bytes",
        (json_int_t)launch->bytes);
    if (kiln__launch_is_by(launch, KILN__KERNEL_PRODUCT))
        json_object_set_new(json, "product", json_string(launch->choice.taken->name));
    if (launch->joined)
        json_object_set_new(json, "joined", json_integer(launch->joined - 1));
    return json;
}

void kiln__explain_json(const struct kiln__graph *recorded, const struct kiln__plan *plan,
                        struct kiln__text *text)
{
    struct totals totals = totals_of(recorded, plan);
    struct kiln__names names;
    json_t *launches = json_array();
    kiln__names_make(plan, recorded->labels, &names);
    for (uint32_t i = 0; i < plan->launches.count; i++)
        json_array_append_new(launches, launch_json(&names, i));
    json_t *root =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:s, s:I, s:I, s:I, s:I, s:o}", "recorded",
                  (json_int_t)totals.recorded, "left", (json_int_t)totals.left, "uploads",
                  (json_int_t)totals.uploads, "downloads", (json_int_t)totals.downloads, "copies",
                  (json_int_t)totals.copies, "precision", precision_of(recorded), "operations",
                  (json_int_t)totals.operations, "bytes", (json_int_t)totals.bytes, "saved_bytes",
                  (json_int_t)plan->fusion.saved_bytes, "peak_bytes",
                  (json_int_t)kiln__plan_peak(plan), "launches", launches);
    kiln__names_free(&names);
    char *line = root ? json_dumps(root, JSON_COMPACT) : NULL;
    if (line)
        kiln__text_add(text, "%s", line);
    text->failed = text->failed || !line;
    free(line);
    json_decref(root);
}
