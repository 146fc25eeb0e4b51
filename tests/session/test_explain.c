/* SPDX-License-Identifier: Apache-2.0 */
/* What kiln tells about its work: explanations, traces, log lines. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/context.h"
#include "../support/file.h"
#include "../support/golden.h"
#include "../support/graph.h"
#include "../support/missing.h"
#include "session/context.h"
#include "store/store.h"

enum { N = 64 };

static float values[N * N], result[N * N];

/* A chain, a reduction with what follows it, a product; one value is dropped. */
static kiln_batch *record(kiln_context *context)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){N, N}, values);
    kiln_tensor y = kiln_exp(batch, kiln_scale(batch, x, 0.5));
    kiln_tensor mean = kiln_mean(batch, y, 1, (int[]){1}, 1);
    kiln_log(batch, x);
    kiln_tensor product = kiln_matmul(batch, kiln_div(batch, y, mean), x);
    expect_ok(kiln_read(batch, product, result, sizeof result));
    return batch;
}

/* The content of a file, which the caller frees; NULL if there is none. */
static char *content_of(const char *path)
{
    FILE *file = fopen(path, "r");
    char *content = file ? calloc(1, 1 << 20) : NULL;
    if (!content)
        return NULL;
    content[fread(content, 1, (1 << 20) - 1, file)] = 0;
    fclose(file);
    return content;
}

/* A name in the test's own folder. */
static const char *path_of(const char *name)
{
    static char path[512];
    temporary_path(path, name);
    return path;
}

static size_t count_of(const char *text, const char *part)
{
    size_t count = 0;
    while ((text = strstr(text, part))) {
        text += strlen(part);
        count++;
    }
    return count;
}

/* ---- explanations ---- */

/* In this order, each once. */
static void expect_stages(const char *text)
{
    static const char *const stages[] = {
        "== recorded ==", "== passes ==", "== graph ==", "== values ==",
        "== groups ==",   "== memory ==", "== steps ==", "== kernels =="};
    const char *at = text;
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        cr_expect_eq(count_of(text, stages[i]), 1u, "%s", stages[i]);
        at = at ? strstr(at, stages[i]) : NULL;
        cr_expect(at, "%s is missing or out of order", stages[i]);
    }
}

Test(explain, shows_every_stage)
{
    kiln_context *context = open_context();
    kiln_batch *batch = record(context);
    char *text;
    expect_ok(kiln_batch_explain(batch, &text));
    expect_stages(text);
    cr_expect(strstr(text, "log: dropped, nobody asks for it"));
    cr_expect(strstr(text, "never written"));
    cr_expect(strstr(text, "bytes of memory traffic"));
    cr_expect(strstr(text, "void kiln_"), "no kernel text");
    cr_expect_eq(stats_of(context).launches, 0u, "explaining runs the batch");
    kiln_free(text);
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
}

Test(explain, reads_well)
{
    kiln_batch *batch = record(imagined_cpu());
    struct kiln__text golden = {0};
    char *text;
    expect_ok(kiln_batch_explain(batch, &text));
    kiln__text_add(&golden, "%s", text);
    expect_golden("explain", &golden);
    kiln_free(text);
    kiln_batch_release(batch);
}

/* Two launches of one text. */
Test(explain, shows_a_kernel_once)
{
    static const size_t dims[] = {N};
    kiln_batch *batch = kiln_batch_create(imagined_cpu());
    for (int i = 0; i < 2; i++) {
        kiln_tensor x = kiln_upload(batch, KILN_F32, 1, dims, values + (size_t)i * N);
        kiln_tensor y = kiln_sum(batch, x, 0, NULL, 0);
        kiln_read(batch, y, &result[i], sizeof *result);
    }
    char *text;
    expect_ok(kiln_batch_explain(batch, &text));
    cr_expect_eq(count_of(text, "/* launch 0, 1 */"), 1u, "%s", text);
    cr_expect_eq(count_of(text, "void kiln_reduce("), 1u);
    kiln_free(text);
    kiln_batch_release(batch);
}

