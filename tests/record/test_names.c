/* SPDX-License-Identifier: Apache-2.0 */
/* What the caller calls tensors, and how calls are counted: in errors, explanations, traces. Most
 * of it needs no device. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/elementwise.h>
#include <kiln/reductions.h>

#include "../support/context.h"
#include "../support/file.h"
#include "../support/graph.h"
#include "plan/names.h"
#include "session/explain.h"

#define DIMS(...) sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t), ((size_t[]){__VA_ARGS__})

/* ---- errors ---- */

Test(names, errors_count_calls_and_name_operands)
{
    static const char sentence[] =
        "kiln_add, call 4: shapes [4,8] and [4,7] do not broadcast (a is \"layer3.q\")";
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = kiln_name(batch, imagine_matrix(batch, 4, 8), "layer3.q");
    kiln_tensor y = imagine_matrix(batch, 4, 7);
    kiln_layer_norm(batch, x, y, y, 1, (int[]){1}, 1e-5);
    cr_expect(strstr(kiln_batch_error(batch), "kiln_layer_norm, call 3: "), "%s",
              kiln_batch_error(batch));
    expect_ok(kiln_batch_reset(batch));
    x = kiln_name(batch, imagine_matrix(batch, 4, 8), "layer3.q");
    y = imagine_matrix(batch, 4, 7);
    kiln_softmax(batch, x, 1, (int[]){1});
    cr_expect_eq(kiln_add(batch, x, y).id, 0u);
    cr_expect_str_eq(kiln_batch_error(batch), sentence);
    cr_expect_str_eq(kiln_last_error(), sentence);
    kiln_mul(batch, x, y);
    cr_expect_str_eq(kiln_batch_error(batch), sentence);
    kiln_batch_release(batch);
}

Test(names, both_operands_are_named_each_once)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor a = kiln_name(batch, imagine_matrix(batch, 4, 8), "left");
    kiln_tensor b = kiln_name(batch, imagine_matrix(batch, 4, 7), "right");
    kiln_matmul(batch, a, b);
    cr_expect(strstr(kiln_batch_error(batch), " (a is \"left\", b is \"right\")"), "%s",
              kiln_batch_error(batch));
    kiln_batch_release(batch);
}

Test(names, a_call_within_a_call_is_part_of_it)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine(batch, DIMS(1, 5, 5, 2));
    kiln_tensor w = imagine(batch, DIMS(3, 3, 2, 4));
    kiln_window_options options = KILN_WINDOW_OPTIONS_INIT;
    options.before[0] = SIZE_MAX / 4;
    kiln_conv2d(batch, x, w, &options);
    cr_expect_str_eq(
        kiln_batch_error(batch),
        "kiln_conv2d, call 3: kiln_pad: shape [1,5,5,2] is padded to too many elements");
    kiln_batch_release(batch);
    cr_expect_null(kiln_batch_create(NULL));
    cr_expect_str_eq(kiln_last_error(), "kiln_batch_create: context is NULL");
}

Test(names, a_tensor_of_another_batch_takes_none)
{
    kiln_batch *batch = imagined_batch(), *other = imagined_batch();
    kiln_tensor x = imagine_vector(other, 4);
    cr_expect_eq(kiln_name(batch, x, "x").id, 0u);
    expect_error(kiln_batch_status(batch), KILN_INVALID_HANDLE,
                 "kiln_name: operand tensor is a tensor of another batch, or of this one before a "
                 "reset");
    cr_expect_eq(kiln_name(NULL, x, "x").id, 0u);
    cr_expect_eq(kiln_name_calls(NULL, "x"), KILN_INVALID_ARGUMENT);
    cr_expect_eq(kiln_name_calls(batch, "x"), KILN_INVALID_HANDLE);
    kiln_batch_release(batch);
    kiln_batch_release(other);
}

/* ---- names themselves ---- */

static const char *name_of(const kiln_batch *batch, kiln_tensor tensor)
{
    return kiln__labels_name(&batch->labels, kiln__tensor_index(tensor));
}

