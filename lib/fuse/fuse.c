/* SPDX-License-Identifier: Apache-2.0 */
/* Which values go to memory. Everything else is computed where it is used. */
#include <stdlib.h>

#include "fuse/fuse.h"

/* Up to this cost a value with at most one load is computed again instead of stored. */
#define CHEAP 8

/* What one kernel may hold; drivers allow at least 1,024 bytes of arguments. */
#define MOST_STEPS 96
#define MOST_LOADS 20

const char *kiln__why_text(enum kiln__why why)
{
    static const char *const texts[] = {
        [KILN__INLINE] = "computed where it is used",
        [KILN__BECAUSE_INPUT] = "an input",
        [KILN__BECAUSE_ASKED] = "asked for",
        [KILN__BECAUSE_REDUCTION] = "a reduction",
        [KILN__BECAUSE_PRODUCT] = "a matrix product",
        [KILN__BECAUSE_OPERAND] = "an operand of a matrix product",
        [KILN__BECAUSE_ATTENTION] = "an attention, or an operand of one",
        [KILN__BECAUSE_SCAN] = "running sums, or what they add up",
        [KILN__BECAUSE_SHARED] = "used by several operations",
        [KILN__BECAUSE_REPEATED] = "repeated by a broadcast, computed once",
        [KILN__BECAUSE_MOVED] = "moved in a way that strides cannot say",
        [KILN__BECAUSE_LARGE] = "the kernel would grow too large",
        [KILN__BECAUSE_GATHERED] = "read at positions that are computed",
        [KILN__BECAUSE_SCATTERED] = "a scatter, or an operand of one",
        [KILN__BECAUSE_PLACED] = "parts are put into it",
    };
    return texts[why];
}

const uint32_t kiln__straight[KILN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};

const struct kiln__node *kiln__fuser_node(const struct kiln__fuser *fuser, uint32_t index)
{
    return &fuser->fusion->graph.nodes.items[index];
}

static bool in_registers(const struct kiln__fuser *fuser, uint32_t index)
{
    return kiln__node_is_computed(kiln__fuser_node(fuser, index)) && !fuser->fusion->why[index];
}

static void store(struct kiln__fuser *fuser, uint32_t index, enum kiln__why why)
{
    if (!fuser->fusion->why[index])
        fuser->fusion->why[index] = (uint8_t)why;
    fuser->layouts[index] = kiln__layout_of(&fuser->fusion->graph, index, fuser->layouts, true);
}

/* Requests of a reshape are requests of what it reshapes: the same bytes. */
static void store_requested(struct kiln__fuser *fuser)
{
    struct kiln__graph *graph = &fuser->fusion->graph;
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node;
        while (kiln__fuser_node(fuser, node)->kind == KILN__RESHAPE)
            node = kiln__fuser_node(fuser, node)->input[0];
        graph->requests.items[i].node = node;
        if (!kiln__node_is_input(kiln__fuser_node(fuser, node)))
            fuser->fusion->why[node] = KILN__BECAUSE_ASKED;
    }
}

static void count_users(struct kiln__fuser *fuser)
{
    struct kiln__graph *graph = &fuser->fusion->graph;
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
        const struct kiln__node *node = kiln__fuser_node(fuser, i);
        for (unsigned k = 0; k < node->n_inputs; k++) {
            bool again = false;
            for (unsigned earlier = 0; earlier < k; earlier++)
                again = again || node->input[k] == node->input[earlier];
            fuser->sizes[node->input[k]].users += !again;
        }
    }
}

/* Steps, loads and cost of computing a pointwise node in registers. */
static void measure(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    struct kiln__size *size = &fuser->sizes[index];
    size->steps = 1;
    size->loads = 0;
    size->reads_as_many = false;
    size->cost = node->kind == KILN__ELEMENTWISE ? kiln__elementwise_rows[node->op].cost : 1;
    for (unsigned k = 0; k < node->n_inputs; k++) {
        uint32_t input = node->input[k];
        bool deeper = in_registers(fuser, input);
        size->steps += deeper ? fuser->sizes[input].steps : 1;
        size->loads += deeper ? fuser->sizes[input].loads
                              : kiln__fuser_node(fuser, input)->kind != KILN__CONSTANT;
        size->cost += deeper ? fuser->sizes[input].cost : 0;
        if (kiln__node_count(kiln__fuser_node(fuser, input)) >= kiln__node_count(node))
            size->reads_as_many |= deeper ? fuser->sizes[input].reads_as_many
                                          : kiln__fuser_node(fuser, input)->kind != KILN__CONSTANT;
    }
}