/* What the file of the environment gets of one product with an epilogue. */
static char *explained_as(const char *form)
{
    static const size_t dims[] = {N, N};
    const char *path = path_of("form");
    setenv("KILN_EXPLAIN", path, 1);
    setenv("KILN_EXPLAIN_AS", form, 1);
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, dims, values);
    kiln_read(batch, kiln_relu(batch, kiln_matmul(batch, x, x)), result, sizeof result);
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
    char *text = content_of(path);
    unlink(path);
    cr_assert(text);
    return text;
}

Test(explain, in_few_words)
{
    char *text = explained_as("summary");
    cr_expect_eq(count_of(text, "operations: 2 recorded, 2 left;"), 1u, "%s", text);
    cr_expect_eq(count_of(text, ": matmul, relu"), 1u, "%s", text);
    cr_expect_eq(count_of(text, "__kernel"), 0u);
    cr_expect_eq(count_of(text, "; precision: exact\n"), 1u, "%s", text);
    free(text);
}

/* The environment's, by which what is multiplied is rounded. */
Test(explain, of_narrow_precision)
{
    setenv("KILN_PRECISION", "bf16", 1);
    char *text = explained_as("summary");
    cr_expect_eq(count_of(text, "; precision: bf16\n"), 1u, "%s", text);
    free(text);
    text = explained_as("text");
    cr_expect_eq(count_of(text, "upload: stored as bf16"), 1u, "%s", text);
    free(text);
}

Test(explain, as_json)
{
    char *text = explained_as("json");
    json_error_t error;
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    cr_assert(root, "%s: %s", error.text, text);
    cr_expect_eq(json_integer_value(json_object_get(root, "recorded")), 2);
    json_int_t operations = json_integer_value(json_object_get(root, "operations"));
    cr_expect_eq(operations, (json_int_t)(2 * N * N * N + N * N), "%lld", (long long)operations);
    json_t *launch = json_array_get(json_object_get(root, "launches"), 0);
    cr_expect_str_eq(json_string_value(json_object_get(launch, "what")), "matmul, relu");
    cr_expect(json_object_get(launch, "product"));
    cr_expect_str_eq(json_string_value(json_object_get(root, "precision")), "exact");
    json_decref(root);
    free(text);
}

Test(explain, as_nobody_knows)
{
    kiln_context *context;
    setenv("KILN_EXPLAIN_AS", "song", 1);
    cr_expect_eq(kiln_context_create(NULL, &context), KILN_INVALID_ARGUMENT);
    cr_expect(strstr(kiln_last_error(), "none of text, summary, json"), "%s", kiln_last_error());
}

Test(explain, appends_every_new_plan_to_the_file_of_the_environment)
{
    const char *path = path_of("explain");
    setenv("KILN_EXPLAIN", path, 1);
    kiln_context *context = open_context();
    for (int i = 0; i < 2; i++) {
        kiln_batch *batch = record(context);
        run_batch(batch);
        run_batch(batch);
        kiln_batch_release(batch);
    }
    expect_ok(kiln_now_relu(context, N, values, result));
    close_context(context);
    char *text = content_of(path);
    cr_assert(text);
    cr_expect_eq(count_of(text, "== recorded =="), 2u, "two plans were made");
    cr_expect_eq(count_of(text, "= matmul"), 2u); /* as recorded, and after the passes */
    free(text);
    unlink(path);
}

/* A context says so; what happens later is no reason for a run to fail. */
Test(explain, that_cannot_be_written_any_more_harms_nothing)
{
    kiln_context *context = open_context();
    setenv("KILN_EXPLAIN", missing_path("at/all"), 1);
    expect_ok(kiln_now_relu(context, N, values, result));
    close_context(context);
}

/* ---- traces ---- */

/* The spans of a trace that are complete events, by name; checks each one. */
static size_t count_spans(const json_t *root, const char *name)
{
    size_t count = 0, index;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), index, event)
    {
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const char *found = json_string_value(json_object_get(event, "name"));
        cr_assert(phase && found);
        if (strcmp(phase, "X"))
            continue;
        cr_expect_geq(json_number_value(json_object_get(event, "dur")), 0);
        cr_expect_gt(json_number_value(json_object_get(event, "ts")), 0);
        cr_expect(json_is_integer(json_object_get(event, "pid")));
        cr_expect(json_is_integer(json_object_get(event, "tid")));
        count += !name || !strncmp(found, name, strlen(name));
    }
    return count;
}

