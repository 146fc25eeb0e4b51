/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the program's own: what they are given, what they leave, and which plans and kernels
 * are found again. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/cache.h"
#include "../support/graph.h"
#include "../support/movement.h"
#include "custom_one.h"

TestSuite(custom, .init = check_cheaply);

/* What hosts compute: y from x, both of f32 or i32 as they are. */
#define ELEMENTS(type, array) ((type *)(array)->data)

static size_t count_of(const kiln_array *array)
{
    size_t count = 1;
    for (size_t d = 0; d < array->rank; d++)
        count *= array->dims[d];
    return count;
}

/* Puts the numbers that `user` has into the outputs, one after the other. */
static void host_known(const kiln_array *in, const kiln_array *out, const double *scalars,
                       void *user)
{
    const double *known = user;
    (void)in;
    (void)scalars;
    for (size_t i = 0; i < count_of(out); i++)
        kiln__value_store(out->type, kiln__value_of_number(out->type, known[i]),
                          (char *)out->data + i * kiln_type_size(out->type));
}

#define KNOWN(...) ((double[]){__VA_ARGS__})

static void expect_known(kiln_custom_kernel *kernel, double *known)
{
    kernel->host = host_known;
    kernel->user = known;
}

static kiln_tensor call(kiln_batch *b, const kiln_custom_kernel *kernel, kiln_tensor x)
{
    kiln_tensor y;
    kiln_custom(b, kernel, &x, &y);
    return y;
}

static const char twice[] = "const size_t i = get_global_id(0);\n"
                            "STORE(y, i, 2 * LOAD(x, i));\n";

static void host_twice(const kiln_array *x, const kiln_array *y, const double *scalars, void *user)
{
    (void)scalars;
    (void)user;
    for (size_t i = 0; i < count_of(y); i++)
        ELEMENTS(float, y)[i] = 2 * ELEMENTS(float, x)[i];
}

static kiln_tensor call_twice(kiln_batch *b, kiln_tensor x, size_t n)
{
    struct one *own = one("twice", twice, KILN_F32, DIMS(n));
    own->kernel.host = host_twice;
    return call(b, &own->kernel, x);
}

/* ---- what they compute ---- */

static void host_axpy(const kiln_array *in, const kiln_array *out, const double *scalars,
                      void *user)
{
    cr_expect_str_eq(user, "axpy");
    for (size_t i = 0; i < count_of(out); i++)
        ELEMENTS(float, out)
    [i] = (float)(scalars[0] * (double)ELEMENTS(float, &in[0])[i] +
                  (double)ELEMENTS(float, &in[1])[i]);
}

/* BLAS's axpy: a scalar, and more than one input. */
Test(custom, axpy)
{
    static const float x[] = {1, 2, 3, -4}, y[] = {10, 20, 30, 40};
    const float *z;
    kiln_custom_tensor in[] = {{.name = "x"}, {.name = "y", .type = KILN_F32}};
    kiln_custom_tensor out = {.name = "z", .type = KILN_F32, .rank = 1, .dims = {4}};
    kiln_custom_scalar a = {"a", KILN_F32, -0.5};
    kiln_custom_kernel kernel = KILN_CUSTOM_KERNEL_INIT;
    kernel.name = "axpy";
    kernel.source = "int i = get_global_id(0);\nz[i] = a * x[i] + y[i];";
    kernel.inputs = in;
    kernel.input_count = 2;
    kernel.outputs = &out;
    kernel.output_count = 1;
    kernel.scalars = &a;
    kernel.scalar_count = 1;
    kernel.host = host_axpy;
    kernel.user = (void *)(uintptr_t) "axpy";
    kiln_batch *b = check_begin();
    kiln_tensor given[] = {check_given(b, KILN_F32, DIMS(4), x),
                           check_given(b, KILN_F32, DIMS(4), y)};
    kiln_tensor result;
    expect_ok(kiln_custom(b, &kernel, given, &result));
    z = check_read(b, result);
    cr_expect(check_run(b));
    for (int i = 0; i < 4; i++)
        cr_expect_float_eq(z[i], -0.5f * x[i] + y[i], 0);
    check_end(b);
    check_close();
}

/* Shapes, integers as scalars, a helper before the kernel, work-groups that share local memory:
 * sums of rows. */