Test(names, are_replaced_and_taken_away_and_shown_as_text)
{
    char longest[400];
    memset(longest, 'n', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 4);
    cr_expect_null(name_of(batch, x));
    cr_expect_str_eq(name_of(batch, kiln_name(batch, x, "one")), "one");
    cr_expect_str_eq(name_of(batch, kiln_name(batch, x, "two")), "two");
    cr_expect_null(name_of(batch, kiln_name(batch, x, NULL)));
    kiln_name(batch, x, "a\nb\033[1mc\xc3\xa9\xff\xc0\xaf\xed\xa0\x80.");
    cr_expect_str_eq(name_of(batch, x), "a?b?[1mc\xc3\xa9??????.");
    cr_expect_eq(strlen(name_of(batch, kiln_name(batch, x, longest))), 200u);
    expect_ok(kiln_batch_reset(batch));
    cr_expect_null(name_of(batch, imagine_vector(batch, 4)));
    kiln_batch_release(batch);
}

Test(names, of_a_result_are_those_of_its_whole_call)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8);
    uint32_t first = (uint32_t)batch->graph.nodes.count;
    kiln_tensor y = kiln_name(batch, kiln_softmax(batch, x, 1, (int[]){1}), "weights");
    for (uint32_t i = first; i <= kiln__tensor_index(y); i++)
        cr_expect_str_eq(kiln__labels_name(&batch->labels, i), "weights");
    cr_expect_null(name_of(batch, x));
    cr_expect_null(name_of(batch, kiln_relu(batch, y)));
    kiln_batch_release(batch);
}

Test(names, of_calls_are_those_of_what_they_record)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8);
    expect_ok(kiln_name_calls(batch, "layer"));
    kiln_tensor y = kiln_relu(batch, x), z = kiln_name(batch, kiln_exp(batch, x), "own");
    expect_ok(kiln_name_calls(batch, NULL));
    kiln_tensor u = kiln_exp(batch, y);
    cr_expect_null(name_of(batch, x));
    cr_expect_str_eq(name_of(batch, y), "layer");
    cr_expect_str_eq(name_of(batch, z), "own");
    cr_expect_null(name_of(batch, u));
    kiln_batch_release(batch);
}

Test(names, of_gradients_say_of_what)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 8), w = imagine_matrix(batch, 8, 8), gradients[2];
    kiln_tensor q = kiln_name(batch, kiln_matmul(batch, x, w), "layer3.q");
    kiln_tensor loss = kiln_sum(batch, kiln_exp(batch, q), 0, NULL, 0);
    expect_ok(kiln_grad(batch, loss, (kiln_tensor[]){x, w}, 2, gradients));
    cr_expect_str_eq(name_of(batch, gradients[0]), "gradient of layer3.q");
    kiln_name(batch, gradients[0], "dx");
    cr_expect_str_eq(name_of(batch, gradients[0]), "dx");
    cr_expect_str_eq(name_of(batch, gradients[1]), "gradient of layer3.q");
    cr_expect_null(name_of(batch, kiln_relu(batch, x)));
    kiln_batch_release(batch);
}

/* ---- explanations ---- */

/* A product with an epilogue and heads apart, a sum, and a named value that nobody asks for. */
static kiln_batch *record(kiln_context *context, const char *q, const char *sum)
{
    static float values[64], results[64];
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, DIMS(4, 8), values);
    kiln_tensor w = kiln_upload(batch, KILN_F32, DIMS(8, 8), values);
    kiln_tensor y = kiln_name(batch, kiln_matmul(batch, x, w), q);
    y = kiln_name(batch, kiln_relu(batch, y), "relu");
    kiln_tensor heads = kiln_reshape(batch, y, DIMS(4, 2, 4));
    heads = kiln_name(batch, kiln_transpose(batch, heads, (size_t[]){1, 0, 2}), "heads");
    kiln_tensor z = kiln_name(batch, kiln_sum(batch, heads, 1, (int[]){2}, 0), sum);
    kiln_name(batch, kiln_exp(batch, x), "nobody");
    kiln_read(batch, z, results, 8 * sizeof *results);
    expect_ok(kiln_batch_status(batch));
    return batch;
}

