/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier of groups: a good fusion is broken by hand, in one way after another. Nothing here
 * needs a device. */
#include <criterion/criterion.h>
#include <string.h>

#include "../support/context.h"
#include "../support/graph.h"

/* Groups of every kind:
 *   0 map of indices; 1 map that gathers; 2 reduction of columns and what follows it; 3 rows;
 *   4 product of a tensor with itself, and what follows; 5 attention; 6, 7 rows of running sums;
 *   8 reduction of them; 9 map, not stored: the part of 10 takes over what 7 has made;
 *   10 a part put over it; 11, 12 a scatter over a copy of an input; 13 attention that stores its
 *   heads side by side; 14 the map that would have copied them there. */
static struct kiln__fusion sound_fusion(void)
{
    kiln_batch *batch = imagined_batch();
    kiln_tensor x = imagine_matrix(batch, 8, 8), y = imagine_matrix(batch, 8, 24);
    kiln_tensor z = imagine_matrix(batch, 6, 24), row = imagine_vector(batch, 24);
    kiln_tensor indices = kiln_cast(batch, imagine_vector(batch, 4), KILN_I32);
    kiln_tensor part = kiln_gather(batch, x, indices, 0);
    ask(batch, kiln_exp(batch, part));
    ask(batch, kiln_add(batch, kiln_sum(batch, kiln_exp(batch, z), 1, (int[]){0}, 0), row));
    ask(batch, kiln_softmax(batch, y, 1, (int[]){1}));
    ask(batch, kiln_add(batch, kiln_matmul(batch, x, x), imagine_vector(batch, 8)));
    ask(batch, kiln_attention(batch, x, x, x, (kiln_tensor){0}, NULL));
    ask(batch, kiln_cumsum(batch, x, 0, 0));
    kiln_tensor base = kiln_cumsum(batch, y, 0, 0);
    ask(batch, kiln_sum(batch, base, 0, NULL, 0));
    ask(batch, kiln_insert_slice(batch, base, x, (int64_t[]){0, 1}, (int64_t[]){1, 3}));
    ask(batch, kiln_scatter_add(batch, x, indices, part, 0));
    kiln_tensor heads = kiln_reshape(batch, y, 3, (size_t[]){8, 3, 8});
    heads = kiln_transpose(batch, heads, (size_t[]){1, 0, 2});
    heads = kiln_attention(batch, heads, heads, heads, (kiln_tensor){0}, NULL);
    ask(batch, kiln_transpose(batch, heads, (size_t[]){1, 0, 2}));
    struct kiln__fusion fusion = fusion_of(batch);
    kiln_batch_release(batch);
    return fusion;
}

/* `group` is the one of this number while `change` is made. */
#define EXPECT_BROKEN(number, sentence, change)                                                    \
    do {                                                                                           \
        char wrong[KILN__WRONG] = "";                                                              \
        struct kiln__fusion fusion = sound_fusion();                                               \
        struct kiln__group *group = &fusion.groups.items[number];                                  \
        cr_assert_null(kiln__fusion_verify(&fusion, wrong), "%s", wrong);                          \
        change;                                                                                    \
        (void)group;                                                                               \
        cr_expect(kiln__fusion_verify(&fusion, wrong) == wrong, "not seen: %s", sentence);         \
        cr_expect_str_eq(wrong, sentence, "\"%s\" instead of \"%s\"", wrong, sentence);            \
        kiln__fusion_free(&fusion);                                                                \
    } while (0)

#define STEP(i) group->steps.items[i]
#define ACCESS(i) group->accesses.items[i]
#define STORE(i) group->stores.items[i]

Test(verify_fusion, names_the_step_that_is_broken)
{
    EXPECT_BROKEN(1, "group 1 (map), step 2: an operand that is no earlier step",
                  STEP(2).args[0] = 2);
    EXPECT_BROKEN(1, "group 1 (map), step 0: no such access", STEP(0).index = 2);
    EXPECT_BROKEN(1, "group 1 (map), step 1: its access is of another kind",
                  ACCESS(1).kind = KILN__ACCESS_MEMORY);
    EXPECT_BROKEN(1, "group 1 (map), step 2: wrong types", STEP(2).type = KILN_I32);
    EXPECT_BROKEN(1, "group 1 (map), step 2: wrong number of operands", STEP(2).op = KILN__OP_add);
    EXPECT_BROKEN(1, "group 1 (map), step 2: no such operation", STEP(2).op = 255);
    EXPECT_BROKEN(1, "group 1 (map), step 1: not of the type of what it reads",
                  STEP(1).type = KILN_I32);
    EXPECT_BROKEN(1, "group 1 (map), step 2: a reduction in a group that has no reduced dimensions",
                  STEP(2).kind = KILN__STEP_REDUCED);
    EXPECT_BROKEN(1, "group 1 (map), step 2: a product in another group",
                  STEP(2).kind = KILN__STEP_PRODUCT);
    EXPECT_BROKEN(1, "group 1 (map), step 2: no such kind", STEP(2).kind = 99);
    EXPECT_BROKEN(3, "group 3 (rows), step 5: no such scalar",
                  for (size_t i = 0; i < group->steps.count;
                       i++) if (STEP(i).kind == KILN__STEP_SCALAR) STEP(i)
                      .index = 7);
}