Test(custom, rows)
{
    enum { ROWS = 3, COLUMNS = 10 };
    struct one *sums =
        one("row_sums",
            "local int part[4];\n"
            "const int row = get_group_id(0), lane = get_local_id(0);\n"
            "int sum = 0;\n"
            "for (long j = lane; j < x_shape[1]; j += lanes)\n"
            "    sum = plus(sum, x[row * x_shape[x_rank - 1] + j]);\n"
            "part[lane] = sum;\n"
            "barrier(CLK_LOCAL_MEM_FENCE);\n"
            "if (lane == 0)\n"
            "    y[row] = (part[0] + part[1] + part[2] + part[3]) * 1000 + x_size;\n",
            KILN_I32, DIMS(ROWS));
    const kiln_custom_scalar lanes = {"lanes", KILN_I32, 4};
    sums->kernel.header = "x_type plus(x_type a, y_type b)\n{\n    return a + b;\n}";
    sums->kernel.scalars = &lanes;
    sums->kernel.scalar_count = 1;
    sums->kernel.global[0] = ROWS * 4;
    sums->kernel.local[0] = 4;
    expect_known(&sums->kernel, KNOWN(45030, 145030, 245030));
    kiln_batch *b = check_begin();
    kiln_tensor y = call(b, &sums->kernel, counted(b, DIMS(ROWS, COLUMNS)));
    EXPECT_ELEMENTS(b, y, 45030, 145030, 245030);
    check_close();
}

/* Names that LOAD and STORE go by themselves. */
Test(custom, names)
{
    kiln_custom_tensor in = {.name = "i"};
    kiln_custom_tensor out = {.name = "value", .type = KILN_I32, .rank = 1, .dims = {3}};
    kiln_custom_kernel kernel = KILN_CUSTOM_KERNEL_INIT;
    kernel.name = "load_i";
    kernel.source = "const int k = get_global_id(0);\nSTORE(value, k, LOAD(i, k) + 1);";
    kernel.inputs = &in;
    kernel.input_count = 1;
    kernel.outputs = &out;
    kernel.output_count = 1;
    expect_known(&kernel, KNOWN(1, 2, 3));
    kiln_batch *b = check_begin();
    EXPECT_ELEMENTS(b, call(b, &kernel, counted(b, DIMS(3))), 1, 2, 3);
    check_close();
}

/* Two dimensions of items, without an input. */
Test(custom, no_input)
{
    kiln_custom_tensor out = {.name = "y", .type = KILN_I64, .rank = 2, .dims = {2, 3}};
    kiln_custom_kernel kernel = KILN_CUSTOM_KERNEL_INIT;
    kiln_tensor y;
    kernel.name = "grid";
    kernel.source = "y[get_global_id(1) * y_shape[1] + get_global_id(0)] =\n"
                    "    10 * get_global_id(1) + get_global_id(0);";
    kernel.outputs = &out;
    kernel.output_count = 1;
    kernel.global[0] = 3;
    kernel.global[1] = 2;
    expect_known(&kernel, KNOWN(0, 1, 2, 10, 11, 12));
    kiln_batch *b = check_begin();
    expect_ok(kiln_custom(b, &kernel, NULL, &y));
    EXPECT_ELEMENTS(b, kiln_cast(b, y, KILN_I32), 0, 1, 2, 10, 11, 12);
    check_close();
}

/* Every type goes in and comes out as it is stored, and is computed with as kiln does. */
Test(custom, types)
{
    static const kiln_type types[] = {KILN_F16, KILN_BF16, KILN_I64, KILN_BOOL, KILN_I8};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        const bool floating = types[t] == KILN_F16 || types[t] == KILN_BF16;
        kiln_batch *b = check_begin();
        kiln_tensor x = numbers(b, DIMS(3), NUMBERS(0, 1, 7));
        x = kiln_cast(b, x, types[t]);
        struct one *own = one("plus_half",
                              "const y_type half_more = (y_type)0.5f;\n"
                              "STORE(y, get_global_id(0), LOAD(x, get_global_id(0)) + half_more);",
                              types[t], DIMS(3));
        double known[] = {0, 1, types[t] == KILN_BOOL ? 1 : 7};
        for (int i = 0; i < 3; i++)
            known[i] += floating ? 0.5 : 0;
        expect_known(&own->kernel, known);
        x = call(b, &own->kernel, x);
        kiln_type type;
        expect_ok(kiln_tensor_shape(b, x, &type, NULL, NULL));
        cr_expect_eq(type, types[t]);
        x = kiln_scale(b, kiln_cast(b, x, KILN_F32), 4);
        x = kiln_cast(b, x, KILN_I32);
        if (types[t] == KILN_BOOL)
            EXPECT_ELEMENTS(b, x, 0, 4, 4);
        else if (floating)
            EXPECT_ELEMENTS(b, x, 2, 6, 30);
        else
            EXPECT_ELEMENTS(b, x, 0, 4, 28);
    }
    check_close();
}

