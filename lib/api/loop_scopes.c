/* SPDX-License-Identifier: Apache-2.0 */
/* Which graph computes what. A level is how many loops, one behind the other, a value is behind:
 * each level is a part. Movements and constants are no values of their own: whatever graph needs
 * them has them. */
#include "api/loop_scopes.h"

#include <stdlib.h>

struct partitioner {
    const kiln_batch *batch;
    const struct kiln__graph *graph;
    const struct kiln__replayed *loop; /* whose step is cut; NULL: the batch itself */
    bool condition;                    /* no more of the step than whether the loop has ended */
    struct kiln__loop_scope *scope;
    struct kiln__mark {
        bool varies; /* the scope computes it, or begins with it */
        bool given;  /* the scope begins with it */
        bool needed;
        bool crosses; /* it is to be in memory behind its part */
        bool in_part; /* of the part that is being made */
        uint32_t level;
        uint32_t made; /* and its node there */
    } * marks;
    uint32_t last; /* level */
};

static const struct kiln__node *node_at(const struct partitioner *partitioner, uint32_t index)
{
    return &partitioner->graph->nodes.items[index];
}

static const struct kiln__replayed *loop_of(const struct partitioner *partitioner, uint32_t index)
{
    return partitioner->batch->loops.items[kiln__replayed_number(node_at(partitioner, index))];
}

/* ---- what the scope is for ---- */

static size_t count_wanted(const struct partitioner *partitioner)
{
    return partitioner->condition ? 1
           : partitioner->loop
               ? partitioner->loop->n_states + partitioner->loop->options.output_count
               : partitioner->graph->requests.count;
}

static uint32_t wanted_at(const struct partitioner *partitioner, size_t k)
{
    const struct kiln__replayed *loop = partitioner->loop;
    return partitioner->condition ? loop->ended
           : !loop                ? partitioner->graph->requests.items[k].node
           : k < loop->n_states   ? loop->next[k]
                                  : kiln__tensor_index(loop->options.outputs[k - loop->n_states]);
}

/* ---- marks ---- */

/* Somebody else has put it into memory: a loop, a buffer, the scope outside. */
static bool is_there(const struct partitioner *partitioner, uint32_t index)
{
    const struct kiln__node *node = node_at(partitioner, index);
    const struct kiln__mark *mark = &partitioner->marks[index];
    return mark->given || kiln__node_is_replayed(node) ||
           (partitioner->loop
                ? !mark->varies && !kiln__node_is_movement(node) && !kiln__node_is_free(node)
                : kiln__node_is_buffer(node));
}

static void mark_varying(struct partitioner *partitioner)
{
    const struct kiln__replayed *loop = partitioner->loop;
    struct kiln__mark *marks = partitioner->marks;
    for (size_t k = 0; loop && k < loop->n_states; k++)
        marks[loop->states[k]].varies = marks[loop->states[k]].given = true;
    for (size_t k = 0; loop && k < loop->options.element_count; k++) {
        const uint32_t element = kiln__tensor_index(loop->options.elements[k]);
        marks[element].varies = marks[element].given = true;
    }
    for (size_t i = 0; i < partitioner->graph->nodes.count; i++) {
        const struct kiln__node *node = node_at(partitioner, (uint32_t)i);
        marks[i].varies |= !loop;
        for (unsigned k = 0; k < node->n_inputs; k++)
            marks[i].varies |= marks[node->input[k]].varies;
    }
}

static void mark_needed(struct partitioner *partitioner)
{
    for (size_t k = 0; k < count_wanted(partitioner); k++)
        partitioner->marks[wanted_at(partitioner, k)].needed = true;
    for (size_t i = partitioner->graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = node_at(partitioner, (uint32_t)i);
        const struct kiln__mark *mark = &partitioner->marks[i];
        const bool goes_on = mark->varies ? !mark->given : kiln__node_is_movement(node);
        for (unsigned k = 0; mark->needed && goes_on && k < node->n_inputs; k++)
            partitioner->marks[node->input[k]].needed = true;
    }
}

static void find_levels(struct partitioner *partitioner)
{
    struct kiln__mark *marks = partitioner->marks;
    for (uint32_t i = 0; i < partitioner->graph->nodes.count; i++) {
        const struct kiln__node *node = node_at(partitioner, i);
        if (!marks[i].needed || !marks[i].varies || marks[i].given)
            continue;
        for (unsigned k = 0; k < node->n_inputs; k++)
            if (marks[node->input[k]].level > marks[i].level)
                marks[i].level = marks[node->input[k]].level;
        if (kiln__node_is_replayed(node) && i >= loop_of(partitioner, i)->results)
            marks[i].level++;
        if (marks[i].level > partitioner->last)
            partitioner->last = marks[i].level;
    }
}

