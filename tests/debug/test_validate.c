/* SPDX-License-Identifier: Apache-2.0 */
/* Validation: kernels are broken on their way to the compiler (--wrap), and the run has to say
 * which operation is off; what goes wrong becomes a program that shows it. */
#include <criterion/criterion.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kiln/opencl.h>

#include "../support/check.h"
#include "../support/context.h"
#include "../support/random.h"
#include "../support/reproduce.h"

/* What a compiler makes of right kernels is nothing that these tests look at. */
TestSuite(validate, .init = check_cheaply);
TestSuite(reproduce, .init = check_cheaply);

enum { N = 40 };

static float x[N], result[N];

/* ---- broken kernels ---- */

/* The text to find, what to put in its place, how many programs to spare and to break. */
static struct {
    const char *from, *to;
    int spared, broken;
} damage;

cl_program __real_clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
                                            const size_t *lengths, cl_int *code);
cl_program __wrap_clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
                                            const size_t *lengths, cl_int *code);

static char *replace(const char *text)
{
    size_t from = strlen(damage.from), to = strlen(damage.to), length = 0;
    char *changed = calloc(2 * strlen(text) + 1, 1);
    cr_assert(changed);
    for (const char *found; (found = strstr(text, damage.from)); text = found + from) {
        memcpy(changed + length, text, (size_t)(found - text));
        length += (size_t)(found - text);
        memcpy(changed + length, damage.to, to);
        length += to;
    }
    strcpy(changed + length, text);
    return changed;
}

/* Uses of memory, in checked kernels, whose index is not looked at. An address that is only looked
 * at itself is none. */
static int unchecked;

static void count_unchecked(const char *text)
{
    const char *at = strstr(text, "kiln_wrong") ? strstr(text, "\nvoid kiln_") : NULL;
    for (; at && *at; at++) {
        size_t digits = *at == 'x' || *at == 'y' ? strspn(at + 1, "0123456789") : 0;
        bool is_word = digits && !isalnum((unsigned char)at[-1]) && at[-1] != '_';
        bool is_used = is_word && strncmp(at - 9, "(size_t)(", 9) != 0;
        unchecked += is_used && (at[1 + digits] == '[' || !strncmp(at + 1 + digits, " + ", 3));
    }
}

cl_program __wrap_clCreateProgramWithSource(cl_context context, cl_uint count, const char **texts,
                                            const size_t *lengths, cl_int *code)
{
    count_unchecked(texts[0]);
    if (!damage.from || !strstr(texts[0], damage.from) || damage.spared-- > 0 ||
        damage.broken-- <= 0)
        return __real_clCreateProgramWithSource(context, count, texts, lengths, code);
    char *changed = replace(texts[0]);
    cl_program program =
        __real_clCreateProgramWithSource(context, 1, (const char **)&changed, NULL, code);
    free(changed);
    return program;
}

static void break_kernels(const char *from, const char *to, int spared, int broken)
{
    damage.from = from;
    damage.to = to;
    damage.spared = spared;
    damage.broken = broken;
}

/* ---- batches ---- */

static kiln_context *open_validated(double share)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.validate = share;
    options.cache = KILN_CACHE_OFF;
    return open_context_with(&options);
}

/* relu((-x)^2) in one kernel: values v0 to v3. */
static kiln_batch *record_chain(kiln_context *context)
{
    kiln_batch *batch = kiln_batch_create(context);
    fill(x, N, 1);
    kiln_tensor a = kiln_upload(batch, KILN_F32, 2, (size_t[]){4, N / 4}, x);
    kiln_tensor b = kiln_relu(batch, kiln_square(batch, kiln_neg(batch, a)));
    expect_ok(kiln_read(batch, b, result, sizeof result));
    return batch;
}

#define BREAK_SQUARE "v1 * v1", "v1 * v1 * 1.001f"

static void end(kiln_batch *batch, kiln_context *context)
{
    kiln_batch_release(batch);
    close_context(context);
    break_kernels(NULL, NULL, 0, 0);
    cr_expect_eq(unchecked, 0, "%d indices are not checked", unchecked);
}

/* ---- what is off is named ---- */