Test(names, stand_in_explanations)
{
    kiln_batch *batch = record(imagined_cpu(), "layer3.q", "sums");
    char *text;
    expect_ok(kiln_batch_explain(batch, &text));
    cr_expect(strstr(text, "= matmul %0 %1 \"layer3.q\"\n"), "%s", text);
    cr_expect(strstr(text, ", for layer3.q, relu, heads"), "%s", text);
    cr_expect(strstr(text, ", for sums"), "%s", text);
    kiln_free(text);
    kiln_batch_release(batch);
}

Test(names, stand_in_summaries_and_json)
{
    kiln_batch *batch = record(imagined_cpu(), "layer3.q", "sums \"\xc3\xa9\"");
    struct kiln__plan plan = plan_of(batch, true);
    struct kiln__text summary = {0}, json = {0};
    json_error_t error;
    kiln__explain_summary(&batch->graph, &plan, &summary);
    kiln__explain_json(&batch->graph, &plan, &json);
    cr_expect(strstr(summary.data, "      for layer3.q, relu, heads\n"), "%s", summary.data);
    json_t *root = json_loads(json.data, 0, &error);
    const json_t *launches = json_object_get(root, "launches");
    const json_t *last = json_array_get(launches, json_array_size(launches) - 1);
    const json_t *names = json_object_get(last, "names");
    cr_expect_str_eq(json_string_value(json_array_get(names, 0)), "sums \"\xc3\xa9\"");
    json_decref(root);
    kiln__text_free(&summary);
    kiln__text_free(&json);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

/* Computed once for two names, and folded away under a third. */
Test(names, of_what_became_one_are_all_told)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_vector(batch, 64);
    kiln_tensor a = kiln_name(batch, kiln_exp(batch, x), "a");
    kiln_tensor b = kiln_name(batch, kiln_exp(batch, x), "b");
    kiln_tensor c = kiln_name(batch, kiln_scale(batch, kiln_add(batch, a, b), 1), "c");
    ask(batch, c);
    struct kiln__plan plan = plan_of(batch, true);
    struct kiln__names names;
    const char *found[KILN__MOST_NAMES];
    kiln__names_make(&plan, &batch->labels, &names);
    cr_expect_eq(plan.launches.count, 1u);
    cr_assert_eq(kiln__names_of(&names, 0, found), 3u);
    cr_expect(strcmp(found[0], "a") == 0 && strcmp(found[1], "b") == 0 &&
              strcmp(found[2], "c") == 0);
    kiln__names_free(&names);
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

/* ---- on a device ---- */

/* How often the name stands in the trace's spans. */
static size_t count_named(const json_t *root, const char *wanted)
{
    size_t index, k, count = 0;
    const json_t *event, *name;
    json_array_foreach(json_object_get(root, "traceEvents"), index, event)
    {
        const json_t *names = json_object_get(json_object_get(event, "args"), "names");
        json_array_foreach(names, k, name) count += !strcmp(json_string_value(name), wanted);
    }
    return count;
}

static kiln_context *open_traced(char path[512])
{
    temporary_path(path, "names");
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.trace = path;
    options.host_memory = KILN_HOST_MEMORY_SEPARATE; /* so that there are transfers */
    return open_context_with(&options);
}

/* To be given back with json_decref(). */
static json_t *take_trace(const char *path)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    cr_assert(root, "%s", error.text);
    unlink(path);
    return root;
}

/* Memory that no device uses as it is: no f32 lies at an odd address. */
Test(names, of_what_is_moved_are_in_traces)
{
    static char memory[2 * 32 * sizeof(float) + 1];
    char path[512];
    kiln_context *context = open_traced(path);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, DIMS(4, 8), memory + 1);
    kiln_name(batch, x, "image");
    kiln_tensor y = kiln_name(batch, kiln_relu(batch, x), "seen");
    kiln_read(batch, y, memory + 1 + 32 * sizeof(float), 32 * sizeof(float));
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
    json_t *root = take_trace(path);
    cr_expect_eq(count_named(root, "image"), 1u);
    cr_expect_eq(count_named(root, "seen"), 2u);
    json_decref(root);
}

