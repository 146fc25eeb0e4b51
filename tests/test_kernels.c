/* SPDX-License-Identifier: Apache-2.0 */
/* What generated kernels look like, for a CPU and for a GPU that exist only here. Each golden text
 * has one structure, and every kind of loop that code generation knows is in one of them. */
#include <criterion/criterion.h>

#include "codegen/codegen.h"
#include "support/context.h"
#include "support/graph.h"

typedef kiln_tensor structure(kiln_batch *batch);

static void add_kernels(kiln_context *context, const char *device, structure *record,
                        struct kiln__text *text)
{
    kiln_batch *batch = kiln_batch_create(context);
    ask(batch, record(batch));
    struct kiln__plan plan = plan_of(batch, false);
    for (size_t i = 0; i < plan.launches.count; i++) {
        kiln__text_add(text, "/* ---- %s, launch %zu ---- */\n", device, i);
        kiln__codegen_show(&plan, &plan.launches.items[i], text);
    }
    kiln__plan_free(&plan);
    kiln_batch_release(batch);
}

static void check_kernels(const char *name, structure *record)
{
    struct kiln__text text = {0};
    add_kernels(imagined_cpu(), "CPU", record, &text);
    add_kernels(imagined_gpu(), "GPU", record, &text);
    expect_golden(name, &text);
}

#define KERNELS(name, expression)                                                                  \
    static kiln_tensor name(kiln_batch *batch)                                                     \
    {                                                                                              \
        return expression;                                                                         \
    }                                                                                              \
    Test(kernels, name)                                                                            \
    {                                                                                              \
        check_kernels("kernel_" #name, name);                                                      \
    }                                                                                              \
    structure name

/* ---- maps ---- */

KERNELS(map,
        kiln_scale(batch, kiln_add(batch, imagine_matrix(batch, 64, 96), imagine_vector(batch, 96)),
                   2));
KERNELS(map_turned, kiln_add(batch, kiln_transpose(batch, imagine_matrix(batch, 96, 64), NULL),
                             imagine_matrix(batch, 64, 96)));
KERNELS(map_placed,
        kiln_pad(batch, imagine_matrix(batch, 64, 96), (size_t[]){1, 2}, (size_t[]){3, 4}, 5));
KERNELS(map_gathers, kiln_gather(batch, imagine_matrix(batch, 64, 96),
                                 kiln_cast(batch, imagine_vector(batch, 32), KILN_I32), 0));

/* ---- reductions ---- */

KERNELS(reduce_rows, kiln_sum(batch, imagine_matrix(batch, 64, 96), 1, (int[]){1}, 0));
KERNELS(reduce_columns, kiln_sum(batch, imagine_matrix(batch, 64, 96), 1, (int[]){0}, 0));
KERNELS(reduce_segments, kiln_max(batch, imagine_vector(batch, 1 << 20), 0, NULL, 0));
KERNELS(reduce_positions, kiln_argmax(batch, imagine_matrix(batch, 64, 96), 1, (int[]){1}, 0));

/* ---- rows, products ---- */

KERNELS(rows, kiln_softmax(batch, imagine_matrix(batch, 64, 96), 1, (int[]){1}));
KERNELS(product_epilogue,
        kiln_relu(batch, kiln_add(batch,
                                  kiln_matmul(batch, imagine_matrix(batch, 64, 96),
                                              imagine_matrix(batch, 96, 64)),
                                  imagine_vector(batch, 64))));