Test(validate, names_the_operation)
{
    kiln_context *context = open_validated(1);
    kiln_batch *batch = record_chain(context);
    break_kernels(BREAK_SQUARE, 0, 3);
    expect_error_part(
        kiln_batch_execute(batch), KILN_WRONG_RESULT,
        "kiln_batch_execute: %2 square (kiln_square, call 3), f32[4,10], element [0,");
    cr_expect(strstr(kiln_last_error(), "(from equal operands)"));
    cr_expect_eq(kiln_batch_status(batch), KILN_OK, "an error of a run is not sticky");
    end(batch, context);
}

Test(validate, says_both_values_and_the_bound)
{
    float three = 3;
    kiln_context *context = open_validated(1);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor a = kiln_upload(batch, KILN_F32, 0, NULL, &three);
    expect_ok(kiln_read(batch, kiln_square(batch, a), result, sizeof *result));
    break_kernels("v0 * v0", "v0 * v0 + 0.5f", 0, 2);
    expect_error(kiln_batch_execute(batch), KILN_WRONG_RESULT,
                 "kiln_batch_execute: %1 square (kiln_square, call 2), f32[], element []: the "
                 "device has 9.5 and the host "
                 "9, and they may differ by 0 (from equal operands)");
    end(batch, context);
}

/* The kernel of the batch is wrong; the second run's, which keeps every value, is right. */
Test(validate, names_the_result_of_a_wrong_fusion)
{
    kiln_context *context = open_validated(1);
    kiln_batch *batch = record_chain(context);
    break_kernels(BREAK_SQUARE, 0, 1);
    expect_error_part(kiln_batch_execute(batch), KILN_WRONG_RESULT,
                      "kiln_batch_execute: %3 relu (kiln_relu, call 4), f32[4,10], element [0,");
    cr_expect(strstr(kiln_last_error(),
                     "(each operation alone is right, but not kernel 0 (kiln_map: neg, "
                     "square, relu), which computes it)"));
    end(batch, context);
}

/* The result hides what is wrong before it: only the second look sees it. */
Test(validate, finds_what_the_result_hides)
{
    kiln_context *context = open_validated(1);
    kiln_batch *batch = kiln_batch_create(context);
    fill(x, N, 1);
    kiln_tensor a = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, x);
    kiln_tensor b = kiln_square(batch, kiln_neg(batch, a));
    kiln_tensor c = kiln_minimum(batch, b, kiln_constant(batch, KILN_F32, -1));
    expect_ok(kiln_read(batch, c, result, sizeof result));
    break_kernels(BREAK_SQUARE, 0, 3);
    expect_error_part(kiln_batch_execute(batch), KILN_WRONG_RESULT, "%2 square");
    end(batch, context);
}

Test(validate, tells_a_submission_at_once)
{
    kiln_event *event;
    kiln_context *context = open_validated(1);
    kiln_batch *batch = record_chain(context);
    break_kernels(BREAK_SQUARE, 0, 3);
    expect_error_part(kiln_batch_submit(batch, &event), KILN_WRONG_RESULT, "kiln_batch_submit: %2");
    cr_expect_null(event);
    end(batch, context);
}

/* ---- indices outside of memory ---- */

/* Far enough for a crash, where nobody looks. */
#define FAR "1900000000"

static kiln_tensor record_map(kiln_batch *batch, kiln_tensor a)
{
    return kiln_relu(batch, kiln_square(batch, kiln_neg(batch, a)));
}

static kiln_tensor record_sum(kiln_batch *batch, kiln_tensor a)
{
    return kiln_sum(batch, kiln_exp(batch, a), 1, (int[]){1}, 0);
}

static kiln_tensor record_rows(kiln_batch *batch, kiln_tensor a)
{
    return kiln_softmax(batch, a, 1, (int[]){1});
}

static kiln_tensor record_gather(kiln_batch *batch, kiln_tensor a)
{
    static const int32_t rows[] = {2, 0, 3};
    return kiln_gather(batch, a, kiln_upload(batch, KILN_I32, 1, (size_t[]){3}, rows), 0);
}