/* One plan, and the executable of the first run for the second: each batch has its own names. */
Test(names, change_no_plan_and_are_in_traces)
{
    static const char *const names[][2] = {
        {"one.q", "one.sum"}, {"two.q", "two.sum"}, {NULL, NULL}};
    char path[512];
    kiln_context *context = open_traced(path);
    for (size_t i = 0; i < 3; i++) {
        kiln_batch *batch = record(context, names[i][0], names[i][1]);
        run_batch(batch);
        run_batch(batch);
        kiln_batch_release(batch);
    }
    cr_expect_eq(stats_of(context).plans_made, 1u);
    close_context(context);
    json_t *root = take_trace(path);
    cr_expect_eq(count_named(root, "one.q"), 2u);
    cr_expect_eq(count_named(root, "one.sum"), 4u); /* of its launch and its download */
    cr_expect_eq(count_named(root, "two.q"), 2u);
    cr_expect_eq(count_named(root, "heads"), 6u);
    json_decref(root);
}

/* ---- of launches that become one ---- */

enum { CHAINED = 6 };

/* How many launches two runs of a batch of values that follow each other have, and how many spans
 * of theirs have the name of the first and the last value. */
static void trace_chain(const char *word, size_t counts[3])
{
    static const char *const names[CHAINED] = {"c0", "c1", "c2", "c3", "c4", "c5"};
    static float x[15];
    char path[512];
    setenv("POCL_EXTRA_BUILD_FLAGS", "-cl-opt-disable", 0);
    setenv("KILN_ONE_LAUNCH", word, 1);
    kiln_context *context = open_traced(path);
    unsetenv("KILN_ONE_LAUNCH");
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor t = kiln_upload(batch, KILN_F32, DIMS(3, 5), x);
    for (int i = 0; i < CHAINED; i++) {
        t = kiln_add(batch, t, kiln_sum(batch, t, 1, (int[]){i % 2}, 1));
        kiln_name(batch, t, names[i]);
    }
    kiln_read(batch, t, x, sizeof x);
    run_batch(batch);
    run_batch(batch);
    counts[0] = stats_of(context).launches;
    kiln_batch_release(batch);
    close_context(context);
    json_t *root = take_trace(path);
    counts[1] = count_named(root, names[0]);
    counts[2] = count_named(root, names[CHAINED - 1]);
    json_decref(root);
}

/* Each has a span of its own, unless they are to be one from the first run on: its span has all of
 * them. */
Test(names, of_launches_that_are_joined_are_in_traces)
{
    size_t apart[3], later[3], joined[3];
    trace_chain("off", apart);
    trace_chain("auto", later);
    trace_chain("on", joined);
    cr_expect_eq(memcmp(apart, later, sizeof apart), 0);
    cr_expect_geq(apart[0], 2u * CHAINED);
    cr_expect(joined[0] == 2 || joined[0] == apart[0], "%zu", joined[0]);
    cr_expect(joined[1] >= 2 && joined[2] >= 2);
}

static void expect_unavailable(kiln_batch *batch, const char *before)
{
    cr_expect_eq(kiln_batch_execute(batch), KILN_BUILD_FAILED);
    const char *said = kiln_last_error();
    cr_expect(!strncmp(said, before, strlen(before)), "%s", said);
    cr_expect(strstr(said, "is not in the kernel cache"), "%s", said);
    kiln_batch_release(batch);
}

/* The sentence that says which kernel cannot be had says for what; of one plan, too, each batch has
 * its own names. */
Test(names, are_in_the_errors_of_kernels_that_cannot_be_had)
{
    static float values[64], results[64];
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.compile = KILN_COMPILE_NEVER;
    options.cache = KILN_CACHE_OFF;
    kiln_context *context = open_context_with(&options);
    expect_unavailable(record(context, "one.q", "sum"), "computing one.q and 2 more: kernel 0 (");
    expect_unavailable(record(context, "two.q", "sum"), "computing two.q and 2 more: kernel 0 (");
    expect_unavailable(record(context, NULL, "sum"), "computing relu and 1 more: kernel 0 (");
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, DIMS(64), values);
    x = kiln_name(batch, kiln_exp(batch, x), "power");
    kiln_read(batch, kiln_name(batch, kiln_relu(batch, x), "y"), results, sizeof results);
    expect_unavailable(batch, "computing power and 1 more: kernel 0 (");
    close_context(context);
}
