/* SPDX-License-Identifier: Apache-2.0 */
/* The chain of fusion: values that go to memory become the roots of groups, in an order in which
 * every group comes after those that it reads. */
#include <stdlib.h>

#include "fuse/fuse.h"

const struct kiln__node *kiln__fuse_node(const struct kiln__fuser *fuser, uint32_t index)
{
    return &fuser->fusion->graph.nodes.items[index];
}

/* A store that no kernel loads and nobody asked for is not made. */
static void drop_stores(struct kiln__fusion *fusion)
{
    for (size_t g = 0; g < fusion->groups.count; g++) {
        struct kiln__group *group = &fusion->groups.items[g];
        size_t kept = 0;
        for (size_t i = 0; i < group->stores.count; i++)
            if (fusion->stored[group->stores.items[i].node])
                group->stores.items[kept++] = group->stores.items[i];
        group->stores.count = kept;
    }
}

/* One write and one read of each value that stays in registers. */
static void count_saved(struct kiln__fusion *fusion)
{
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++) {
        const struct kiln__node *node = &fusion->graph.nodes.items[i];
        bool value = kiln__node_is_pointwise(node) || kiln__node_goes_over_rows(node) ||
                     node->kind == KILN__MATMUL;
        if (value && !fusion->stored[i])
            fusion->saved_bytes += 2 * kiln__node_bytes(node);
    }
}

/* Every root joins a group, or begins one. */
static bool group_roots(struct kiln__fuser *fuser)
{
    struct kiln__fusion *fusion = fuser->fusion;
    for (size_t i = 0; i < fusion->graph.requests.count; i++)
        fusion->stored[fusion->graph.requests.items[i].node] = true;
    for (uint32_t i = 0; i < fusion->graph.nodes.count; i++) {
        uint32_t group;
        if (fusion->why[i] <= KILN__BECAUSE_INPUT)
            continue;
        if (!kiln__fuse_join(fuser, i, &group) ||
            (group == KILN__NO_GROUP && !kiln__fuse_begin(fuser, i)))
            return false;
        fusion->group_of[i] = group != KILN__NO_GROUP ? group : (uint32_t)fusion->groups.count - 1;
    }
    return true;
}

static bool make_room(struct kiln__fuser *fuser, size_t count)
{
    struct kiln__fusion *fusion = fuser->fusion;
    fusion->why = calloc(count, sizeof *fusion->why);
    fusion->stored = calloc(count, sizeof *fusion->stored);
    fusion->group_of = malloc(count * sizeof *fusion->group_of);
    fusion->donated_to = malloc(count * sizeof *fusion->donated_to);
    fuser->layouts = calloc(count, sizeof *fuser->layouts);
    fuser->sizes = calloc(count, sizeof *fuser->sizes);
    fuser->for_products = calloc(count, sizeof *fuser->for_products);
    fuser->prologue = calloc(count, sizeof *fuser->prologue);
    bool done = fusion->why && fusion->stored && fusion->group_of && fusion->donated_to &&
                fuser->layouts && fuser->sizes && fuser->for_products && fuser->prologue;
    for (size_t i = 0; done && i < count; i++) {
        fusion->group_of[i] = KILN__NO_GROUP;
        fusion->donated_to[i] = KILN__NO_DONATION;
    }
    return done;
}

bool kiln__fuse(struct kiln__graph *graph, const struct kiln__kernel_support *support,
                struct kiln__fusion *fusion)
{
    *fusion = (struct kiln__fusion){.graph = *graph, .narrow_operands = support->narrow_operands};
    *graph = (struct kiln__graph){0};
    struct kiln__fuser fuser = {.fusion = fusion};
    bool done = make_room(&fuser, fusion->graph.nodes.count + 1);
    if (done) {
        kiln__fuse_materialise(&fuser);
        done = group_roots(&fuser);
        drop_stores(fusion);
        count_saved(fusion);
        done = done && kiln__fuse_multi_output(&fuser) && kiln__fuse_store_transposed(&fuser) &&
               kiln__fuse_donate(&fuser);
    }
    free(fuser.layouts);
    free(fuser.sizes);
    free(fuser.for_products);
    free(fuser.prologue);
    kiln__vector_free(&fuser.memo);
    if (!done)
        kiln__fusion_free(fusion);
    return done;
}

static void free_group(struct kiln__group *group)
{
    kiln__vector_free(&group->steps);
    kiln__vector_free(&group->accesses);
    kiln__vector_free(&group->scalars);
    kiln__vector_free(&group->stores);
    kiln__vector_free(&group->nodes);
}

static void pack_group(struct kiln__group *group, struct kiln__pack *pack)
{
    kiln__pack_vector(pack, &group->steps);
    kiln__pack_vector(pack, &group->accesses);
    kiln__pack_vector(pack, &group->scalars);
    kiln__pack_vector(pack, &group->stores);
    kiln__pack_vector(pack, &group->nodes);
}

void kiln__fusion_pack(struct kiln__fusion *fusion, struct kiln__pack *pack)
{
    const size_t nodes = fusion->graph.nodes.count;
    kiln__pack_vector(pack, &fusion->groups);
    for (size_t i = 0; i < fusion->groups.count; i++)
        pack_group(&fusion->groups.items[i], pack);
    kiln__pack_array(pack, &fusion->why, nodes);
    kiln__pack_array(pack, &fusion->stored, nodes);
    kiln__pack_array(pack, &fusion->group_of, nodes);
    kiln__pack_array(pack, &fusion->donated_to, nodes);
    kiln__graph_pack(&fusion->graph, pack);
}

void kiln__fusion_free(struct kiln__fusion *fusion)
{
    for (size_t i = 0; i < fusion->groups.count; i++)
        free_group(&fusion->groups.items[i]);
    kiln__vector_free(&fusion->groups);
    kiln__graph_free(&fusion->graph);
    free(fusion->why);
    free(fusion->stored);
    free(fusion->group_of);
    free(fusion->donated_to);
    *fusion = (struct kiln__fusion){0};
}