/* Each with the text of an index, what becomes of it, and what has to be said. */
static const struct stray {
    kiln_tensor (*record)(kiln_batch *batch, kiln_tensor a);
    size_t elements;
    const char *from, *to, *kernel, *memory;
} strays[] = {
    {record_map, N, "h0 = o0", "h0 = o0 + " FAR,
     "kernel 0 (kiln_map: neg, square, relu) uses element", "of upload, f32[4,10], which has 40"},
    {record_map, N, "h0 = o0", "h0 = o0 - " FAR,
     "kernel 0 (kiln_map: neg, square, relu) uses element", "of upload, f32[4,10], which has 40"},
    {record_map, N, "q0 + p", "q0 + " FAR " + p", "kernel 0 (kiln_map: neg, square, relu)",
     "of relu, f32[4,10], which has 40"},
    {record_sum, 4, "h0 = o0", "h0 = o0 + " FAR, "kernel 0 (kiln_reduce: exp, sum)",
     "which has 40"},
    {record_sum, 4, "q0 + p", "q0 + p + " FAR, "kernel 0 (kiln_reduce: exp, sum)", "which has 4"},
    {record_rows, N, "h0 = o0", "h0 = o0 + " FAR, "kernel 0 (kiln_rows", "which has 40"},
    {record_gather, 3 * N / 4, " * g", " + " FAR " + 0 * g", "kernel 0 (kiln_map: gather",
     "which has 40"},
};

Test(validate, an_index_outside_of_memory_is_said_and_takes_nobody_down)
{
    for (size_t i = 0; i < sizeof strays / sizeof *strays; i++) {
        kiln_context *context = open_validated(1);
        kiln_batch *batch = kiln_batch_create(context);
        fill(x, N, 1);
        kiln_tensor a = kiln_upload(batch, KILN_F32, 2, (size_t[]){4, N / 4}, x);
        kiln_tensor b = strays[i].record(batch, a);
        expect_ok(kiln_read(batch, b, result, strays[i].elements * sizeof *result));
        break_kernels(strays[i].from, strays[i].to, 0, 1000);
        expect_error_part(kiln_batch_execute(batch), KILN_WRONG_RESULT, strays[i].kernel);
        cr_expect(strstr(kiln_last_error(), strays[i].memory), "%s", kiln_last_error());
        end(batch, context);
    }
}

/* ---- when ---- */

Test(validate, is_off_unless_asked_for)
{
    kiln_context *context = open_validated(0);
    kiln_batch *batch = record_chain(context);
    break_kernels(BREAK_SQUARE, 0, 3);
    run_batch(batch);
    cr_expect_eq(stats_of(context).batches, 1);
    end(batch, context);
}

Test(validate, is_switched_on_by_the_environment)
{
    setenv("KILN_VALIDATE", "1", 1);
    kiln_context *context = open_validated(0);
    kiln_batch *batch = record_chain(context);
    break_kernels(BREAK_SQUARE, 0, 3);
    expect_error_part(kiln_batch_execute(batch), KILN_WRONG_RESULT, "%2 square");
    end(batch, context);
}

/* Of each four runs the first is compared, which runs three times. */
Test(validate, takes_a_share_of_the_runs)
{
    static const uint64_t runs[] = {3, 4, 5, 6, 9, 10, 11, 12, 15};
    kiln_context *context = open_validated(0.25);
    kiln_batch *batch = record_chain(context);
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        run_batch(batch);
        cr_expect_eq(stats_of(context).batches, runs[i], "after %zu runs", i + 1);
    }
    end(batch, context);
}

static void expect_refused(const char *variable, double share, const char *sentence)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    options.validate = share;
    setenv("KILN_VALIDATE", variable, 1);
    expect_error(kiln_context_create(&options, &context), KILN_INVALID_ARGUMENT, sentence);
    cr_expect_null(context);
}

Test(validate, refuses_what_is_no_share)
{
    close_context(open_context());
    expect_refused("yes", 0,
                   "kiln_context_create: KILN_VALIDATE is \"yes\", not a number from 0 to 1");
    expect_refused("2", 0, "kiln_context_create: KILN_VALIDATE is \"2\", not a number from 0 to 1");
    expect_refused("nan", 0,
                   "kiln_context_create: KILN_VALIDATE is \"nan\", not a number from 0 to 1");
    expect_refused("1", -0.5, "kiln_context_create: validate is -0.5, not a number from 0 to 1");
    expect_refused("1", 1.5, "kiln_context_create: validate is 1.5, not a number from 0 to 1");
}

/* ---- right batches pass ---- */

