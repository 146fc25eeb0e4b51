/* SPDX-License-Identifier: Apache-2.0 */
/* One input that several results of a batch read, each in its own way. */
#include <criterion/criterion.h>

#include <kiln/attention.h>

#include "../support/check.h"
#include "../support/graph.h"

static kiln_tensor attend(kiln_batch *batch, kiln_tensor x)
{
    return kiln_attention(batch, x, x, x, (kiln_tensor){0}, NULL);
}

static kiln_tensor multiply(kiln_batch *batch, kiln_tensor x)
{
    return kiln_matmul(batch, x, x);
}

typedef kiln_tensor reader(kiln_batch *batch, kiln_tensor x);

/* The second map joins the group of the first; the group that comes next is a new one all the
 * same, with an access for each operand. */
static void load_every_operand(reader *read, size_t operands)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 4, 4);
    ask(batch, kiln_exp(batch, x));
    ask(batch, kiln_sin(batch, x));
    ask(batch, read(batch, x));
    struct kiln__fusion fusion = fusion_of(batch);
    cr_assert_eq(fusion.groups.count, 2u);
    cr_expect_eq(fusion.groups.items[1].accesses.count, operands);
    kiln__fusion_free(&fusion);
    kiln_batch_release(batch);
}

Test(reuse, of_one_input_gives_each_operand_its_access)
{
    load_every_operand(multiply, 2);
    load_every_operand(attend, 3);
}

static void compute_beside_maps(reader *read)
{
    kiln_batch *batch = check_begin();
    kiln_tensor x = check_plain(batch, DIMS(4, 4));
    check_read(batch, kiln_exp(batch, x));
    check_read(batch, kiln_sin(batch, x));
    check_read(batch, read(batch, x));
    check_run(batch);
    check_end(batch);
}

Test(reuse, of_one_input_gives_right_results)
{
    compute_beside_maps(multiply);
    compute_beside_maps(attend);
    check_close();
}