static void check_trace(const char *path, size_t launches, size_t uploads, size_t downloads)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    cr_assert(root, "%s: %s", path, error.text);
    size_t spans = count_spans(root, NULL);
    cr_expect_eq(count_spans(root, "upload"), uploads);
    cr_expect_eq(count_spans(root, "download"), downloads);
    cr_expect_eq(spans - count_spans(root, "upload") - count_spans(root, "download") -
                     count_spans(root, "map") - count_spans(root, "copy"),
                 launches, "%zu spans", spans);
    json_decref(root);
    unlink(path);
}

static kiln_context *open_separate(kiln_context_options options)
{
    options.host_memory = KILN_HOST_MEMORY_SEPARATE;
    return open_context_with(&options);
}

Test(trace, has_a_span_for_every_command)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    const char *path = path_of("trace.json");
    setenv("KILN_TRACE", path, 1);
    kiln_context *context = open_separate(options);
    kiln_batch *batch = record(context);
    run_batch(batch);
    run_batch(batch);
    kiln_context_stats stats = stats_of(context);
    kiln_batch_release(batch);
    cr_expect_null(content_of(path), "written before the context's end");
    close_context(context);
    cr_expect_gt(stats.launches, 0u);
    check_trace(path, stats.launches, stats.uploads, stats.downloads);
}

/* Whether a launch's span says `what`, with some operations; and who `thread` is. */
static void find_words(const json_t *root, const char *what, const char *shapes, size_t *spans,
                       size_t *threads)
{
    size_t index;
    json_t *event;
    json_array_foreach(json_object_get(root, "traceEvents"), index, event)
    {
        const json_t *arguments = json_object_get(event, "args");
        const char *words = json_string_value(json_object_get(arguments, "what"));
        const char *name = json_string_value(json_object_get(arguments, "name"));
        *threads += name && *name;
        if (!words || strcmp(words, what))
            continue;
        cr_expect_str_eq(json_string_value(json_object_get(arguments, "shapes")), shapes);
        cr_expect_eq(json_integer_value(json_object_get(arguments, "operations")), N);
        cr_expect_eq(json_integer_value(json_object_get(arguments, "bytes")), 8 * N);
        cr_expect(json_is_integer(json_object_get(arguments, "group")));
        ++*spans;
    }
}

Test(trace, says_what_a_launch_computes_and_how_much)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.trace = path_of("words.json");
    kiln_context *context = open_separate(options);
    expect_ok(kiln_now_relu(context, N, values, result));
    close_context(context);
    json_error_t error;
    json_t *root = json_load_file(options.trace, JSON_REJECT_DUPLICATES, &error);
    cr_assert(root, "%s", error.text);
    char shapes[64];
    size_t spans = 0, threads = 0;
    snprintf(shapes, sizeof shapes, "f32[%d] -> f32[%d]", (int)N, (int)N);
    find_words(root, "relu", shapes, &spans, &threads);
    cr_expect_eq(spans, 1u);
    cr_expect_eq(threads, 1u, "%zu threads have a name", threads);
    json_decref(root);
    unlink(options.trace);
}

Test(trace, goes_where_the_options_say)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.trace = path_of("option.json");
    setenv("KILN_TRACE", missing_path("at/all"), 1);
    kiln_context *context = open_separate(options);
    expect_ok(kiln_now_relu(context, N, values, result));
    close_context(context);
    check_trace(options.trace, 1, 1, 1);
}

/* More spans than are kept unread, and a folder that goes away under the file. */
Test(trace, survives_many_spans_and_a_path_that_goes_bad)
{
    char folder[512], path[520];
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    snprintf(folder, sizeof folder, "%s", path_of("folder"));
    snprintf(path, sizeof path, "%s/trace", folder);
    cr_assert_eq(mkdir(folder, 0700), 0);
    options.trace = path;
    kiln_context *context = open_separate(options);
    for (int i = 0; i < 150; i++)
        expect_ok(kiln_now_relu(context, N, values, result));
    cr_assert_eq(rmdir(folder), 0);
    close_context(context);
    cr_expect(strstr(kiln_last_error(), path), "%s", kiln_last_error());
}

