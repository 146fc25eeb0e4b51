/* SPDX-License-Identifier: Apache-2.0 */
/* What is refused of kernels of the program's own, and in which words. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "../support/check.h"
#include "custom_one.h"

static struct refusal {
    const char *what, *words;
    kiln_status status;
} refusals[] = {
    {"kernel", "kernel is NULL", KILN_INVALID_ARGUMENT},
    {"size", "", KILN_INVALID_ARGUMENT},
    {"outputs", "outputs is NULL", KILN_INVALID_ARGUMENT},
    {"name", "the kernel is called NULL", KILN_INVALID_ARGUMENT},
    {"word", "the kernel is called 2x, which is no identifier", KILN_INVALID_ARGUMENT},
    {"source", "kernel own: source is NULL", KILN_INVALID_ARGUMENT},
    {"own prefix", "is called kiln_x, which is no identifier", KILN_INVALID_ARGUMENT},
    {"text", "is called x; }, which is no identifier", KILN_INVALID_ARGUMENT},
    {"same", "two arguments are called x", KILN_INVALID_ARGUMENT},
    {"many", "10 inputs, and it takes 0 to 9", KILN_INVALID_ARGUMENT},
    {"huge", "inputs, and it takes 0 to 9", KILN_INVALID_ARGUMENT},
    {"none", "0 outputs, and it takes 1 to 8", KILN_INVALID_ARGUMENT},
    {"no array", "outputs is NULL", KILN_INVALID_ARGUMENT},
    {"no tensors", "input tensors is NULL", KILN_INVALID_ARGUMENT},
    {"empty", "operand x is the empty tensor", KILN_INVALID_HANDLE},
    {"type", "x is f32, and it takes i32; cast it", KILN_TYPE_MISMATCH},
    {"no type", "99 is no data type", KILN_INVALID_ARGUMENT},
    {"blocks", "q4_0 is a type of blocks", KILN_TYPE_MISMATCH},
    {"rank", "9 dimensions, and 8 are the most", KILN_INVALID_ARGUMENT},
    {"elements", "has too many elements", KILN_TOO_LARGE},
    {"scalar type", "scalar a is u8, and they are f32, i32 or i64", KILN_TYPE_MISMATCH},
    {"scalar", "scalar a: i32 cannot hold 0.5", KILN_INVALID_ARGUMENT},
    {"NaN", "scalar a: i64 cannot hold nan", KILN_INVALID_ARGUMENT},
    {"group", "10 work-items in dimension 0 are no whole number of work-groups of 4",
     KILN_INVALID_ARGUMENT},
    {"no item", "work-items in dimension 1 are no whole number of work-groups of 2",
     KILN_INVALID_ARGUMENT},
    {"items", "work-items are too many", KILN_TOO_LARGE},
    {"large group", "and the device has room for", KILN_TOO_LARGE},
};

static void refuse(const struct refusal *refusal)
{
    kiln_batch *b = check_begin();
    kiln_tensor x = check_plain(b, DIMS(3)), y = {1};
    struct one *own = one("own", "", KILN_F32, DIMS(3));
    kiln_custom_scalar a = {"a", KILN_I32, 1};
    kiln_custom_tensor more[11];
    const kiln_custom_kernel *kernel = &own->kernel;
    const kiln_tensor *inputs = &x;
    kiln_tensor *outputs = &y;
    const char *what = refusal->what;
    own->kernel.scalars = &a;
    own->kernel.scalar_count = 1;
    for (size_t i = 0; i < 11; i++)
        more[i] = own->x;
#define IF(words) if (!strcmp(what, words))
    IF("kernel") kernel = NULL;
    IF("size") own->kernel.size = 3;
    IF("outputs") outputs = NULL;
    IF("name") own->kernel.name = NULL;
    IF("word") own->kernel.name = "2x";
    IF("source") own->kernel.source = NULL;
    IF("own prefix") own->x.name = "kiln_x";
    IF("text") own->x.name = "x; }";
    IF("same") own->y.name = "x";
    IF("many") own->kernel.input_count = 10;
    IF("many") own->kernel.inputs = more;
    IF("huge") own->kernel.input_count = SIZE_MAX;
    IF("none") own->kernel.output_count = 0;
    IF("no array") own->kernel.outputs = NULL;
    IF("no tensors") inputs = NULL;
    IF("empty") x = (kiln_tensor){0};
    IF("type") own->x.type = KILN_I32;
    IF("no type") own->y.type = (kiln_type)99;
    IF("blocks") own->y = (kiln_custom_tensor){"y", KILN_Q4_0, 0, 1, {32}};
    IF("rank") own->y.rank = 9;
    IF("elements") own->y.dims[0] = SIZE_MAX;
    IF("scalar type") a.type = KILN_U8;
    IF("scalar") a.value = 0.5;
    IF("NaN") a = (kiln_custom_scalar){"a", KILN_I64, NAN};
    IF("group") own->kernel.global[0] = 10;
    IF("group") own->kernel.local[0] = 4;
    IF("no item") own->kernel.local[1] = 2;
    IF("items") own->kernel.global[0] = own->kernel.global[2] = (size_t)1 << 33;
    IF("large group") own->kernel.global[0] = own->kernel.local[0] = (size_t)1 << 40;
#undef IF
    const kiln_status status = kiln_custom(b, kernel, inputs, outputs);
    expect_error_part(status, refusal->status, refusal->words);
    cr_expect_eq(kiln_batch_status(b), refusal->status, "%s", what);
    if (outputs && kernel && strcmp(what, "size") && strcmp(what, "none"))
        cr_expect_eq(y.id, 0u, "%s", what);
    check_end(b);
}

Test(custom_refused, each_for_its_reason)
{
    kiln_tensor y = {1};
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        refuse(&refusals[i]);
    expect_error_part(kiln_custom(NULL, &one("own", "", KILN_F32, DIMS(3))->kernel, NULL, &y),
                      KILN_INVALID_ARGUMENT, "kiln_custom: batch is NULL");
    cr_expect_eq(y.id, 0u);
    check_close();
}

/* Shapes of many tensors come to more bytes than a kernel may be given. */
Test(custom_refused, too_many_bytes)
{
    char names[9][3], source[256] = "";
    kiln_custom_tensor in[9];
    kiln_tensor given[9], y;
    kiln_batch *b = check_begin();
    for (int k = 0; k < 9; k++) {
        snprintf(names[k], sizeof names[k], "x%d", k);
        in[k] = (kiln_custom_tensor){.name = names[k], .strided = 1};
        given[k] = check_plain(b, DIMS(1, 1, 1, 1, 1, 1, 1, 1));
        snprintf(source + strlen(source), sizeof source - strlen(source),
                 "y[0] = x%d_shape[0] + x%d_strides[0];\n", k, k);
    }
    struct one *own = one("own", source, KILN_F32, DIMS(1));
    own->kernel.inputs = in;
    own->kernel.input_count = 9;
    expect_error_part(kiln_custom(b, &own->kernel, given, &y), KILN_TOO_LARGE,
                      "bytes of arguments");
    check_end(b);
    check_close();
}
