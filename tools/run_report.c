/* SPDX-License-Identifier: Apache-2.0 */
/* What `kiln run` says, as text and as JSON. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "columns.h"
#include "run_model.h"

/* ---- text ---- */

/* "[batch, 128]": what ran, or what the file says. */
static void print_shape(const kiln_model_value *value, const kiln_array *array)
{
    size_t rank = array ? array->rank : value->rank;
    if (rank > KILN_MAX_RANK) {
        puts("of any shape");
        return;
    }
    putchar('[');
    for (size_t i = 0; i < rank; i++) {
        size_t dim = array ? array->dims[i] : value->dims[i];
        fputs(i ? ", " : "", stdout);
        if (array || dim)
            printf("%zu", dim);
        else
            fputs(value->symbols[i] ? value->symbols[i] : "?", stdout);
    }
    puts("]");
}

static void print_values(const char *what, const kiln_model_value *values, size_t count,
                         const kiln_array *arrays)
{
    for (size_t i = 0; i < count; i++) {
        kiln_type type = arrays ? arrays[i].type : values[i].type;
        printf("%-8s %-24s %-4s ", what, values[i].name, kiln_type_name(type));
        print_shape(&values[i], arrays ? &arrays[i] : NULL);
    }
}

void run_print_launches(const struct run_launches *launches)
{
    double total = 0;
    for (size_t i = 0; i < launches->count; i++)
        total += launches->items[i].seconds;
    printf("\n%4s %10s %6s %9s  %s\n", "", "us", "%", "GB/s", "kernel or transfer");
    for (size_t i = 0; i < launches->count; i++) {
        const struct run_launch *launch = &launches->items[i];
        const int printed =
            printf("%4zu %10.1f %6.1f %9.2f  ", i, launch->seconds * 1e6,
                   total > 0 ? 100 * launch->seconds / total : 0,
                   launch->seconds > 0 ? launch->bytes / launch->seconds * 1e-9 : 0);
        kiln__tool_print_rest(printed, "%s%s%s", launch->name, launch->nodes[0] ? ": " : "",
                              launch->nodes);
    }
    printf("%4s %10.1f  a run, on the device\n", "", total * 1e6);
}

void run_print_text(const struct run_request *request, const struct run_result *result)
{
    const kiln_model_value *inputs, *outputs;
    const kiln_model_lease *lease = result->lease;
    const struct run_times *times = &result->times;
    size_t input_count = kiln_model_inputs(result->model, &inputs);
    size_t output_count = kiln_model_outputs(result->model, &outputs);
    print_values("input", inputs, input_count, lease ? lease->inputs : NULL);
    print_values("output", outputs, output_count, lease ? lease->outputs : NULL);
    for (const char *notes = kiln_model_notes(result->model); *notes;) {
        size_t length = strcspn(notes, "\n");
        kiln__tool_print_rest(printf("%-8s ", "note"), "%.*s", (int)length, notes);
        notes += length + (notes[length] == '\n');
    }
    if (!lease)
        return;
    kiln__tool_print_rest(printf("%-8s ", "device"), "%s", result->device);
    kiln__tool_print_rest(printf("%-8s ", "memory"),
                          "%.1f MB of weights, %.1f MB beside them in a run",
                          (double)times->weight_bytes * 1e-6, (double)times->peak_bytes * 1e-6);
    kiln__tool_print_rest(printf("%-8s ", "time"), "%.3f s to load, %.3f s the first run",
                          times->load, times->first);
    if (times->runs)
        kiln__tool_print_rest(
            printf("%-8s ", ""), "%.3f ms a run (median of %zu; best %.3f, mean %.3f)",
            times->median * 1e3, times->runs, times->best * 1e3, times->mean * 1e3);
    if (request->validate)
        kiln__tool_print_rest(printf("%-8s ", "results"), "%s",
                              "agree with the host's in double precision, operation by operation");
}

/* ---- JSON ---- */

static json_t *shape_json(const kiln_model_value *value, const kiln_array *array)
{
    size_t rank = array ? array->rank : value->rank;
    json_t *shape = json_array();
    if (rank > KILN_MAX_RANK) {
        json_decref(shape);
        return json_null();
    }
    for (size_t i = 0; i < rank; i++) {
        size_t dim = array ? array->dims[i] : value->dims[i];
        const char *symbol = value->symbols[i];
        json_array_append_new(shape, array || dim ? json_integer((json_int_t)dim)
                                     : symbol     ? json_string(symbol)
                                                  : json_null());
    }
    return shape;
}

static json_t *values_json(const kiln_model_value *values, size_t count, const kiln_array *arrays)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const kiln_array *array = arrays ? &arrays[i] : NULL;
        json_array_append_new(list, json_pack("{s:s, s:s, s:o}", "name", values[i].name, "type",
                                              kiln_type_name(array ? array->type : values[i].type),
                                              "shape", shape_json(&values[i], array)));
    }
    return list;
}

void run_add_launches(json_t *root, const struct run_launches *launches)
{
    json_t *list = json_array();
    for (size_t i = 0; i < launches->count; i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s*, s:f, s:f}", "name", launches->items[i].name, "nodes",
                            launches->items[i].nodes, "seconds", launches->items[i].seconds,
                            "bytes", launches->items[i].bytes));
    json_object_set_new(root, "launches", list);
}

json_t *run_make_json(const struct run_request *request, const struct run_result *result)
{
    const kiln_model_value *inputs, *outputs;
    const kiln_model_lease *lease = result->lease;
    const struct run_times *times = &result->times;
    size_t input_count = kiln_model_inputs(result->model, &inputs);
    size_t output_count = kiln_model_outputs(result->model, &outputs);
    json_t *root =
        json_pack("{s:s, s:o, s:o, s:s}", "model", request->model, "inputs",
                  values_json(inputs, input_count, lease ? lease->inputs : NULL), "outputs",
                  values_json(outputs, output_count, lease ? lease->outputs : NULL), "notes",
                  kiln_model_notes(result->model));
    if (root && lease) {
        json_object_set_new(root, "device", json_string(result->device));
        json_object_set_new(root, "weight_bytes", json_integer((json_int_t)times->weight_bytes));
        json_object_set_new(root, "peak_bytes", json_integer((json_int_t)times->peak_bytes));
        json_object_set_new(root, "load_seconds", json_real(times->load));
        json_object_set_new(root, "first_seconds", json_real(times->first));
        json_object_set_new(root, "steady",
                            json_pack("{s:I, s:f, s:f, s:f}", "runs", (json_int_t)times->runs,
                                      "median_seconds", times->median, "best_seconds", times->best,
                                      "mean_seconds", times->mean));
        json_object_set_new(root, "validated", json_boolean(request->validate));
    }
    return root;
}