/* ---- several outputs ---- */

static const char halves[] = "const int i = get_global_id(0);\n"
                             "low[i] = x[i] % 10;\n"
                             "STORE(high, i, (float)(x[i] / 10));\n"
                             "if (i == 0)\n"
                             "    count[0] = x_size;\n";

static void host_halves(const kiln_array *x, const kiln_array *out, const double *scalars,
                        void *user)
{
    (void)scalars;
    (void)user;
    for (size_t i = 0; i < count_of(x); i++) {
        const int32_t value = ELEMENTS(int32_t, x)[i];
        ELEMENTS(int32_t, &out[0])[i] = value % 10;
        kiln__value_store(KILN_BF16, value / 10, ELEMENTS(uint16_t, &out[1]) + i);
    }
    ELEMENTS(int32_t, &out[2])[0] = (int32_t)count_of(x);
}

static void call_halves(kiln_batch *b, kiln_tensor x, kiln_tensor out[3])
{
    const kiln_custom_tensor in = {.name = "x", .type = KILN_I32};
    const kiln_custom_tensor outputs[] = {
        {.name = "low", .type = KILN_I32, .rank = 1, .dims = {4}},
        {.name = "high", .type = KILN_BF16, .rank = 2, .dims = {2, 2}},
        {.name = "count", .type = KILN_I32},
    };
    kiln_custom_kernel kernel = KILN_CUSTOM_KERNEL_INIT;
    kernel.name = "halves";
    kernel.source = halves;
    kernel.inputs = &in;
    kernel.input_count = 1;
    kernel.outputs = outputs;
    kernel.output_count = 3;
    kernel.host = host_halves;
    expect_ok(kiln_custom(b, &kernel, &x, out));
}

Test(custom, several_outputs)
{
    for (unsigned wanted = 1; wanted < 8; wanted++) {
        kiln_tensor out[3];
        void *read[3] = {NULL};
        kiln_batch *b = check_begin();
        call_halves(b, numbers(b, DIMS(4), NUMBERS(12, 34, 56, 78)), out);
        out[1] = kiln_cast(b, out[1], KILN_I32);
        for (unsigned k = 0; k < 3; k++)
            if (wanted >> k & 1)
                read[k] = check_read(b, out[k]);
        cr_expect(check_run(b));
        if (read[0])
            cr_expect_arr_eq(read[0], NUMBERS(2, 4, 6, 8), 4 * sizeof(int32_t));
        if (read[1])
            cr_expect_arr_eq(read[1], NUMBERS(1, 3, 5, 7), 4 * sizeof(int32_t));
        if (read[2])
            cr_expect_eq(*(int32_t *)read[2], 4);
        check_end(b);
    }
    check_close();
}

/* One launch for all outputs, and one for two equal calls. */
Test(custom, one_launch)
{
    kiln_tensor out[3], again[3];
    kiln_batch *b = check_begin();
    kiln_tensor x = numbers(b, DIMS(4), NUMBERS(12, 34, 56, 78));
    call_halves(b, x, out);
    call_halves(b, x, again);
    for (unsigned k = 0; k < 3; k++) {
        check_read(b, out[k]);
        check_read(b, again[k]);
    }
    cr_expect_eq(cost_of(b).launches, 1u);
    cr_expect(check_run(b));
    check_end(b);
    check_close();
}

/* ---- operands ---- */

static void host_plus_one(const kiln_array *x, const kiln_array *y, const double *scalars,
                          void *user)
{
    (void)scalars;
    (void)user;
    for (size_t i = 0; i < count_of(y); i++)
        ELEMENTS(int32_t, y)[i] = ELEMENTS(int32_t, x)[i] + 1;
}

/* What is computed, moved, repeated or constant is there row-major; results are read by fused
 * kernels, as any. */
