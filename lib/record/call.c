/* SPDX-License-Identifier: Apache-2.0 */
/* The stack of public calls that a batch is in, which error messages and labels name. */
#include "record/call.h"

#include <stdio.h>
#include <string.h>

/* ` (a is "layer3.q")` */
static void say_operands(const struct kiln__speaker *speaker, char *text, size_t size)
{
    const kiln_batch *batch = speaker->user;
    size_t length = 0;
    for (size_t i = 0; i < batch->spoken && length < size; i++)
        length += (size_t)snprintf(text + length, size - length, "%s%s is \"%s\"", i ? ", " : " (",
                                   batch->operands[i].word,
                                   kiln__labels_name(&batch->labels, batch->operands[i].node));
    if (length && length + 1 < size)
        snprintf(text + length, size - length, ")");
}

kiln_batch *kiln__call_begin(kiln_batch *batch, const char *function)
{
    if (!batch || batch->depth++)
        return batch;
    struct kiln__called *called =
        batch->error.status ? NULL : kiln__vector_push(&batch->labels.calls);
    if (called)
        called->function = function;
    batch->spoken = 0;
    batch->speaker =
        (struct kiln__speaker){function, batch->labels.calls.count, say_operands, batch};
    kiln__error_speaker(&batch->speaker);
    if (!called)
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory to record", function);
    return batch;
}

void kiln__call_end(kiln_batch **batch)
{
    if (*batch && !--(*batch)->depth)
        kiln__error_speaker(NULL);
}

void kiln__call_unnamed(kiln_batch *batch)
{
    if (batch->labels.calls.count)
        batch->labels.calls.items[batch->labels.calls.count - 1].unnamed = true;
}

void kiln__call_for(kiln_batch *batch, const char *what, uint32_t node, uint32_t scope)
{
    const char *name = kiln__labels_name(&batch->labels, node);
    if (!name) {
        batch->labels.scope = scope;
        return;
    }
    struct kiln__phrase whole;
    snprintf(whole.text, sizeof whole.text, "%s %s", what, name);
    const char *now = batch->labels.names.data + batch->labels.scope;
    if (strcmp(now, whole.text) != 0)
        batch->labels.scope = kiln__labels_keep(&batch->labels, whole.text);
}

void kiln__call_operand(kiln_batch *batch, const char *word, uint32_t node)
{
    size_t most = sizeof batch->operands / sizeof *batch->operands;
    if (!batch->depth || batch->spoken == most || !kiln__labels_find(&batch->labels, node))
        return;
    for (size_t i = 0; i < batch->spoken; i++)
        if (batch->operands[i].node == node)
            return;
    batch->operands[batch->spoken].node = node;
    snprintf(batch->operands[batch->spoken].word, sizeof batch->operands->word, "%s", word);
    batch->spoken++;
}

/* ---- names ---- */

/* What stands for a name; false without memory. */
static bool call_keep(kiln_batch *batch, const char *name, const char *call, uint32_t *kept)
{
    *kept = kiln__labels_keep(&batch->labels, name);
    if (batch->labels.names.failed)
        kiln__fail(&batch->error, KILN_OUT_OF_HOST_MEMORY, "%s: no memory for a name", call);
    return !batch->error.status;
}

kiln_tensor kiln_name(kiln_batch *batch, kiln_tensor tensor, const char *name)
{
    uint32_t kept;
    if (!kiln__batch_node(batch, tensor, __func__, "tensor") ||
        !call_keep(batch, name, __func__, &kept))
        return (kiln_tensor){0};
    struct kiln__label *label = &batch->labels.nodes.items[kiln__tensor_index(tensor)];
    struct kiln__called *called = label->call ? &batch->labels.calls.items[label->call - 1] : NULL;
    if (called && (!called->name || called->name == label->name))
        called->name = kept;
    label->name = kept;
    return tensor;
}

kiln_status kiln_name_calls(kiln_batch *batch, const char *name)
{
    uint32_t kept;
    if (kiln__batch_is_open(batch, __func__) && call_keep(batch, name, __func__, &kept))
        batch->labels.scope = kept;
    return kiln_batch_status(batch);
}
