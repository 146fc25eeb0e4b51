/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a run goes, from the trace that its context wrote. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "run_model.h"

/* "a, b", as far as there is room. */
static void join_names(const json_t *names, char *text, size_t size)
{
    size_t index, length = 0;
    const json_t *name;
    *text = 0;
    json_array_foreach(names, index, name) if (length < size) length += (size_t)snprintf(
        text + length, size - length, "%s%s", index ? ", " : "", json_string_value(name));
}

/* Mean times of the launches of the last runs; each run has the same ones in the same order. */
static bool add_up(const json_t *events, const struct run_times *times,
                   struct run_launches *launches)
{
    size_t all = times->runs * times->spans, first = json_array_size(events) - all;
    struct run_launch *items = calloc(times->spans, sizeof *items);
    if (!items)
        return false;
    for (size_t i = 0; i < all; i++) {
        const json_t *event = json_array_get(events, first + i);
        const json_t *arguments = json_object_get(event, "args");
        const char *name = json_string_value(json_object_get(event, "name"));
        double us = json_number_value(json_object_get(event, "dur"));
        struct run_launch *item = &items[i % times->spans];
        snprintf(item->name, sizeof item->name, "%s", name ? name : "");
        join_names(json_object_get(arguments, "names"), item->nodes, sizeof item->nodes);
        item->bytes = json_number_value(json_object_get(arguments, "bytes"));
        item->seconds += us * 1e-6 / (double)times->runs;
    }
    launches->items = items;
    launches->count = times->spans;
    return true;
}

bool run_read_trace(const char *path, const struct run_times *times, struct run_launches *launches)
{
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    const json_t *events = json_object_get(root, "traceEvents");
    bool fine = root && times->runs && times->spans &&
                json_array_size(events) / times->spans >= times->runs &&
                add_up(events, times, launches);
    if (!fine)
        fprintf(stderr, "kiln run: no profile: %s\n",
                root ? "the trace lacks launches of the runs" : error.text);
    json_decref(root);
    return fine;
}