Test(custom, operands)
{
    const char *names[] = {"computed", "transposed", "sliced", "repeated", "constant", "numbers"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        kiln_batch *b = check_begin();
        kiln_tensor x = counted(b, DIMS(2, 3));
        const size_t dims[] = {3, 2};
        switch (i) {
        case 0: x = kiln_reshape(b, kiln_add(b, x, x), 2, dims); break;
        case 1: x = kiln_transpose(b, x, NULL); break;
        case 2:
            x = kiln_slice(b, counted(b, DIMS(4, 4)), (int64_t[]){1, 1}, (int64_t[]){4, 3}, NULL);
            break;
        case 3: x = kiln_broadcast(b, counted(b, DIMS(2)), 2, dims); break;
        case 4: x = kiln_fill(b, KILN_I32, 2, dims, 7); break;
        default: x = kiln_reshape(b, kiln_arange(b, KILN_I32, 0, 6, 1), 2, dims); break;
        }
        struct one *own =
            one("plus_one", "y[get_global_id(0)] = x[get_global_id(0)] + 1;", KILN_I32, 2, dims);
        own->kernel.host = host_plus_one;
        x = call(b, &own->kernel, x);
        x = kiln_mul(b, x, x);
        static const int32_t wanted[][6] = {{1, 9, 25, 49, 81, 121},      {1, 16, 4, 25, 9, 36},
                                            {36, 49, 100, 121, 196, 225}, {1, 4, 1, 4, 1, 4},
                                            {64, 64, 64, 64, 64, 64},     {1, 4, 9, 16, 25, 36}};
        expect_elements(b, x, 6, wanted[i]);
    }
    check_close();
}

/* A strided input is read where it lies: nothing is copied before it. */
Test(custom, strided)
{
    for (int strided = 0; strided < 2; strided++) {
        struct one *own = one("walk",
                              "const int i = get_global_id(0), j = get_global_id(1);\n"
                              "y[i * y_shape[1] + j] = x[i * STEP(0, 2) + j * STEP(1, 1)];\n",
                              KILN_I32, DIMS(3, 2));
        own->kernel.header =
            strided ? "#define STEP(d, dense) x_strides[d]\n" : "#define STEP(d, dense) (dense)\n";
        own->x.strided = strided;
        own->kernel.global[0] = 3;
        own->kernel.global[1] = 2;
        expect_known(&own->kernel, KNOWN(0, 3, 1, 4, 2, 5));
        kiln_batch *b = check_begin();
        kiln_tensor y = call(b, &own->kernel, kiln_transpose(b, counted(b, DIMS(2, 3)), NULL));
        check_read(b, y);
        cr_expect_eq(cost_of(b).launches, strided ? 1u : 2u);
        EXPECT_ELEMENTS(b, y, 0, 3, 1, 4, 2, 5);
    }
    check_close();
}

/* A result that goes to the buffer that its kernel reads. */
Test(custom, in_place)
{
    static const float content[] = {1, 2, 3}, wanted[] = {4, 8, 12};
    kiln_context *context = open_context();
    kiln_buffer *buffer = make_buffer(context, 3, content);
    for (int i = 0; i < 2; i++) {
        kiln_batch *b = kiln_batch_create(context);
        expect_ok(kiln_export(b, call_twice(b, kiln_import(b, buffer), 3), buffer));
        run_batch(b);
        kiln_batch_release(b);
    }
    expect_buffer(buffer, 3, wanted);
    kiln_buffer_release(buffer);
    close_context(context);
}

/* ---- nothing ---- */

Test(custom, empty)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = counted(b, DIMS(0, 3));
    kiln_tensor y =
        call(b, &one("none", "y[get_global_id(0)] = x[0];", KILN_I32, DIMS(3, 0))->kernel, x);
    check_read(b, y);
    cr_expect_eq(cost_of(b).launches, 0u);
    cr_expect(check_run(b));
    check_end(b);
    /* An empty input is none to read. */
    b = check_begin();
    struct one *own = one("fill", "y[get_global_id(0)] = x_size + x_shape[1];", KILN_I32, DIMS(2));
    expect_known(&own->kernel, KNOWN(3, 3));
    y = call(b, &own->kernel, counted(b, DIMS(0, 3)));
    EXPECT_ELEMENTS(b, y, 3, 3);
    check_close();
}

/* ---- found again ---- */

static void run_twice(kiln_context *context, size_t n)
{
    float *x = calloc(n, sizeof *x), *y = calloc(n, sizeof *y);
    kiln_batch *b = kiln_batch_create(context);
    cr_assert(x && y && b);
    fill(x, n, 1);
    expect_ok(kiln_read(b, call_twice(b, kiln_upload(b, KILN_F32, 1, &n, x), n), y, n * sizeof *y));
    run_batch(b);
    for (size_t i = 0; i < n; i++)
        cr_assert_float_eq(y[i], 2 * x[i], 0);
    kiln_batch_release(b);
    free(x);
    free(y);
}

