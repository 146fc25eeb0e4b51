/* SPDX-License-Identifier: Apache-2.0 */
/* From the spans of a trace to a row for each kind. */
#include <stdlib.h>
#include <string.h>

#include "profile.h"

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static double number_of(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static int by_kind(const void *a, const void *b)
{
    const struct kiln__profile_row *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (!order)
        order = strcmp(x->what, y->what);
    return order ? order : strcmp(x->shapes, y->shapes);
}

static int by_names(const struct kiln__profile_row *x, const struct kiln__profile_row *y)
{
    void *a = json_object_iter(x->names), *b = json_object_iter(y->names);
    int order = 0;
    while (a && b && !order) {
        order = strcmp(json_object_iter_key(a), json_object_iter_key(b));
        a = json_object_iter_next(x->names, a);
        b = json_object_iter_next(y->names, b);
    }
    return order ? order : (a != NULL) - (b != NULL);
}

static int by_kind_and_names(const void *a, const void *b)
{
    int order = by_kind(a, b);
    return order ? order : by_names(a, b);
}

static int by_time(const void *a, const void *b)
{
    const struct kiln__profile_row *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static json_t *names_of(const json_t *arguments)
{
    json_t *names = json_object();
    size_t index;
    const json_t *name;
    json_array_foreach(json_object_get(arguments, "names"), index, name)
    {
        json_object_set_new(names, json_string_value(name), json_null());
    }
    return names;
}

static struct kiln__profile_row row_of(const json_t *event)
{
    const json_t *arguments = json_object_get(event, "args");
    return (struct kiln__profile_row){
        .name = text_of(event, "name"),
        .what = text_of(arguments, "what"),
        .shapes = text_of(arguments, "shapes"),
        .names = names_of(arguments),
        .count = 1,
        .seconds = number_of(event, "dur") / 1e6,
        .operations = number_of(arguments, "operations"),
        .bytes = number_of(arguments, "bytes"),
    };
}

/* Sorted rows of the same kind become one. */
static size_t join(struct kiln__profile_row *rows, size_t count,
                   int (*order)(const void *, const void *))
{
    size_t kinds = 0;
    for (size_t i = 0; i < count; i++) {
        if (!kinds || order(&rows[kinds - 1], &rows[i])) {
            rows[kinds++] = rows[i];
            continue;
        }
        struct kiln__profile_row *row = &rows[kinds - 1];
        row->count += rows[i].count;
        row->seconds += rows[i].seconds;
        row->operations += rows[i].operations;
        row->bytes += rows[i].bytes;
        json_object_update_missing(row->names, rows[i].names);
        json_decref(rows[i].names);
    }
    return kinds;
}

static void take_spans(const json_t *events, struct kiln__profile *profile)
{
    size_t index;
    json_t *event;
    double first = 0, last = 0;
    json_array_foreach(events, index, event)
    {
        const char *phase = text_of(event, "ph");
        if (!strcmp(phase, "M") && !profile->device[0])
            snprintf(profile->device, sizeof profile->device, "%s",
                     text_of(json_object_get(event, "args"), "name"));
        if (strcmp(phase, "X"))
            continue;
        double begin = number_of(event, "ts") / 1e6;
        struct kiln__profile_row *row = &profile->rows[profile->count++];
        *row = row_of(event);
        first = profile->count == 1 || begin < first ? begin : first;
        last = begin + row->seconds > last ? begin + row->seconds : last;
        profile->seconds += row->seconds;
    }
    profile->span = last - first;
}

bool kiln__profile_read(const char *path, bool by_name, struct kiln__profile *profile)
{
    int (*order)(const void *, const void *) = by_name ? by_kind_and_names : by_kind;
    json_error_t error;
    *profile = (struct kiln__profile){.trace = json_load_file(path, 0, &error)};
    const json_t *events = json_object_get(profile->trace, "traceEvents");
    if (events)
        profile->rows = calloc(json_array_size(events) + 1, sizeof *profile->rows);
    if (!profile->rows) {
        fprintf(stderr, "kiln profile: %s is no trace: %s\n", path,
                profile->trace ? "it has no events, or there is no memory for them" : error.text);
        kiln__profile_free(profile);
        return false;
    }
    take_spans(events, profile);
    qsort(profile->rows, profile->count, sizeof *profile->rows, order);
    profile->count = join(profile->rows, profile->count, order);
    qsort(profile->rows, profile->count, sizeof *profile->rows, by_time);
    return true;
}

void kiln__profile_free(struct kiln__profile *profile)
{
    for (size_t i = 0; i < profile->count; i++)
        json_decref(profile->rows[i].names);
    free(profile->rows);
    json_decref(profile->trace);
    *profile = (struct kiln__profile){0};
}

double kiln__profile_share(const struct kiln__profile *profile, const struct kiln__profile_row *row)
{
    if (row->seconds <= 0 || profile->peaks.bytes <= 0 || !row->what[0])
        return -1;
    double arithmetic = row->operations / row->seconds / profile->peaks.operations;
    double memory = row->bytes / row->seconds / profile->peaks.bytes;
    return arithmetic > memory ? arithmetic : memory;
}
