/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that begin without the compiler's declarations of OpenCL C's functions. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "../support/context.h"
#include "../support/layer.h"
#include "../support/samples.h"
#include "programs/build.h"
#include "programs/builtins.h"
#include "session/context.h"
#include "util/verify.h"

TestSuite(builtins, .timeout = 300);

/* ---- which declarations a program gets ---- */

static bool declares(const char *source, const char *row)
{
    struct kiln__text text = {0};
    kiln__builtins_declare(source, &text);
    cr_assert(!text.failed && text.length > strlen(source));
    const bool found = strstr(text.data, row) != NULL;
    cr_expect_str_eq(text.data + text.length - strlen(source), source);
    cr_expect(strstr(text.data, "#line 1\n"));
    kiln__text_free(&text);
    return found;
}

Test(builtins, a_program_gets_what_it_names)
{
    cr_expect(declares("y = fma(a, b, c);", "\nDECLARE_FLOATS_3(fma)\n"));
    cr_expect(declares("fma", "\nDECLARE_FLOATS_3(fma)\n"));
    cr_expect(!declares("y = kiln_fma(a, fm, c);", "DECLARE_FLOATS_3(fma)"));
    cr_expect(!declares("", "\nDECLARE_"));
    cr_expect(declares("vload16(0, x)", "\nDECLARE_LOADS(vload)\n"));
    cr_expect(declares("convert_uchar16_sat(x)", "\nDECLARE_TO_INTEGER(convert_uchar, uchar)\n"));
    cr_expect(!declares("convert_uchar16_sat(x)", "DECLARE_TO_INTEGER(convert_char, char)"));
    /* put together by the preprocessor */
    cr_expect(declares("PASTE(vload, N)(0, x)", "\nDECLARE_LOADS(vload)\n"));
    cr_expect(declares("PASTE(convert_, T)(x)", "\nDECLARE_TO_INTEGER(convert_long, long)\n"));
}

/* ---- compiling ---- */

struct build {
    struct kiln__device device;
    cl_context context;
    cl_program program;
    struct kiln__error error;
};

static struct build begin(void)
{
    struct build build = {0};
    if (kiln__device_choose(NULL, &build.device, NULL) || !build.device.traits->bare_option)
        cr_skip("this device's compiler has one way to begin");
    if (!layer_available())
        cr_skip("run with OPENCL_LAYERS=.../kiln-layer.so");
    build.context = clCreateContext(NULL, 1, &build.device.id, NULL, NULL, NULL);
    cr_assert(build.context);
    kiln__verifies = false;
    return build;
}

/* How often the compiler was asked. */
static uint64_t compile(struct build *build, const char *source, bool bare, kiln_status wanted)
{
    char options[80];
    snprintf(options, sizeof options, "-cl-std=CL1.2 -w %s -DN=1",
             bare ? build->device.traits->bare_option : "");
    build->error = (struct kiln__error){0};
    layer_reset();
    cr_expect_eq(kiln__build_source(build->context, &build->device, source, options, "tried",
                                    &build->program, &build->error),
                 wanted, "%s", build->error.text);
    cr_expect_eq(build->program == NULL, wanted != KILN_OK);
    if (build->program)
        clReleaseProgram(build->program);
    return layer_count("clBuildProgram");
}

#define KERNEL(call)                                                                               \
    "__kernel void tried(__global float *x)\n{\n    x[N] = " call "(x[0], x[1]);\n}\n"

Test(builtins, what_is_not_declared_has_the_compilers_declarations)
{
    struct build build = begin();
    cr_expect_eq(compile(&build, KERNEL("fmax"), true, KILN_OK), 1u);
    cr_expect_eq(compile(&build, KERNEL("hypot"), true, KILN_OK), 2u);
    /* such a compiler is not tried again */
    cr_expect_eq(compile(&build, KERNEL("fmin"), true, KILN_OK), 1u);
    clReleaseContext(build.context);
}

/* From the line's number on: a name of a file before it is new each time. */
static void expect_same_words(struct build *build, const char *source)
{
    compile(build, source, false, KILN_BUILD_FAILED);
    const struct kiln__error plain = build->error;
    cr_expect_eq(compile(build, source, true, KILN_BUILD_FAILED), 2u);
    const char *one = strstr(plain.text, ":3:"), *other = strstr(build->error.text, ":3:");
    cr_assert(one && other, "\"%s\" and \"%s\"", plain.text, build->error.text);
    cr_expect_str_eq(one, other);
    cr_expect_str_eq(kiln_last_error(), build->error.text);
}