Test(trace, of_spans_for_nobody)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.profile = 1;
    kiln_context *context = open_separate(options);
    expect_ok(kiln_now_relu(context, N, values, result));
    close_context(context);
}

/* ---- log ---- */

/* What goes to standard error while `work` runs; the caller frees it. */
static char *said_during(void (*work)(void))
{
    const char *path = path_of("stderr");
    fflush(stderr);
    int kept = dup(2), file = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    cr_assert(kept >= 0 && file >= 0);
    dup2(file, 2);
    work();
    fflush(stderr);
    dup2(kept, 2);
    close(kept);
    close(file);
    char *said = content_of(path);
    unlink(path);
    cr_assert(said);
    return said;
}

static void fail_once(void)
{
    kiln_batch *batch = imagined_batch();
    kiln_exp(batch, (kiln_tensor){0});
    kiln_batch_release(batch);
}

Test(log, is_silent_unless_asked)
{
    unsetenv("KILN_LOG");
    char *said = said_during(fail_once);
    cr_expect_str_empty(said, "%s", said);
    free(said);
}

Test(log, says_errors_when_asked)
{
    setenv("KILN_LOG", "error", 1);
    char *said = said_during(fail_once);
    cr_expect_str_eq(said, "kiln: error: kiln_exp, call 1: operand a is the empty tensor\n", "%s",
                     said);
    free(said);
}

/* Where nothing else is said, either. */
static void look_at_words(void)
{
    const kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    expect_ok(kiln__option_words_check("a call", &options));
}

Test(log, of_an_unknown_level_is_told_when_a_context_is_made)
{
    setenv("KILN_LOG", "verbose", 1);
    char *said = said_during(look_at_words);
    cr_expect_str_eq(said,
                     "kiln: error: KILN_LOG is \"verbose\", not error, warn, info or debug; it "
                     "counts as error\n",
                     "%s", said);
    free(said);
}

static void open_no_folder(void)
{
    const struct kiln__store_options options = {"/dev/null", 0, KILN_CACHE_ON};
    kiln__store_close(kiln__store_open(&options));
}

Test(log, warns_of_a_cache_folder_that_cannot_be_used)
{
    setenv("KILN_LOG", "warn", 1);
    char *said = said_during(open_no_folder);
    cr_expect_str_eq(said,
                     "kiln: warn: the kernel cache /dev/null is not used: it is not a folder\n",
                     "%s", said);
    free(said);
}

static void open_twice(void)
{
    const struct kiln__store_options options = {"", 0, KILN_CACHE_OFF};
    for (int i = 0; i < 2; i++)
        kiln__store_close(kiln__store_open(&options));
}

Test(log, warns_once_of_a_list_of_what_is_used_that_cannot_be_written)
{
    char wanted[600];
    const char *path = path_of("no-folder/used");
    snprintf(wanted, sizeof wanted,
             "kiln: warn: KILN_CACHE_USED: %s cannot be written: No such file or directory\n",
             path);
    setenv("KILN_CACHE_USED", path, 1);
    setenv("KILN_LOG", "warn", 1);
    char *said = said_during(open_twice);
    cr_expect_str_eq(said, wanted, "%s", said);
    free(said);
    unsetenv("KILN_CACHE_USED");
}

/* Nor is a pipe waited for that nobody reads. */
Test(log, is_not_held_by_a_pipe)
{
    char path[512];
    strcpy(path, path_of("pipe"));
    cr_assert_eq(mkfifo(path, 0600), 0);
    setenv("KILN_CACHE_USED", path, 1);
    setenv("KILN_LOG", "warn", 1);
    char *said = said_during(open_twice);
    cr_expect(strstr(said, "cannot be written: No such device or address"), "%s", said);
    free(said);
    unsetenv("KILN_CACHE_USED");
    unlink(path);
}

Test(log, of_an_unknown_level_says_so_once_and_counts_as_error)
{
    static const char *const words =
        "kiln: error: KILN_LOG is \"loud\", not error, warn, info or debug";
    setenv("KILN_LOG", "loud", 1);
    char *said = said_during(fail_once);
    const char *first = strstr(said, words);
    cr_assert(first, "%s", said);
    cr_expect_null(strstr(first + 1, words));
    cr_expect(strstr(first + 1, "kiln: error: "), "%s", said);
    free(said);
}