/* A batch of the same structure finds its plan, one of another size its kernel, another context the
 * kernel on disk. */
Test(custom, found_again)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.cache = KILN_CACHE_ON;
    kiln_context *context = open_context_with(&options);
    run_twice(context, 100);
    run_twice(context, 100);
    kiln_context_stats stats = stats_of(context);
    cr_expect_eq(stats.plans_made, 1u);
    cr_expect_eq(stats.plans_reused, 1u);
    cr_expect_eq(stats.kernels_compiled, 1u);
    run_twice(context, 37);
    stats = stats_of(context);
    cr_expect_eq(stats.plans_made, 2u);
    cr_expect_eq(stats.kernels_compiled, 1u);
    expect_ok(kiln_context_sync_cache(context));
    close_context(context);
    context = open_context_with(&options);
    run_twice(context, 41);
    stats = stats_of(context);
    cr_expect_eq(stats.kernels_compiled, 0u);
    cr_expect_eq(stats.kernels_from_disk, 1u);
    close_context(context);
}

/* Another value of a scalar makes another plan of the same kernel; another text is another kernel.
 */
Test(custom, what_tells_them_apart)
{
    static const float x[] = {1};
    kiln_context *context = open_context();
    for (int i = 0; i < 4; i++) {
        static float y[1];
        const kiln_custom_scalar a = {"a", KILN_F32, i < 2 ? i : 3};
        struct one *own =
            one("scaled", i == 3 ? "y[0] = a * x[0] + 1;" : "y[0] = a * x[0];", KILN_F32, DIMS(1));
        own->kernel.scalars = &a;
        own->kernel.scalar_count = 1;
        kiln_batch *b = kiln_batch_create(context);
        expect_ok(
            kiln_read(b, call(b, &own->kernel, kiln_upload(b, KILN_F32, DIMS(1), x)), y, sizeof y));
        run_batch(b);
        cr_expect_float_eq(y[0], i < 2 ? (float)i : i == 3 ? 4 : 3, 0);
        kiln_batch_release(b);
    }
    cr_expect_eq(stats_of(context).plans_made, 4u);
    cr_expect_eq(stats_of(context).kernels_compiled, 2u);
    close_context(context);
}

/* ---- for people ---- */

Test(custom, explained)
{
    kiln_tensor out[3];
    kiln_batch *b = check_begin();
    call_halves(b, numbers(b, DIMS(4), NUMBERS(12, 34, 56, 78)), out);
    check_read(b, kiln_add(b, out[1], out[1]));
    cr_expect(explains(b, "= halves %0 output 1"));
    cr_expect(explains(b, "of an own kernel, or an operand of one"));
    cr_expect(explains(b, "high, i, (float)(x[i] / 10)"));
    check_end(b);
    check_close();
}

/* The compiler's words have the line of the source, and of the header. */
Test(custom, compiler_errors)
{
    for (int in_header = 0; in_header < 2; in_header++) {
        kiln_batch *b = check_begin();
        struct one *own =
            one("broken", "int i = get_global_id(0);\n\ny[i] = nowhere(x[i]);", KILN_F32, DIMS(2));
        own->kernel.header = in_header ? "\nint nowhere(int x) { return mistake; }" : NULL;
        check_read(b, call(b, &own->kernel, check_plain(b, DIMS(2))));
        const kiln_status status = kiln_batch_execute(b);
        expect_error_part(status, KILN_BUILD_FAILED, "kernel kiln_broken could not be compiled");
        /* NVIDIA's driver counts the lines of the whole text, and quotes the one it means. */
        if (!strstr(kiln_last_error(), "<kernel>") && !strstr(kiln_last_error(), "ptxas"))
            expect_error_part(status, KILN_BUILD_FAILED,
                              in_header ? "broken.header:2" : "broken:3");
        expect_error_part(status, KILN_BUILD_FAILED, in_header ? "mistake" : "nowhere");
        check_end(b);
    }
    /* The context goes on. */
    kiln_batch *b = check_begin();
    check_read(b, call_twice(b, check_plain(b, DIMS(8)), 8));
    cr_expect(check_run(b));
    check_end(b);
    check_close();
}

/* Two outputs, sin and cos, whose gradients flow together. */
static kiln_status record_slopes(kiln_batch *b, const kiln_tensor *in, const kiln_tensor *out,
                                 const kiln_tensor *flowed, kiln_tensor *gradients, void *user)
{
    (void)in;
    if (user)
        return KILN_UNSUPPORTED;
    gradients[0] = kiln_sub(b, kiln_mul(b, flowed[0], out[1]), kiln_mul(b, flowed[1], out[0]));
    return KILN_OK;
}