Test(builtins, an_error_is_said_in_the_same_words)
{
    struct build build = begin();
    expect_same_words(&build, KERNEL("nonsense"));
    expect_same_words(&build, KERNEL("fma"));
    /* nor does it say anything about the compiler */
    cr_expect_eq(compile(&build, KERNEL("fmax"), true, KILN_OK), 1u);
    clReleaseContext(build.context);
}

Test(builtins, a_failure_that_is_not_the_programs_is_not_tried_again)
{
    struct build build = begin();
    layer_reset();
    layer_fail(1, "clBuildProgram", CL_OUT_OF_RESOURCES, KILN_LAYER_ONCE, KILN_LAYER_CALL);
    cr_expect_eq(kiln__build_source(build.context, &build.device, KERNEL("fmax"),
                                    build.device.traits->bare_option, "tried", &build.program,
                                    &build.error),
                 KILN_OUT_OF_DEVICE_MEMORY);
    cr_expect_eq(layer_count("clBuildProgram"), 1u);
    cr_expect_null(build.program);
    clReleaseContext(build.context);
}

/* Every kernel of kiln's that a test compiles is looked at so. */
Test(builtins, tests_see_what_is_not_declared)
{
    struct build build = begin();
    kiln__verifies = true;
    cr_expect_eq(compile(&build, KERNEL("hypot"), true, KILN_BUILD_FAILED), 1u);
    cr_expect(strstr(build.error.text, "hypot"), "%s", build.error.text);
    clReleaseContext(build.context);
}

/* ---- through a context ---- */

/* Any function of OpenCL C may stand in a kernel that the program brings along. */
Test(builtins, own_kernels_have_all_functions)
{
    const kiln_custom_tensor in = {.name = "x"};
    const kiln_custom_tensor out = {.name = "y", .type = KILN_F32, .rank = 1, .dims = {2}};
    const float data[2] = {3, -5};
    float found[2];
    kiln_custom_kernel kernel = KILN_CUSTOM_KERNEL_INIT;
    kernel.name = "far";
    kernel.source = "int i = get_global_id(0);\ny[i] = hypot(x[i], i ? 12.0f : 4.0f);";
    kernel.inputs = &in;
    kernel.input_count = 1;
    kernel.outputs = &out;
    kernel.output_count = 1;
    kiln_context *context = open_context();
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, (size_t[]){2}, data), y;
    expect_ok(kiln_custom(batch, &kernel, &x, &y));
    expect_ok(kiln_read(batch, y, found, sizeof found));
    layer_reset();
    run_batch(batch);
    if (layer_available())
        cr_expect_eq(layer_count("clBuildProgram"), 1u);
    cr_expect_eq(found[0], 5);
    cr_expect_eq(found[1], 13);
    kiln_batch_release(batch);
    close_context(context);
}

enum { ELEMENTS = SAMPLE_SIZE * SAMPLE_SIZE, KINDS = SAMPLE_KINDS };

static void run_samples(bool bare, float found[KINDS][ELEMENTS])
{
    static struct kiln__traits traits;
    float data[ELEMENTS];
    kiln_context *context = open_context();
    traits = *context->runtime.device.traits;
    if (!traits.bare_option)
        cr_skip("this device's compiler has one way to begin");
    if (!bare)
        traits.bare_option = NULL;
    context->runtime.device.traits = &traits;
    for (size_t i = 0; i < ELEMENTS; i++)
        data[i] = (float)(i * 37 % 64) / 64 - 0.4F;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, (size_t[]){SAMPLE_SIZE, SAMPLE_SIZE}, data);
    for (int kind = 0; kind < KINDS; kind++) {
        const struct sample *sample = sample_of((enum sample_kind)kind);
        expect_ok(kiln_read(batch, sample_square(batch, sample->record(batch, x)), found[kind],
                            sizeof found[kind]));
    }
    run_batch(batch);
    kiln_batch_release(batch);
    close_context(context);
}

Test(builtins, slow_results_have_the_same_bits)
{
    static float bare[KINDS][ELEMENTS], whole[KINDS][ELEMENTS];
    run_samples(true, bare);
    run_samples(false, whole);
    for (int kind = 0; kind < KINDS; kind++)
        cr_expect_arr_eq(bare[kind], whole[kind], sizeof bare[kind], "samples of kind %d", kind);
}
