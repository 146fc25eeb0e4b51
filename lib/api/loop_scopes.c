/* SPDX-License-Identifier: Apache-2.0 */
/* Which graph computes what. A level is how many loops, one behind the other, a value is behind:
 * each level is a part. Movements and constants are no values of their own: whatever graph needs
 * them has them. */
#include "api/loop_scopes.h"

#include <stdlib.h>

struct cutter {
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

static const struct kiln__node *node_at(const struct cutter *cutter, uint32_t index)
{
    return &cutter->graph->nodes.items[index];
}

static const struct kiln__replayed *loop_of(const struct cutter *cutter, uint32_t index)
{
    return cutter->batch->loops.items[kiln__replayed_number(node_at(cutter, index))];
}

/* ---- what the scope is for ---- */

static size_t count_wanted(const struct cutter *cutter)
{
    return cutter->condition ? 1
           : cutter->loop    ? cutter->loop->n_states + cutter->loop->options.output_count
                             : cutter->graph->requests.count;
}

static uint32_t wanted_at(const struct cutter *cutter, size_t k)
{
    const struct kiln__replayed *loop = cutter->loop;
    return cutter->condition    ? loop->ended
           : !loop              ? cutter->graph->requests.items[k].node
           : k < loop->n_states ? loop->next[k]
                                : kiln__tensor_index(loop->options.outputs[k - loop->n_states]);
}

/* ---- marks ---- */

/* Somebody else has put it into memory: a loop, a buffer, the scope outside. */
static bool is_there(const struct cutter *cutter, uint32_t index)
{
    const struct kiln__node *node = node_at(cutter, index);
    const struct kiln__mark *mark = &cutter->marks[index];
    return mark->given || kiln__node_is_replayed(node) ||
           (cutter->loop
                ? !mark->varies && !kiln__node_is_movement(node) && !kiln__node_is_free(node)
                : kiln__node_is_buffer(node));
}

static void mark_varying(struct cutter *cutter)
{
    const struct kiln__replayed *loop = cutter->loop;
    struct kiln__mark *marks = cutter->marks;
    for (size_t k = 0; loop && k < loop->n_states; k++)
        marks[loop->states[k]].varies = marks[loop->states[k]].given = true;
    for (size_t k = 0; loop && k < loop->options.element_count; k++) {
        const uint32_t element = kiln__tensor_index(loop->options.elements[k]);
        marks[element].varies = marks[element].given = true;
    }
    for (size_t i = 0; i < cutter->graph->nodes.count; i++) {
        const struct kiln__node *node = node_at(cutter, (uint32_t)i);
        marks[i].varies |= !loop;
        for (unsigned k = 0; k < node->n_inputs; k++)
            marks[i].varies |= marks[node->input[k]].varies;
    }
}

static void mark_needed(struct cutter *cutter)
{
    for (size_t k = 0; k < count_wanted(cutter); k++)
        cutter->marks[wanted_at(cutter, k)].needed = true;
    for (size_t i = cutter->graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = node_at(cutter, (uint32_t)i);
        const struct kiln__mark *mark = &cutter->marks[i];
        const bool goes_on = mark->varies ? !mark->given : kiln__node_is_movement(node);
        for (unsigned k = 0; mark->needed && goes_on && k < node->n_inputs; k++)
            cutter->marks[node->input[k]].needed = true;
    }
}

static void find_levels(struct cutter *cutter)
{
    struct kiln__mark *marks = cutter->marks;
    for (uint32_t i = 0; i < cutter->graph->nodes.count; i++) {
        const struct kiln__node *node = node_at(cutter, i);
        if (!marks[i].needed || !marks[i].varies || marks[i].given)
            continue;
        for (unsigned k = 0; k < node->n_inputs; k++)
            if (marks[node->input[k]].level > marks[i].level)
                marks[i].level = marks[node->input[k]].level;
        if (kiln__node_is_replayed(node) && i >= loop_of(cutter, i)->results)
            marks[i].level++;
        if (marks[i].level > cutter->last)
            cutter->last = marks[i].level;
    }
}

/* What is behind movements is used at a level. */
static void cross(struct cutter *cutter, uint32_t index, uint32_t level)
{
    const uint32_t behind = kiln__node_behind(cutter->graph, index);
    /* A placeholder is a view: the scope begins with it. */
    for (uint32_t i = index; i != behind; i = node_at(cutter, i)->input[0])
        if (cutter->marks[i].given || cutter->marks[i].crosses)
            return;
    if (!is_there(cutter, behind) && !kiln__node_is_free(node_at(cutter, behind)) &&
        cutter->marks[behind].level < level)
        cutter->marks[behind].crosses = true;
}

/* A loop begins with memory. */
static void cross_exactly(struct cutter *cutter, uint32_t index)
{
    if (!is_there(cutter, index))
        cutter->marks[index].crosses = true;
}

static void cross_into_loop(struct cutter *cutter, const struct kiln__replayed *loop)
{
    for (size_t k = 0; k < loop->n_states; k++)
        cross_exactly(cutter, loop->initial[k]);
    for (size_t k = 0; k < loop->options.element_count; k++)
        cross_exactly(cutter,
                      node_at(cutter, kiln__tensor_index(loop->options.elements[k]))->input[0]);
    for (size_t k = 0; k < loop->n_shared; k++)
        cross_exactly(cutter, loop->shared[k]);
}

static void find_crossing(struct cutter *cutter)
{
    for (uint32_t i = 0; i < cutter->graph->nodes.count; i++) {
        const struct kiln__node *node = node_at(cutter, i);
        const struct kiln__mark *mark = &cutter->marks[i];
        if (mark->needed && kiln__node_is_replayed(node) && mark->varies &&
            i == loop_of(cutter, i)->first)
            cross_into_loop(cutter, loop_of(cutter, i));
    }
    for (uint32_t i = 0; i < cutter->graph->nodes.count; i++) {
        const struct kiln__node *node = node_at(cutter, i);
        const struct kiln__mark *mark = &cutter->marks[i];
        if (!mark->needed || !mark->varies || mark->given || kiln__node_is_replayed(node) ||
            kiln__node_is_movement(node))
            continue;
        for (unsigned k = 0; k < node->n_inputs; k++)
            cross(cutter, node->input[k], mark->level);
    }
    for (size_t k = 0; k < count_wanted(cutter); k++)
        cross(cutter, wanted_at(cutter, k), cutter->last);
}

/* ---- a part ---- */

/* The part of `level` reads it from memory. */
static bool is_input(const struct cutter *cutter, uint32_t index, uint32_t level)
{
    const struct kiln__mark *mark = &cutter->marks[index];
    return is_there(cutter, index) || (mark->crosses && mark->level < level);
}

static bool is_left(const struct cutter *cutter, uint32_t index, uint32_t level)
{
    return cutter->marks[index].crosses && cutter->marks[index].level == level;
}

static void mark_part(struct cutter *cutter, uint32_t level)
{
    struct kiln__mark *marks = cutter->marks;
    for (uint32_t i = 0; i < cutter->graph->nodes.count; i++)
        marks[i].in_part = is_left(cutter, i, level);
    for (size_t k = 0; level == cutter->last && k < count_wanted(cutter); k++)
        marks[wanted_at(cutter, k)].in_part = true;
    for (uint32_t i = (uint32_t)cutter->graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = node_at(cutter, i);
        for (unsigned k = 0; marks[i].in_part && !is_input(cutter, i, level) && k < node->n_inputs;
             k++)
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

static bool add_node(struct cutter *cutter, struct kiln__loop_part *part, uint32_t index,
                     uint32_t level)
{
    struct kiln__node node = *node_at(cutter, index);
    if (is_input(cutter, index, level)) {
        node = (struct kiln__node){.kind = KILN__IMPORT, .type = node.type, .shape = node.shape};
        node.binding = part->inputs.count;
    } else if (kiln__node_is_input(&node)) {
        node.binding = part->inputs.count;
    }
    for (unsigned k = 0; k < node.n_inputs; k++)
        node.input[k] = cutter->marks[node.input[k]].made;
    return (!kiln__node_is_input(&node) || PUSH(&part->inputs, index)) && PUSH(&part->of, index) &&
           kiln__graph_add(&part->graph, &node, &cutter->marks[index].made);
}

/* Which input of the part is the input of the batch that a result goes over: 1 + its number. */
static uint32_t replaced_by(const struct cutter *cutter, const struct kiln__loop_part *part,
                            uint32_t replaces)
{
    for (uint32_t i = 0; replaces && i < part->inputs.count; i++) {
        const struct kiln__node *node = node_at(cutter, part->inputs.items[i]);
        if (kiln__node_is_buffer(node) && node->binding + 1 == replaces)
            return i + 1;
    }
    return 0;
}

static bool add_result(struct cutter *cutter, struct kiln__loop_part *part, uint32_t index,
                       const struct kiln__request *request)
{
    struct kiln__request *place = kiln__vector_push(&part->graph.requests);
    if (!place)
        return false;
    *place = (struct kiln__request){.node = cutter->marks[index].made, .kind = KILN__EXPORT};
    if (request) {
        place->kind = request->kind;
        place->replaces = replaced_by(cutter, part, request->replaces);
    } else if (cutter->condition && index == cutter->loop->ended) {
        place->kind = KILN__READ;
    }
    return true;
}

static bool fill_part(struct cutter *cutter, struct kiln__loop_part *part, uint32_t level)
{
    bool done = true;
    part->graph.batch_invariant = cutter->graph->batch_invariant;
    mark_part(cutter, level);
    for (uint32_t i = 0; i < cutter->graph->nodes.count && done; i++)
        done = !cutter->marks[i].in_part || add_node(cutter, part, i, level);
    for (uint32_t i = 0; i < cutter->graph->nodes.count && done; i++)
        done = !is_left(cutter, i, level) ||
               (PUSH(&part->values, i) && add_result(cutter, part, i, NULL));
    for (size_t k = 0; level == cutter->last && k < count_wanted(cutter) && done; k++)
        done = add_result(cutter, part, wanted_at(cutter, k),
                          cutter->loop ? NULL : &cutter->graph->requests.items[k]);
    return done;
}

static bool make_scope(const kiln_batch *batch, const struct kiln__replayed *loop, bool condition,
                       struct kiln__loop_scope *scope);

static bool add_loops(struct cutter *cutter, struct kiln__loop_part *part, uint32_t level)
{
    for (size_t l = 0; l < cutter->batch->loops.count; l++) {
        const struct kiln__replayed *loop = cutter->batch->loops.items[l];
        const struct kiln__mark *mark = &cutter->marks[loop->results - 1];
        if (!mark->needed || !mark->varies || mark->level != level)
            continue;
        struct kiln__loop_inside *inside = kiln__vector_push(&part->loops);
        if (!inside)
            return false;
        inside->loop = loop;
        if (!make_scope(cutter->batch, loop, false, &inside->step) ||
            (loop->ended && !make_scope(cutter->batch, loop, true, &inside->ended)))
            return false;
    }
    return true;
}

/* ---- the whole ---- */

static bool cut(struct cutter *cutter)
{
    mark_varying(cutter);
    mark_needed(cutter);
    find_levels(cutter);
    find_crossing(cutter);
    for (uint32_t level = 0; level <= cutter->last; level++) {
        struct kiln__loop_part *part = kiln__vector_push(&cutter->scope->parts);
        if (!part || !fill_part(cutter, part, level) || !add_loops(cutter, part, level))
            return false;
    }
    return true;
}

static bool make_scope(const kiln_batch *batch, const struct kiln__replayed *loop, bool condition,
                       struct kiln__loop_scope *scope)
{
    struct cutter cutter = {.batch = batch,
                            .graph = &batch->graph,
                            .loop = loop,
                            .condition = condition,
                            .scope = scope};
    cutter.marks = calloc(batch->graph.nodes.count + 1, sizeof *cutter.marks);
    const bool done = cutter.marks && cut(&cutter);
    free(cutter.marks);
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
