/* SPDX-License-Identifier: Apache-2.0 */
/* model = opset graph; graph = weights inputs node+ outputs; a node reads what comes before it, its
 * operator is one that libkiln-onnx knows, its attributes have names that operators know. How often
 * something else is taken instead, a wild number or a name of nothing, the first byte says; so does
 * it whether bytes of the file are spoilt at the end. */
#include "onnx_file.h"

#include <stdlib.h>
#include <string.h>

#include <kiln/onnx.h>

#include "onnx_parts.h"

enum { MOST_NODES = 12 };

/* ---- graphs ---- */

static unsigned operator_count(void)
{
    static unsigned count;
    kiln_model_operator op = {.name = ""};
    while (!count || op.name)
        if (kiln_model_get_operator(count++, &op))
            break;
    return count - 1 ? count - 1 : 1;
}

static const char *operator_name(struct onnx_maker *maker, const char **domain)
{
    static const char *const odd[] = {"Unheard", "", "Loop", "Scan", "If", "%s%n"};
    kiln_model_operator op;
    if (onnx_is_wild(maker) || kiln_model_get_operator(onnx_choose(maker, operator_count()), &op))
        return odd[onnx_choose(maker, sizeof odd / sizeof *odd)];
    *domain = op.domain;
    return op.name;
}

static Onnx__NodeProto *make_node(struct onnx_maker *maker)
{
    Onnx__NodeProto *node = onnx_room(sizeof *node);
    const char *domain = "";
    onnx__node_proto__init(node);
    node->op_type = (char *)operator_name(maker, &domain);
    node->domain = (char *)domain;
    node->n_input = onnx_choose(maker, 6);
    node->input = onnx_room((node->n_input + 1) * sizeof *node->input);
    for (size_t i = 0; i < node->n_input; i++)
        node->input[i] = (char *)onnx_old_name(maker);
    node->n_attribute = onnx_choose(maker, 5);
    node->attribute = onnx_room((node->n_attribute + 1) * sizeof *node->attribute);
    for (size_t i = 0; i < node->n_attribute; i++)
        node->attribute[i] = onnx_make_attribute(maker);
    node->n_output = onnx_is_wild(maker) ? onnx_choose(maker, 4) : 1;
    node->output = onnx_room((node->n_output + 1) * sizeof *node->output);
    for (size_t i = 0; i < node->n_output; i++)
        node->output[i] =
            (char *)(onnx_is_wild(maker) ? onnx_old_name(maker) : onnx_new_name(maker));
    return node;
}

static void make_weights(struct onnx_maker *maker, Onnx__GraphProto *graph)
{
    graph->n_initializer = onnx_choose(maker, 6);
    graph->initializer = onnx_room(6 * sizeof *graph->initializer);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        graph->initializer[i] = onnx_make_tensor(maker);
        graph->initializer[i]->name =
            (char *)(onnx_is_wild(maker) ? onnx_old_name(maker) : onnx_new_name(maker));
    }
}

static void make_inputs(struct onnx_maker *maker, Onnx__GraphProto *graph)
{
    graph->n_input = maker->depth ? 0 : 1 + onnx_choose(maker, 3);
    graph->input = onnx_room(4 * sizeof *graph->input);
    for (size_t i = 0; i < graph->n_input; i++)
        graph->input[i] = onnx_make_value(maker, onnx_is_wild(maker) ? onnx_old_name(maker)
                                                                     : onnx_new_name(maker));
}

Onnx__GraphProto *onnx_make_graph(struct onnx_maker *maker)
{
    Onnx__GraphProto *graph = onnx_room(sizeof *graph);
    unsigned outer = maker->n_names;
    onnx__graph_proto__init(graph);
    make_weights(maker, graph);
    make_inputs(maker, graph);
    maker->depth++;
    graph->n_node = 1 + onnx_choose(maker, maker->depth > 1 ? 3 : MOST_NODES);
    graph->node = onnx_room(graph->n_node * sizeof *graph->node);
    for (size_t i = 0; i < graph->n_node; i++)
        graph->node[i] = make_node(maker);
    graph->n_output = onnx_is_wild(maker) ? onnx_choose(maker, 4) : 1;
    graph->output = onnx_room(4 * sizeof *graph->output);
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *last = maker->n_names ? maker->names[maker->n_names - 1] : "";
        graph->output[i] = onnx_make_value(maker, i ? onnx_old_name(maker) : last);
    }
    maker->depth--;
    if (maker->depth)
        maker->n_names = outer;
    return graph;
}

static Onnx__OperatorSetIdProto *make_set(struct onnx_maker *maker)
{
    Onnx__OperatorSetIdProto *set = onnx_room(sizeof *set);
    onnx__operator_set_id_proto__init(set);
    set->domain = (char *)(onnx_is_wild(maker) ? "com.microsoft" : "");
    set->has_version = 1;
    set->version = onnx_small_number(maker, 7, 17);
    return set;
}

/* ---- damage ---- */

static size_t damage(struct fuzz_bytes *bytes, uint8_t *file, size_t size)
{
    for (unsigned n = fuzz_take(bytes, 8); n && size; n--) {
        size_t at = fuzz_take(bytes, 65536) % size;
        switch (fuzz_take(bytes, 4)) {
        case 0: file[at] ^= (uint8_t)(1 << fuzz_take(bytes, 8)); break;
        case 1: file[at] = (uint8_t)fuzz_take(bytes, 256); break;
        case 2: size = at; break;
        default: {
            /* A part of the file once more in another place. */
            size_t from = fuzz_take(bytes, 65536) % size, length = 1 + fuzz_take(bytes, 64);
            size_t most = size - (from > at ? from : at);
            memmove(file + at, file + from, length < most ? length : most);
        }
        }
    }
    return size;
}

uint8_t *fuzz_make_file(struct fuzz_bytes *bytes, size_t *size)
{
    static const unsigned wildness[] = {0, 200, 60, 20};
    struct onnx_maker maker = {.bytes = bytes, .wild = wildness[fuzz_take(bytes, 4)]};
    bool spoil = !fuzz_take(bytes, 4);
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__OperatorSetIdProto *sets[2];
    onnx_free_room();
    model.has_ir_version = 1;
    model.ir_version = onnx_small_number(&maker, 3, 8);
    model.n_opset_import = 1 + onnx_is_wild(&maker);
    model.opset_import = sets;
    for (size_t i = 0; i < 2; i++)
        sets[i] = make_set(&maker);
    model.graph = onnx_make_graph(&maker);
    *size = onnx__model_proto__get_packed_size(&model);
    uint8_t *file = malloc(*size + 1);
    if (!file)
        return NULL;
    onnx__model_proto__pack(&model, file);
    if (spoil)
        *size = damage(bytes, file, *size);
    return file;
}