Test(verify_fusion, names_the_access_that_is_broken)
{
    EXPECT_BROKEN(1, "group 1 (map), access 0: reaches beyond what it reads",
                  ACCESS(0).stride[0] = 2);
    EXPECT_BROKEN(1, "group 1 (map), access 0: reaches beyond what it reads",
                  ACCESS(0).offset = -1);
    EXPECT_BROKEN(1, "group 1 (map), access 1: reaches beyond what it reads", ACCESS(1).extent = 9);
    EXPECT_BROKEN(5, "group 5 (attention), access 2: reaches beyond what it reads",
                  ACCESS(2).offset = 1);
    EXPECT_BROKEN(2, "group 2 (reduce), access 1: reads what no earlier group has made",
                  ACCESS(1).node = fusion.groups.items[3].stores.items[0].node);
    EXPECT_BROKEN(1, "group 1 (map), access 0: reads what its group does not store",
                  fusion.groups.items[0].stores.count = 0);
    EXPECT_BROKEN(1, "group 1 (map), access 0: reads what nobody stores",
                  fusion.stored[ACCESS(0).node] = false;
                  fusion.groups.items[0].stores.count = 0);
    EXPECT_BROKEN(1, "group 1 (map), access 0: the number of what is no iota",
                  ACCESS(0).kind = KILN__ACCESS_NUMBER;
                  STEP(0).kind = KILN__STEP_NUMBER);
    EXPECT_BROKEN(8, "group 8 (reduce), access 0: reads what has been overwritten",
                  fusion.donated_to[ACCESS(0).node] = fusion.groups.items[1].stores.items[0].node);
    EXPECT_BROKEN(2, "group 2 (reduce), step 3: moves along what is reduced before it",
                  ACCESS(1).stride[1] = 1;
                  ACCESS(1).stride[0] = 0);
}

Test(verify_fusion, names_the_store_that_is_broken)
{
    EXPECT_BROKEN(1, "group 1 (map), store 1: of a node that is stored already",
                  STORE(1) = STORE(0));
    EXPECT_BROKEN(1, "group 1 (map), store 0: of a node that another group completes",
                  fusion.group_of[STORE(0).node] = 2);
    EXPECT_BROKEN(1, "group 1 (map), store 0: of no step", STORE(0).step = 3);
    EXPECT_BROKEN(1, "group 1 (map), store 0: not of its node's type", STORE(0).step = 0);
    EXPECT_BROKEN(1, "group 1 (map), store 1: of no node",
                  STORE(1).node = (uint32_t)fusion.graph.nodes.count);
    EXPECT_BROKEN(1, "group 1 (map), store 1: not one for each of its results",
                  STORE(1).full = false);
    EXPECT_BROKEN(2, "group 2 (reduce), store 0: not one for each of its results",
                  STORE(0).full = true);
    EXPECT_BROKEN(1, "group 1 (map), store 0: placed beside other stores, or not by a map",
                  STORE(0).placed = true);
    EXPECT_BROKEN(10, "group 10 (map), store 0: reaches beyond what it stores",
                  STORE(0).stride[1] = 4);
    EXPECT_BROKEN(5, "group 5 (attention), store 0: not each of its elements once",
                  STORE(0).placed = true);
    EXPECT_BROKEN(13, "group 13 (attention), store 0: not each of its elements once",
                  STORE(0).stride[0] = STORE(0).stride[1]);
    EXPECT_BROKEN(13, "group 13 (attention), store 0: not of the node that it is computed for",
                  STORE(0).placed = false);
    EXPECT_BROKEN(13, "group 13 (attention), store 0: placed, not by an attention from its start",
                  STORE(0).offset = 1);
    EXPECT_BROKEN(13, "group 13 (attention), store 0: of another type or size",
                  fusion.graph.nodes.items[STORE(0).node].shape.dims[0] = 7);
    EXPECT_BROKEN(2, "group 2 (reduce), store 0: of a step that is gone once there is a result",
                  STORE(0).step = 1);
    EXPECT_BROKEN(2, "group 2 (reduce), store 0: not of its node's shape",
                  fusion.graph.nodes.items[STORE(0).node].shape.dims[0] = 23);
    EXPECT_BROKEN(3, "group 3 (rows), store 0: one for each row of what each element has",
                  STORE(0).full = false);
    EXPECT_BROKEN(12, "node %28 (scatter_add): needed in memory, but its group does not store it",
                  group->stores.count = 0);
}