/* Every kind of operation, and a value that nobody needs. */
static void record_all(kiln_batch *batch, kiln_buffer *buffer)
{
    kiln_tensor a = kiln_upload(batch, KILN_F32, 2, (size_t[]){4, N / 4}, x);
    kiln_tensor b = kiln_import(batch, buffer);
    kiln_tensor c = kiln_tanh(batch, kiln_add(batch, a, kiln_constant(batch, KILN_F32, 0.5)));
    kiln_tensor d = kiln_matmul(batch, c, kiln_transpose(batch, a, NULL));
    kiln_tensor e = kiln_reshape(batch, d, 1, (size_t[]){16});
    kiln_tensor f = kiln_slice(batch, e, (int64_t[]){0}, (int64_t[]){N / 4}, NULL);
    kiln_tensor g = kiln_broadcast(batch, f, 2, (size_t[]){4, N / 4});
    kiln_tensor h = kiln_div(batch, g, kiln_mean(batch, kiln_exp(batch, a), 1, (int[]){1}, 1));
    kiln_tensor i = kiln_cast(batch, kiln_argmax(batch, h, 1, (int[]){1}, 1), KILN_F32);
    kiln_log(batch, h);
    expect_ok(kiln_read(batch, kiln_add(batch, h, i), result, sizeof result));
    expect_ok(kiln_export(batch, kiln_mul(batch, b, kiln_constant(batch, KILN_F32, 2)), buffer));
}

/* The buffer is imported and overwritten: what counts is its content before the run. */
Test(validate, passes_what_is_right)
{
    static float ones[N], many[N];
    kiln_context *context = open_validated(1);
    kiln_batch *batch = kiln_batch_create(context);
    fill(x, N, 1);
    for (int i = 0; i < N; i++) {
        ones[i] = 1;
        many[i] = 8;
    }
    kiln_buffer *buffer = make_buffer(context, N, ones);
    record_all(batch, buffer);
    for (int i = 0; i < 3; i++)
        run_batch(batch);
    expect_buffer(buffer, N, many);
    kiln_buffer_release(buffer);
    end(batch, context);
}

/* Reading into the uploaded memory, and twice into the same place. */
Test(validate, knows_the_inputs_of_before_the_run)
{
    kiln_context *context = open_validated(1);
    kiln_batch *batch = kiln_batch_create(context);
    fill(x, N, 1);
    kiln_tensor a = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, x);
    kiln_tensor b = kiln_add(batch, a, kiln_constant(batch, KILN_F32, 1));
    expect_ok(kiln_read(batch, kiln_neg(batch, b), result, sizeof result));
    expect_ok(kiln_read(batch, b, result, sizeof result));
    expect_ok(kiln_read(batch, b, x, sizeof x));
    run_batch(batch);
    run_batch(batch);
    end(batch, context);
}

Test(validate, takes_empty_tensors_and_infinities)
{
    float special[] = {0, -0.0f, 1.0f / 0.0f, -1.0f / 0.0f, 0.0f / 0.0f, 1e38f};
    kiln_context *context = open_validated(1);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor a = kiln_upload(batch, KILN_F32, 2, (size_t[]){0, 3}, NULL);
    kiln_tensor b = kiln_upload(batch, KILN_F32, 1, (size_t[]){6}, special);
    kiln_tensor c = kiln_square(batch, kiln_exp(batch, b));
    expect_ok(kiln_read(batch, kiln_sum(batch, kiln_exp(batch, a), 1, (int[]){0}, 0), result, 12));
    expect_ok(kiln_read(batch, kiln_sub(batch, c, c), result + 3, sizeof special));
    run_batch(batch);
    end(batch, context);
}

/* A copy of no bytes stands for what is read from the buffer and for what is put there. */
Test(validate, takes_empty_buffers_that_are_updated)
{
    kiln_context *context = open_validated(1);
    kiln_buffer *buffer = make_buffer(context, 0, NULL);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor old = kiln_import(batch, buffer);
    expect_ok(kiln_export(batch, kiln_add(batch, old, kiln_exp(batch, old)), buffer));
    run_batch(batch);
    kiln_buffer_release(buffer);
    end(batch, context);
}

Test(validate, has_nothing_to_say_about_an_empty_batch)
{
    kiln_context *context = open_validated(1);
    kiln_batch *batch = kiln_batch_create(context);
    run_batch(batch);
    end(batch, context);
}

/* ---- programs that reproduce ---- */