/* What is behind movements is used at a level. */
static void cross(struct partitioner *partitioner, uint32_t index, uint32_t level)
{
    const uint32_t behind = kiln__node_after_movements(partitioner->graph, index);
    /* A placeholder is a view: the scope begins with it. */
    for (uint32_t i = index; i != behind; i = node_at(partitioner, i)->input[0])
        if (partitioner->marks[i].given || partitioner->marks[i].crosses)
            return;
    if (!is_there(partitioner, behind) && !kiln__node_is_free(node_at(partitioner, behind)) &&
        partitioner->marks[behind].level < level)
        partitioner->marks[behind].crosses = true;
}

/* A loop begins with memory. */
static void cross_exactly(struct partitioner *partitioner, uint32_t index)
{
    if (!is_there(partitioner, index))
        partitioner->marks[index].crosses = true;
}

static void cross_into_loop(struct partitioner *partitioner, const struct kiln__replayed *loop)
{
    for (size_t k = 0; k < loop->n_states; k++)
        cross_exactly(partitioner, loop->initial[k]);
    for (size_t k = 0; k < loop->options.element_count; k++)
        cross_exactly(
            partitioner,
            node_at(partitioner, kiln__tensor_index(loop->options.elements[k]))->input[0]);
    for (size_t k = 0; k < loop->n_shared; k++)
        cross_exactly(partitioner, loop->shared[k]);
}

static void find_crossing(struct partitioner *partitioner)
{
    for (uint32_t i = 0; i < partitioner->graph->nodes.count; i++) {
        const struct kiln__node *node = node_at(partitioner, i);
        const struct kiln__mark *mark = &partitioner->marks[i];
        if (mark->needed && kiln__node_is_replayed(node) && mark->varies &&
            i == loop_of(partitioner, i)->first)
            cross_into_loop(partitioner, loop_of(partitioner, i));
    }
    for (uint32_t i = 0; i < partitioner->graph->nodes.count; i++) {
        const struct kiln__node *node = node_at(partitioner, i);
        const struct kiln__mark *mark = &partitioner->marks[i];
        if (!mark->needed || !mark->varies || mark->given || kiln__node_is_replayed(node) ||
            kiln__node_is_movement(node))
            continue;
        for (unsigned k = 0; k < node->n_inputs; k++)
            cross(partitioner, node->input[k], mark->level);
    }
    for (size_t k = 0; k < count_wanted(partitioner); k++)
        cross(partitioner, wanted_at(partitioner, k), partitioner->last);
}

/* ---- a part ---- */

/* The part of `level` reads it from memory. */
static bool is_input(const struct partitioner *partitioner, uint32_t index, uint32_t level)
{
    const struct kiln__mark *mark = &partitioner->marks[index];
    return is_there(partitioner, index) || (mark->crosses && mark->level < level);
}

static bool is_left(const struct partitioner *partitioner, uint32_t index, uint32_t level)
{
    return partitioner->marks[index].crosses && partitioner->marks[index].level == level;
}

static void mark_part(struct partitioner *partitioner, uint32_t level)
{
    struct kiln__mark *marks = partitioner->marks;
    for (uint32_t i = 0; i < partitioner->graph->nodes.count; i++)
        marks[i].in_part = is_left(partitioner, i, level);
    for (size_t k = 0; level == partitioner->last && k < count_wanted(partitioner); k++)
        marks[wanted_at(partitioner, k)].in_part = true;
    for (uint32_t i = (uint32_t)partitioner->graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = node_at(partitioner, i);
        for (unsigned k = 0;
             marks[i].in_part && !is_input(partitioner, i, level) && k < node->n_inputs; k++)
            marks[node->input[k]].in_part = true;
    }
}

static bool push(uint32_t **items, size_t *count, size_t *capacity, uint32_t value)
{
    if (!kiln__vector_grow((void **)items, count, capacity, sizeof value))
        return false;
    (*items)[*count - 1] = value;
    return true;
}
#define PUSH(vector, value) push(&(vector)->items, &(vector)->count, &(vector)->capacity, value)

static bool add_node(struct partitioner *partitioner, struct kiln__loop_part *part, uint32_t index,
                     uint32_t level)
{
    struct kiln__node node = *node_at(partitioner, index);
    if (is_input(partitioner, index, level)) {
        node = (struct kiln__node){.kind = KILN__IMPORT, .type = node.type, .shape = node.shape};
        node.binding = part->inputs.count;
    } else if (kiln__node_is_input(&node)) {
        node.binding = part->inputs.count;
    }
    for (unsigned k = 0; k < node.n_inputs; k++)
        node.input[k] = partitioner->marks[node.input[k]].made;
    return (!kiln__node_is_input(&node) || PUSH(&part->inputs, index)) && PUSH(&part->of, index) &&
           kiln__graph_add(&part->graph, &node, &partitioner->marks[index].made);
}

/* Which input of the part is the input of the batch that a result goes over: 1 + its number. */
static uint32_t replaced_by(const struct partitioner *partitioner,
                            const struct kiln__loop_part *part, uint32_t replaces)
{
    for (uint32_t i = 0; replaces && i < part->inputs.count; i++) {
        const struct kiln__node *node = node_at(partitioner, part->inputs.items[i]);
        if (kiln__node_is_buffer(node) && node->binding + 1 == replaces)
            return i + 1;
    }
    return 0;
}

