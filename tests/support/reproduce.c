/* SPDX-License-Identifier: Apache-2.0 */
/* Shrinks a failing batch, and writes it as a C program on the public interface. */
#include "reproduce.h"
#include "session/context.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference/reference.h"

static void *keep(void *memory)
{
    cr_assert(memory);
    return memory;
}

void *reproduce_content(const kiln_batch *batch, const struct kiln__binding *binding)
{
    char *copy = malloc(binding->bytes + 1);
    cr_assert(copy);
    if (binding->host && binding->bytes)
        memcpy(copy, binding->host, binding->bytes);
    else if (binding->bytes)
        cr_assert_eq(clEnqueueReadBuffer(batch->context->runtime.compute->queue, binding->memory,
                                         CL_TRUE, 0, binding->bytes, copy, 0, NULL, NULL),
                     0);
    return copy;
}

struct kiln__reference reproduce_values(const kiln_batch *batch)
{
    struct kiln__reference reference;
    size_t count = batch->bindings.inputs.count;
    void **inputs = keep(calloc(count + 1, sizeof *inputs));
    for (size_t i = 0; i < count; i++)
        inputs[i] = reproduce_content(batch, &batch->bindings.inputs.items[i]);
    cr_assert(kiln__reference_run(&batch->graph, (const void *const *)inputs, &reference));
    for (size_t i = 0; i < count; i++)
        free(inputs[i]);
    free(inputs);
    return reference;
}

bool reproduce_validates(kiln_batch *batch)
{
    return kiln_batch_execute(batch) != KILN_WRONG_RESULT;
}

/* A batch of the same nodes, those of `cut` as uploads of `values`, and one request. Its memory is
 * its own. */
static kiln_batch *derive(const kiln_batch *batch, kiln_context *context, const bool *cut,
                          double *const *values, uint32_t asked)
{
    kiln_batch *made = keep(kiln_batch_create(context));
    for (uint32_t i = 0; i < batch->graph.nodes.count; i++) {
        struct kiln__node node = batch->graph.nodes.items[i];
        if (kiln__node_is_input(&node) || (cut[i] && values[i])) {
            size_t count = kiln__node_count(&node), item = kiln_type_size((kiln_type)node.type);
            char *data = keep(malloc(count * item + 1));
            for (size_t e = 0; values[i] && e < count; e++)
                kiln__value_store(node.type, values[i][e], data + e * item);
            struct kiln__binding *binding = keep(kiln__vector_push(&made->bindings.inputs));
            *binding = (struct kiln__binding){.host = data, .bytes = count * item, .item = item};
            node.kind = KILN__UPLOAD;
            node.n_inputs = 0;
            node.binding = made->bindings.inputs.count - 1;
        }
        kiln__batch_record(made, &node, "reproduce");
    }
    size_t bytes = kiln__node_bytes(&made->graph.nodes.items[asked]);
    kiln_tensor tensor = {(uint64_t)made->serial << 32 | (asked + 1)};
    cr_assert_eq(kiln_read(made, tensor, keep(malloc(bytes + 1)), bytes), KILN_OK);
    return made;
}

void reproduce_release(kiln_batch *batch)
{
    void **memory = keep(
        calloc(batch->bindings.inputs.count + batch->bindings.results.count + 1, sizeof *memory));
    size_t count = 0;
    for (size_t i = 0; i < batch->bindings.inputs.count; i++)
        memory[count++] = batch->bindings.inputs.items[i].host;
    for (size_t i = 0; i < batch->bindings.results.count; i++)
        memory[count++] = batch->bindings.results.items[i].host;
    kiln_batch_release(batch);
    for (size_t i = 0; i < count; i++)
        free(memory[i]);
    free(memory);
}

static bool still_fails(const kiln_batch *batch, kiln_context *context, const bool *cut,
                        double *const *values, uint32_t asked, reproduce_judge *is_right)
{
    kiln_batch *made = derive(batch, context, cut, values, asked);
    bool fails = !is_right(made);
    reproduce_release(made);
    return fails;
}

/* The first node that fails when it alone is asked for; then every node that may become an input
 * does, the last ones first. NULL: none fails alone. */
kiln_batch *reproduce_shrink(const kiln_batch *batch, kiln_context *context,
                             reproduce_judge *is_right)
{
    struct kiln__reference reference = reproduce_values(batch);
    uint32_t count = (uint32_t)batch->graph.nodes.count, asked = 0;
    bool *cut = keep(calloc(count + 1, sizeof *cut));
    kiln_batch *made = NULL;
    while (asked < count &&
           (!reference.values[asked] || kiln__node_is_input(&batch->graph.nodes.items[asked]) ||
            !still_fails(batch, context, cut, reference.values, asked, is_right)))
        asked++;
    for (uint32_t i = asked; i-- > 0 && asked < count;) {
        bool plain = batch->graph.nodes.items[i].kind == KILN__CONSTANT;
        cut[i] = !plain && reference.values[i];
        if (cut[i] && !still_fails(batch, context, cut, reference.values, asked, is_right))
            cut[i] = false;
    }
    if (asked < count)
        made = derive(batch, context, cut, reference.values, asked);
    free(cut);
    kiln__reference_free(&reference);
    return made;
}