/* The inputs of a pointwise node are computed in its registers, unless each would be computed
 * often, or the kernel would grow too large. */
static void decide_pointwise(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    for (unsigned k = 0; k < node->n_inputs; k++) {
        uint32_t input = node->input[k];
        bool repeated = kiln__node_count(kiln__fuser_node(fuser, input)) < kiln__node_count(node);
        if (in_registers(fuser, input) && repeated && fuser->sizes[input].cost > CHEAP / 4)
            store(fuser, input, KILN__BECAUSE_REPEATED);
    }
    measure(fuser, index);
    for (unsigned k = 0; k < node->n_inputs; k++) {
        const struct kiln__size *size = &fuser->sizes[index];
        if (size->steps <= MOST_STEPS && size->loads <= MOST_LOADS)
            break;
        if (in_registers(fuser, node->input[k]) && fuser->sizes[node->input[k]].steps > 1)
            store(fuser, node->input[k], KILN__BECAUSE_LARGE);
        measure(fuser, index);
    }
    const struct kiln__size *size = &fuser->sizes[index];
    /* What is made of smaller operands, as a mask of labels, is sooner made again than loaded. */
    if (size->users > 1 && (size->cost > CHEAP || (size->loads > 1 && size->reads_as_many)))
        store(fuser, index, KILN__BECAUSE_SHARED);
}

/* A movement reads memory through strides; what it moves must be there. */
static void decide_movement(struct kiln__fuser *fuser, uint32_t index)
{
    struct kiln__graph *graph = &fuser->fusion->graph;
    uint32_t input = kiln__fuser_node(fuser, index)->input[0];
    if (!fuser->layouts[input].known)
        store(fuser, input, KILN__BECAUSE_MOVED);
    fuser->layouts[index] = kiln__layout_of(graph, index, fuser->layouts, false);
    if (fuser->layouts[index].known)
        return;
    store(fuser, input, KILN__BECAUSE_MOVED);
    fuser->layouts[index] = kiln__layout_of(graph, index, fuser->layouts, false);
}

/* A gather reads memory; its indices are computed where it is. */
static void decide_gather(struct kiln__fuser *fuser, uint32_t index)
{
    uint32_t data = kiln__fuser_node(fuser, index)->input[0];
    if (!fuser->layouts[data].known ||
        kiln__fuser_node(fuser, fuser->layouts[data].base)->kind == KILN__IOTA)
        store(fuser, data, KILN__BECAUSE_GATHERED);
    decide_pointwise(fuser, index);
}

static bool is_row_major(const struct kiln__layout *layout, const struct kiln__shape *shape)
{
    int64_t stride[KILN_MAX_RANK];
    bool same = layout->known;
    kiln__shape_strides(shape, stride);
    for (uint32_t d = 0; d < shape->rank; d++)
        same = same && (shape->dims[d] == 1 || layout->stride[d] == stride[d]);
    return same;
}

/* Values and indices are read from memory as they lie there. */
static void decide_scatter(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    for (unsigned k = 0; k < KILN__SCATTER_BASE; k++) {
        const struct kiln__layout *layout = &fuser->layouts[node->input[k]];
        if (!is_row_major(layout, &kiln__fuser_node(fuser, node->input[k])->shape) ||
            kiln__fuser_node(fuser, layout->base)->kind == KILN__IOTA)
            store(fuser, node->input[k], KILN__BECAUSE_SCATTERED);
    }
    store(fuser, index, KILN__BECAUSE_SCATTERED);
}

static void decide_matmul(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    for (unsigned k = 0; k < node->n_inputs; k++) {
        uint32_t input = node->input[k];
        if (!kiln__layout_suits_matmul(&fuser->layouts[input],
                                       &kiln__fuser_node(fuser, input)->shape))
            store(fuser, input, KILN__BECAUSE_OPERAND);
    }
    store(fuser, index, KILN__BECAUSE_PRODUCT);
}

/* An attention reads whatever strides can say. */
static void decide_attention(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    for (unsigned k = 0; k < node->n_inputs; k++)
        if (!fuser->layouts[node->input[k]].known)
            store(fuser, node->input[k], KILN__BECAUSE_ATTENTION);
    store(fuser, index, KILN__BECAUSE_ATTENTION);
}