/* Of six operations the one that is off is left, with what it needs as inputs. */
Test(reproduce, leaves_what_fails)
{
    struct kiln__text text = {0};
    kiln_context *context = open_validated(1);
    kiln_batch *batch = kiln_batch_create(context);
    fill(x, N, 1);
    kiln_tensor a = kiln_upload(batch, KILN_F32, 1, (size_t[]){N}, x);
    kiln_tensor b = kiln_tanh(batch, kiln_square(batch, kiln_exp(batch, a)));
    expect_ok(kiln_read(batch, b, result, sizeof result));
    expect_ok(kiln_read(batch, kiln_sum(batch, b, 0, NULL, 0), result, sizeof *result));
    break_kernels(" * v", " * 1.5f * v", 0, 1000); /* values, no indices */
    kiln_batch *small = reproduce_shrink(batch, context, reproduce_validates);
    cr_assert(small);
    cr_expect_eq(small->graph.requests.count, 1);
    reproduce_print(small, &text);
    const char *words[] = {"kiln_tanh", "kiln_square", "kiln_exp", "kiln_sum"};
    int operations = 0;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        operations += strstr(text.data, words[i]) != NULL;
    cr_expect_eq(operations, 1, "%s", text.data);
    kiln__text_free(&text);
    reproduce_release(small);
    end(batch, context);
}

Test(reproduce, has_nothing_to_shrink_where_nothing_fails)
{
    kiln_context *context = open_validated(1);
    kiln_batch *batch = record_chain(context);
    cr_expect_null(reproduce_shrink(batch, context, reproduce_validates));
    end(batch, context);
}

/* Compile a program against this build; skips where there is no compiler. */
static void compile(const char *source, const char *program)
{
    char command[4096];
    const char *compiler = getenv("KILN_TEST_CC"), *tree = getenv("srcdir");
    if (!compiler || !tree || access(".libs/libkiln.so", R_OK))
        cr_skip("run by make check, with a shared library");
    snprintf(command, sizeof command,
             "%s -Wall -Werror -Iinclude -I%s/include -o %s %s .libs/libkiln.so -lm "
             "-Wl,-rpath,\"$PWD/.libs\"",
             compiler, tree, program, source);
    cr_assert_eq(system(command), 0, "%s", command);
}

/* What the program says. */
static void run_program(const char *program, char line[200])
{
    FILE *output = popen(program, "r");
    cr_assert(output);
    if (!fgets(line, 200, output))
        line[0] = 0;
    pclose(output);
}

/* What the batch of a seed may lack. */
static void record_others(kiln_batch *batch, kiln_buffer *buffer)
{
    kiln_tensor a = kiln_import(batch, buffer), indices = kiln_arange(batch, KILN_I32, 0, 3, 1);
    kiln_tensor noise = kiln_random_uniform(batch, DIMS(3), kiln_random_key(batch, 5));
    kiln_tensor sums = kiln_cumsum(batch, kiln_detach(batch, a), 0, 1);
    check_read(batch, kiln_clamp(batch, kiln_scatter_add(batch, sums, indices, noise, 0), -1, 1));
}

/* Every kind of operation, as a program: it compiles, without a warning, and computes the same. */
Test(reproduce, slow_prints_programs_that_run)
{
    char source[512], program[512], said[200];
    const char *folder = getenv("TMPDIR");
    struct kiln__text text = {0};
    kiln_context *context = open_validated(1);
    kiln_batch *batch = kiln_batch_create(context);
    static float ones[N];
    fill(x, N, 1);
    kiln_buffer *buffer = make_buffer(context, N, ones);
    record_all(batch, buffer);
    random_record(batch, 7, 0, 30);
    record_others(batch, buffer);
    reproduce_print(batch, &text);
    snprintf(source, sizeof source, "%s/reproduce-%ld.c", folder ? folder : "/tmp", (long)getpid());
    snprintf(program, sizeof program, "%s/reproduce-%ld", folder ? folder : "/tmp", (long)getpid());
    FILE *file = fopen(source, "w");
    cr_assert(file);
    fputs(text.data, file);
    fclose(file);
    kiln__text_free(&text);
    kiln_buffer_release(buffer);
    check_end(batch);
    close_context(context);
    compile(source, program);
    run_program(program, said);
    cr_expect_str_eq(said, "as it should be\n");
    remove(source);
    remove(program);
}