Test(verify_fusion, knows_each_kind_of_group)
{
    EXPECT_BROKEN(4, "group 4 (matmul): not two operands, each with an access of its own",
                  group->steps.count = 2);
    EXPECT_BROKEN(4, "group 4 (matmul), operand 1: not its own access, of its own extent",
                  STEP(1).index = 0);
    EXPECT_BROKEN(4, "group 4 (matmul), operand 0: not its own access, of its own extent",
                  group->reduced = 7);
    EXPECT_BROKEN(4, "group 4 (matmul): no product of two operands, where it says",
                  STEP(2).args[1] = 0);
    EXPECT_BROKEN(4, "group 4 (matmul), step 4: an operand that is gone once there is a result",
                  STEP(4).args[0] = 1);
    EXPECT_BROKEN(5, "group 5 (attention): not one access for each input",
                  group->accesses.count = group->steps.count = 2);
    EXPECT_BROKEN(5, "group 5 (attention), access 0: not of memory",
                  ACCESS(0).kind = KILN__ACCESS_GATHER);
    EXPECT_BROKEN(5, "group 5 (attention), access 1: not loaded by a step of its own",
                  STEP(1).index = 0);
    EXPECT_BROKEN(5, "group 5 (attention), access 1: not of its input's type",
                  STEP(2) = ((struct kiln__step){
                      .kind = KILN__STEP_CONVERT, .type = KILN_I32, .n_args = 1, .args = {1}}));
    EXPECT_BROKEN(
        6, "group 6 (rows), step 1: running sums in a group that has no rows of one dimension",
        group->kept = 0;
        group->reduced = 64);
    EXPECT_BROKEN(2,
                  "group 2 (reduce), step 2: running sums in a group that has no rows of one "
                  "dimension",
                  STEP(2).kind = KILN__STEP_SCANNED);
    EXPECT_BROKEN(6, "group 6 (rows), step 1: wrong types", STEP(1).type = KILN_I32);
    EXPECT_BROKEN(3, "group 3 (rows), step 4: running sums that go another way than others",
                  STEP(1).kind = STEP(4).kind = KILN__STEP_SCANNED;
                  STEP(1).op = KILN__SCAN_FORWARD; STEP(4).op = KILN__SCAN_BACKWARD);
    EXPECT_BROKEN(2, "group 2 (reduce): not one reduction, where it says", group->reduced_step = 1);
    EXPECT_BROKEN(2, "group 2 (reduce): its reduction is another one",
                  STEP(group->reduced_step).op = KILN__REDUCE_max);
    EXPECT_BROKEN(2, "group 2 (reduce), step 4: an operand that is gone once there is a result",
                  STEP(4).args[0] = 1);
    EXPECT_BROKEN(3, "group 3 (rows): its rows have no dimension", group->kept = 2;
                  group->reduced = 1);
    EXPECT_BROKEN(3, "group 3 (rows): not as many elements for each result as it says",
                  group->reduced = 7);
    EXPECT_BROKEN(1, "group 1 (map): reduces dimensions that it does not have", group->kept = 1);
    EXPECT_BROKEN(0, "group 0: no such kind", group->kind = 99);
    EXPECT_BROKEN(3, "group 3 (rows): too many accesses",
                  group->accesses.count = KILN__MOST_ACCESSES + 1);
}

Test(verify_fusion, knows_what_is_put_over_what)
{
    EXPECT_BROKEN(10, "node %27 (insert_slice): its base is neither copied nor taken over",
                  for (size_t i = 0; i < fusion.graph.nodes.count; i++) fusion.donated_to[i] =
                      KILN__NO_DONATION);
    EXPECT_BROKEN(12, "node %28 (scatter_add): nothing below what is put over it",
                  fusion.groups.items[11].stores.count = 0;
                  group->base_group = KILN__NO_GROUP);
    EXPECT_BROKEN(8, "result #6 names no node",
                  fusion.graph.requests.items[6].node = (uint32_t)fusion.graph.nodes.count);
}