/* Running sums read dense memory. */
static void decide_scan(struct kiln__fuser *fuser, uint32_t index)
{
    uint32_t input = kiln__fuser_node(fuser, index)->input[0];
    const struct kiln__shape *shape = &kiln__fuser_node(fuser, input)->shape;
    const struct kiln__layout *layout = &fuser->layouts[input];
    bool dense = layout->known && kiln__fuser_node(fuser, layout->base)->kind != KILN__IOTA;
    int64_t stride[KILN_MAX_RANK];
    kiln__shape_strides(shape, stride);
    for (uint32_t d = 0; d < shape->rank; d++)
        dense = dense && (shape->dims[d] == 1 || layout->stride[d] == stride[d]);
    if (!dense)
        store(fuser, input, KILN__BECAUSE_SCAN);
    store(fuser, index, KILN__BECAUSE_SCAN);
}

static void decide(struct kiln__fuser *fuser, uint32_t index)
{
    const struct kiln__node *node = kiln__fuser_node(fuser, index);
    switch ((enum kiln__kind)node->kind) {
    case KILN__UPLOAD:
    case KILN__IMPORT: store(fuser, index, KILN__BECAUSE_INPUT); break;
    case KILN__CONSTANT: break;
    case KILN__ELEMENTWISE:
    case KILN__CAST: decide_pointwise(fuser, index); break;
    case KILN__REDUCE: store(fuser, index, KILN__BECAUSE_REDUCTION); break;
    case KILN__VIEW:
    case KILN__RESHAPE: decide_movement(fuser, index); break;
    case KILN__MATMUL: decide_matmul(fuser, index); break;
    case KILN__ATTENTION: decide_attention(fuser, index); break;
    case KILN__IOTA:
        fuser->layouts[index] = kiln__layout_of(&fuser->fusion->graph, index, NULL, false);
        break;
    case KILN__GATHER: decide_gather(fuser, index); break;
    case KILN__SCAN: decide_scan(fuser, index); break;
    case KILN__SCATTER_ADD: decide_scatter(fuser, index); break;
    case KILN__PLACE: store(fuser, index, KILN__BECAUSE_PLACED); break;
    }
    if (fuser->fusion->why[index])
        store(fuser, index, (enum kiln__why)fuser->fusion->why[index]);
}

/* Decisions of later nodes put earlier ones into memory: say all layouts again. */
static void settle_layouts(struct kiln__fuser *fuser)
{
    struct kiln__graph *graph = &fuser->fusion->graph;
    for (uint32_t i = 0; i < graph->nodes.count; i++)
        fuser->layouts[i] =
            kiln__layout_of(graph, i, fuser->layouts, fuser->fusion->why[i] != KILN__INLINE);
}

static bool make_room(struct kiln__fuser *fuser, size_t count)
{
    struct kiln__fusion *fusion = fuser->fusion;
    fusion->why = calloc(count, sizeof *fusion->why);
    fusion->stored = calloc(count, sizeof *fusion->stored);
    fusion->group_of = malloc(count * sizeof *fusion->group_of);
    fusion->heir = malloc(count * sizeof *fusion->heir);
    fuser->layouts = calloc(count, sizeof *fuser->layouts);
    fuser->sizes = calloc(count, sizeof *fuser->sizes);
    bool done = fusion->why && fusion->stored && fusion->group_of && fusion->heir &&
                fuser->layouts && fuser->sizes;
    for (size_t i = 0; done && i < count; i++) {
        fusion->group_of[i] = UINT32_MAX;
        fusion->heir[i] = KILN__NO_HEIR;
    }
    return done;
}

bool kiln__fuse(struct kiln__graph *graph, struct kiln__fusion *fusion)
{
    *fusion = (struct kiln__fusion){.graph = *graph};
    *graph = (struct kiln__graph){0};
    struct kiln__fuser fuser = {.fusion = fusion};
    bool done = make_room(&fuser, fusion->graph.nodes.count + 1);
    if (done) {
        store_requested(&fuser);
        count_users(&fuser);
        for (uint32_t i = 0; i < fusion->graph.nodes.count; i++)
            decide(&fuser, i);
        settle_layouts(&fuser);
        done = kiln__form_groups(&fuser);
    }
    free(fuser.layouts);
    free(fuser.sizes);
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

void kiln__fusion_free(struct kiln__fusion *fusion)
{
    for (size_t i = 0; i < fusion->groups.count; i++)
        free_group(&fusion->groups.items[i]);
    kiln__vector_free(&fusion->groups);
    kiln__graph_free(&fusion->graph);
    free(fusion->why);
    free(fusion->stored);
    free(fusion->group_of);
    free(fusion->heir);
    *fusion = (struct kiln__fusion){0};
}