static void call_circle(kiln_batch *b, kiln_tensor x, void *user, kiln_tensor out[2])
{
    const kiln_custom_tensor in = {.name = "x"};
    const kiln_custom_tensor outputs[] = {{.name = "s", .type = KILN_F32, .rank = 1, .dims = {3}},
                                          {.name = "c", .type = KILN_F32, .rank = 1, .dims = {3}}};
    kiln_custom_kernel kernel = KILN_CUSTOM_KERNEL_INIT;
    kernel.name = "circle";
    kernel.source = "const int i = get_global_id(0);\ns[i] = sin(x[i]);\nc[i] = cos(x[i]);";
    kernel.inputs = &in;
    kernel.input_count = 1;
    kernel.outputs = outputs;
    kernel.output_count = 2;
    kernel.gradient = record_slopes;
    kernel.user = user;
    kiln_custom(b, &kernel, &x, out);
}

/* d sin^2 = 2 sin cos; d (sin + 2 cos) = cos - 2 sin. */
Test(custom, gradient)
{
    static const float given[] = {0.5f, -1, 2};
    static float squared[3], mixed[3];
    kiln_context *context = open_context();
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(b, KILN_F32, DIMS(3), given), out[2], slope[2];
    call_circle(b, x, NULL, out);
    kiln_tensor loss = kiln_sum(b, kiln_mul(b, out[0], out[0]), 0, NULL, 0);
    expect_ok(kiln_grad(b, loss, &x, 1, &slope[0]));
    loss = kiln_sum(b, kiln_add(b, out[0], kiln_scale(b, out[1], 2)), 0, NULL, 0);
    expect_ok(kiln_grad(b, loss, &x, 1, &slope[1]));
    expect_ok(kiln_read(b, slope[0], squared, sizeof squared));
    expect_ok(kiln_read(b, slope[1], mixed, sizeof mixed));
    run_batch(b);
    for (int i = 0; i < 3; i++) {
        const double s = sin(given[i]), c = cos(given[i]);
        cr_expect_float_eq(squared[i], 2 * s * c, 1e-6);
        cr_expect_float_eq(mixed[i], c - 2 * s, 1e-6);
    }
    kiln_batch_release(b);
    close_context(context);
}

Test(custom, gradient_refused)
{
    kiln_context *context = open_context();
    kiln_batch *b = kiln_batch_create(context);
    static const float given[] = {0.5f, -1, 2};
    kiln_tensor x = kiln_upload(b, KILN_F32, DIMS(3), given), out[2], slope;
    call_circle(b, x, &x, out);
    expect_error_part(kiln_grad(b, kiln_sum(b, out[0], 0, NULL, 0), &x, 1, &slope),
                      KILN_UNSUPPORTED, "the gradient of kernel circle could not be recorded");
    kiln_batch_release(b);
    close_context(context);
}

Test(custom, without_derivative)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(3)), slope;
    kiln_tensor loss = kiln_sum(b, call_twice(b, x, 3), 0, NULL, 0);
    expect_error_part(kiln_grad(b, loss, &x, 1, &slope), KILN_UNSUPPORTED,
                      "the loss depends on an input through twice, which has no derivative");
    check_end(b);
    check_close();
}

/* Each run is compared with the host, but for what only the kernel knows. */
Test(custom, validated)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    options.validate = 1;
    static const float x[] = {1, 2};
    static float y[2];
    kiln_context *context = open_context_with(&options);
    run_twice(context, 10);
    for (int known = 0; known < 2; known++) {
        struct one *own = one("twice", twice, KILN_F32, DIMS(2));
        double wrong[] = {2, 5};
        if (known)
            expect_known(&own->kernel, wrong);
        kiln_batch *b = kiln_batch_create(context);
        kiln_tensor given = kiln_upload(b, KILN_F32, DIMS(2), x);
        expect_ok(kiln_read(b, kiln_relu(b, call(b, &own->kernel, given)), y, sizeof y));
        const kiln_status status = kiln_batch_execute(b);
        if (known)
            expect_error_part(status, KILN_WRONG_RESULT,
                              "twice (kiln_custom, call 2), f32[2], element [1]: the device has 4 "
                              "and the host 5");
        else
            expect_ok(status);
        kiln_batch_release(b);
    }
    close_context(context);
}