static bool add_result(struct partitioner *partitioner, struct kiln__loop_part *part,
                       uint32_t index, const struct kiln__request *request)
{
    struct kiln__request *place = kiln__vector_push(&part->graph.requests);
    if (!place)
        return false;
    *place = (struct kiln__request){.node = partitioner->marks[index].made, .kind = KILN__EXPORT};
    if (request) {
        place->kind = request->kind;
        place->replaces = replaced_by(partitioner, part, request->replaces);
    } else if (partitioner->condition && index == partitioner->loop->ended) {
        place->kind = KILN__READ;
    }
    return true;
}

static bool fill_part(struct partitioner *partitioner, struct kiln__loop_part *part, uint32_t level)
{
    bool done = true;
    part->steps = 1;
    part->graph.batch_invariant = partitioner->graph->batch_invariant;
    mark_part(partitioner, level);
    for (uint32_t i = 0; i < partitioner->graph->nodes.count && done; i++)
        done = !partitioner->marks[i].in_part || add_node(partitioner, part, i, level);
    for (uint32_t i = 0; i < partitioner->graph->nodes.count && done; i++)
        done = !is_left(partitioner, i, level) ||
               (PUSH(&part->values, i) && add_result(partitioner, part, i, NULL));
    for (size_t k = 0; level == partitioner->last && k < count_wanted(partitioner) && done; k++)
        done = add_result(partitioner, part, wanted_at(partitioner, k),
                          partitioner->loop ? NULL : &partitioner->graph->requests.items[k]);
    return done;
}

static bool make_scope(const kiln_batch *batch, const struct kiln__replayed *loop, bool condition,
                       struct kiln__loop_scope *scope);

static bool make_stretch(const kiln_batch *batch, const struct kiln__replayed *stretch,
                         struct kiln__loop_scope *scope)
{
    const bool done = !stretch || make_scope(batch, stretch, false, scope);
    for (size_t i = 0; i < scope->parts.count; i++)
        scope->parts.items[i].steps = stretch->options.steps;
    return done;
}

static bool add_loops(struct partitioner *partitioner, struct kiln__loop_part *part, uint32_t level)
{
    for (size_t l = 0; l < partitioner->batch->loops.count; l++) {
        const struct kiln__replayed *loop = partitioner->batch->loops.items[l];
        const struct kiln__mark *mark = &partitioner->marks[loop->results - 1];
        if (!mark->needed || !mark->varies || mark->level != level)
            continue;
        struct kiln__loop_inside *inside = kiln__vector_push(&part->loops);
        if (!inside)
            return false;
        inside->loop = loop;
        if (!make_scope(partitioner->batch, loop, false, &inside->step) ||
            !make_stretch(partitioner->batch, loop->stretch, &inside->stretch) ||
            (loop->ended && !make_scope(partitioner->batch, loop, true, &inside->ended)))
            return false;
    }
    return true;
}

/* ---- the whole ---- */

static bool make_parts(struct partitioner *partitioner)
{
    mark_varying(partitioner);
    mark_needed(partitioner);
    find_levels(partitioner);
    find_crossing(partitioner);
    for (uint32_t level = 0; level <= partitioner->last; level++) {
        struct kiln__loop_part *part = kiln__vector_push(&partitioner->scope->parts);
        if (!part || !fill_part(partitioner, part, level) || !add_loops(partitioner, part, level))
            return false;
    }
    return true;
}

static bool make_scope(const kiln_batch *batch, const struct kiln__replayed *loop, bool condition,
                       struct kiln__loop_scope *scope)
{
    struct partitioner partitioner = {.batch = batch,
                                      .graph = &batch->graph,
                                      .loop = loop,
                                      .condition = condition,
                                      .scope = scope};
    partitioner.marks = calloc(batch->graph.nodes.count + 1, sizeof *partitioner.marks);
    const bool done = partitioner.marks && make_parts(&partitioner);
    free(partitioner.marks);
    return done;
}

bool kiln__loop_scope_make(const kiln_batch *batch, struct kiln__loop_scope *scope)
{
    *scope = (struct kiln__loop_scope){0};
    return make_scope(batch, NULL, false, scope);
}

static void free_part(struct kiln__loop_part *part)
{
    for (size_t l = 0; l < part->loops.count; l++) {
        kiln__loop_scope_free(&part->loops.items[l].step);
        kiln__loop_scope_free(&part->loops.items[l].stretch);
        kiln__loop_scope_free(&part->loops.items[l].ended);
    }
    kiln__vector_free(&part->loops);
    kiln__graph_free(&part->graph);
    kiln__vector_free(&part->of);
    kiln__vector_free(&part->inputs);
    kiln__vector_free(&part->values);
    free(part->labels.nodes.items);
}

void kiln__loop_scope_free(struct kiln__loop_scope *scope)
{
    for (size_t i = 0; i < scope->parts.count; i++)
        free_part(&scope->parts.items[i]);
    kiln__vector_free(&scope->parts);
}
