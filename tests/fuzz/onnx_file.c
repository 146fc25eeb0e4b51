/* SPDX-License-Identifier: Apache-2.0 */
/* model = opset graph; graph = weights inputs node+ outputs; a node reads what comes before it, its
 * operator is one that libkiln-onnx knows, its attributes have names that operators know. How often
 * something else is taken instead, a wild number or a name of nothing, the first byte says; so does
 * it whether bytes of the file are spoilt at the end. */
#include "onnx_file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/onnx.h>

#include "onnx/onnx.pb-c.h"

enum { ROOM = 1 << 23, MOST_NODES = 12, MOST_VALUES = 96, MOST_LIST = 6, DEEPEST = 3 };

unsigned fuzz_take(struct fuzz_bytes *bytes, unsigned n)
{
    unsigned value = 0;
    for (unsigned most = n > 256 ? 2 : 1; most; most--)
        value = value << 8 | (bytes->at < bytes->size ? bytes->data[bytes->at++] : 0);
    return value % n;
}

/* ---- what is under way ---- */

static union {
    char bytes[ROOM];
    long double aligned;
} arena;
static size_t arena_used;

/* Memory until the next file. A byte that decides makes 2 KiB of it at most. */
static void *room(size_t bytes)
{
    bytes = (bytes + 15) & ~(size_t)15;
    if (arena_used + bytes > ROOM)
        abort();
    void *place = arena.bytes + arena_used;
    arena_used += bytes;
    return memset(place, 0, bytes);
}

struct making {
    struct fuzz_bytes *bytes;
    unsigned wild; /* one of so many choices; 0: none */
    const char *names[MOST_VALUES];
    unsigned n_names, depth;
};

static unsigned take(struct making *making, unsigned n)
{
    return fuzz_take(making->bytes, n);
}

static bool is_wild(struct making *making)
{
    return making->wild && !take(making, making->wild);
}

/* "v17" */
static char *number_name(char letter, unsigned number)
{
    char *name = room(24);
    snprintf(name, 24, "%c%u", letter, number);
    return name;
}

static int64_t wild_number(struct making *making)
{
    static const int64_t numbers[] = {0,
                                      -1,
                                      1,
                                      2,
                                      7,
                                      8,
                                      9,
                                      -9,
                                      255,
                                      4096,
                                      65536,
                                      INT32_MAX,
                                      INT32_MIN,
                                      INT64_MAX,
                                      INT64_MIN,
                                      (int64_t)1 << 32,
                                      (int64_t)1 << 40,
                                      ((int64_t)1 << 61) + 1,
                                      -((int64_t)1 << 33),
                                      1 << 20};
    return numbers[take(making, sizeof numbers / sizeof *numbers)];
}

static int64_t small_number(struct making *making, int lowest, unsigned count)
{
    return is_wild(making) ? wild_number(making) : lowest + (int64_t)take(making, count);
}

static int64_t *numbers(struct making *making, size_t *count, int lowest, unsigned range)
{
    *count = take(making, MOST_LIST);
    int64_t *list = room((*count + 1) * sizeof *list);
    for (size_t i = 0; i < *count; i++)
        list[i] = small_number(making, lowest, range);
    return list;
}

/* ---- names ---- */

static const char *new_name(struct making *making)
{
    const char *name = number_name('v', making->n_names + 1000 * making->depth);
    if (making->n_names < MOST_VALUES)
        making->names[making->n_names++] = name;
    return name;
}

static const char *old_name(struct making *making)
{
    static const char *const odd[] = {"", "v0", "nobody", "v1001"};
    if (!making->n_names || is_wild(making))
        return odd[take(making, 4)];
    return making->names[take(making, making->n_names)];
}

/* ---- tensors and types ---- */

static int32_t element_type(struct making *making)
{
    static const uint8_t types[] = {1, 1, 1, 1, 7, 7, 7, 6, 9, 10, 11, 2, 3, 16, 5, 12};
    return is_wild(making) ? (int32_t)wild_number(making) : types[take(making, sizeof types)];
}

static size_t element_bytes(int32_t type)
{
    static const uint8_t bytes[17] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};
    return type > 0 && type < 17 ? bytes[type] : 1;
}

/* Small numbers, so that they may be axes, shapes and indices. */
static void fill_raw(struct making *making, Onnx__TensorProto *tensor, size_t count)
{
    size_t bytes = element_bytes(tensor->data_type);
    bool floats = tensor->data_type == 1;
    tensor->has_raw_data = 1;
    tensor->raw_data.len = count * bytes;
    tensor->raw_data.data = room(tensor->raw_data.len + 1);
    for (size_t i = 0; i < count; i++) {
        int64_t value = small_number(making, -1, 5);
        float real = (float)value / 2;
        for (size_t b = 0; !floats && b < bytes && b < 8; b++)
            tensor->raw_data.data[i * bytes + b] = (uint8_t)(value >> 8 * b);
        if (floats)
            memcpy(tensor->raw_data.data + i * bytes, &real, sizeof real);
    }
    if (is_wild(making))
        tensor->raw_data.len /= 2;
}

static void fill_fields(struct making *making, Onnx__TensorProto *tensor, size_t count)
{
    tensor->n_int64_data = tensor->data_type == 7 ? count : 0;
    tensor->n_float_data = tensor->data_type == 1 ? count : 0;
    tensor->n_int32_data = tensor->n_int64_data || tensor->n_float_data ? 0 : count;
    tensor->int64_data = room((tensor->n_int64_data + 1) * sizeof(int64_t));
    tensor->float_data = room((tensor->n_float_data + 1) * sizeof(float));
    tensor->int32_data = room((tensor->n_int32_data + 1) * sizeof(int32_t));
    for (size_t i = 0; i < tensor->n_int64_data; i++)
        tensor->int64_data[i] = small_number(making, -1, 5);
    for (size_t i = 0; i < tensor->n_int32_data; i++)
        tensor->int32_data[i] = (int32_t)small_number(making, -1, 5);
}

static void make_external(struct making *making, Onnx__TensorProto *tensor)
{
    static const char *const words[][2] = {{"location", "weights"},
                                           {"location", "../../etc/passwd"},
                                           {"location", "/etc/passwd"},
                                           {"offset", "0"},
                                           {"offset", "-1"},
                                           {"length", "18446744073709551615"}};
    tensor->has_data_location = 1;
    tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    tensor->n_external_data = take(making, 3);
    tensor->external_data = room(3 * sizeof *tensor->external_data);
    for (size_t i = 0; i < tensor->n_external_data; i++) {
        Onnx__StringStringEntryProto *entry = room(sizeof *entry);
        onnx__string_string_entry_proto__init(entry);
        unsigned row = take(making, sizeof words / sizeof *words);
        entry->key = (char *)words[row][0];
        entry->value = (char *)words[row][1];
        tensor->external_data[i] = entry;
    }
}

static Onnx__TensorProto *make_tensor(struct making *making)
{
    Onnx__TensorProto *tensor = room(sizeof *tensor);
    size_t count = 1;
    onnx__tensor_proto__init(tensor);
    tensor->has_data_type = 1;
    tensor->data_type = element_type(making);
    tensor->n_dims = take(making, 5);
    tensor->dims = room((tensor->n_dims + 1) * sizeof(int64_t));
    for (size_t i = 0; i < tensor->n_dims; i++) {
        unsigned extent = 1 + take(making, 4);
        tensor->dims[i] = is_wild(making) ? wild_number(making) : extent;
        count *= extent;
    }
    if (is_wild(making) && !take(making, 2))
        make_external(making, tensor);
    else if (take(making, 4))
        fill_raw(making, tensor, count);
    else
        fill_fields(making, tensor, count);
    return tensor;
}

static Onnx__TensorShapeProto *make_shape(struct making *making)
{
    Onnx__TensorShapeProto *shape = room(sizeof *shape);
    onnx__tensor_shape_proto__init(shape);
    shape->n_dim = is_wild(making) ? take(making, 12) : take(making, 5);
    shape->dim = room(12 * sizeof *shape->dim);
    for (size_t i = 0; i < shape->n_dim; i++) {
        Onnx__TensorShapeProto__Dimension *dim = room(sizeof *dim);
        onnx__tensor_shape_proto__dimension__init(dim);
        unsigned kind = take(making, 4);
        if (kind < 2) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dim->dim_value = small_number(making, 1, 4);
        } else if (kind == 2) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dim->dim_param = number_name('n', take(making, 2));
        }
        shape->dim[i] = dim;
    }
    return shape;
}

static Onnx__ValueInfoProto *make_value(struct making *making, const char *name)
{
    Onnx__ValueInfoProto *value = room(sizeof *value);
    Onnx__TypeProto *type = room(sizeof *type);
    Onnx__TypeProto__Tensor *tensor = room(sizeof *tensor);
    onnx__value_info_proto__init(value);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(tensor);
    value->name = (char *)name;
    value->type = is_wild(making) ? NULL : type;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    tensor->has_elem_type = 1;
    tensor->elem_type = element_type(making);
    tensor->shape = take(making, 5) ? make_shape(making) : NULL;
    return value;
}

/* ---- attributes ---- */

static Onnx__GraphProto *make_graph(struct making *making);

/* The names that operators know, each with the type it is usually of. */
static const struct {
    const char *name;
    Onnx__AttributeProto__AttributeType type;
} attributes[] = {
#define INT ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT
#define INTS ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS
#define FLOAT ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT
#define STRING ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING
#define TENSOR ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR
#define GRAPH ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH
    {"axis", INT},
    {"axes", INTS},
    {"perm", INTS},
    {"to", INT},
    {"keepdims", INT},
    {"value", TENSOR},
    {"value_ints", INTS},
    {"value_int", INT},
    {"start", INT},
    {"end", INT},
    {"shape", INTS},
    {"split", INTS},
    {"starts", INTS},
    {"ends", INTS},
    {"kernel_shape", INTS},
    {"strides", INTS},
    {"pads", INTS},
    {"dilations", INTS},
    {"group", INT},
    {"auto_pad", STRING},
    {"ceil_mode", INT},
    {"output_padding", INTS},
    {"output_shape", INTS},
    {"mode", STRING},
    {"alpha", FLOAT},
    {"beta", FLOAT},
    {"epsilon", FLOAT},
    {"transA", INT},
    {"transB", INT},
    {"equation", STRING},
    {"hidden_size", INT},
    {"direction", STRING},
    {"linear_before_reset", INT},
    {"layout", INT},
    {"num_groups", INT},
    {"q_num_heads", INT},
    {"kv_num_heads", INT},
    {"scale", FLOAT},
    {"is_causal", INT},
    {"softcap", FLOAT},
    {"k", INT},
    {"largest", INT},
    {"sorted", INT},
    {"exclusive", INT},
    {"reverse", INT},
    {"upper", INT},
    {"batch_dims", INT},
    {"reduction", STRING},
    {"blocksize", INT},
    {"count_include_pad", INT},
    {"p", INT},
    {"num_outputs", INT},
    {"noop_with_empty_axes", INT},
    {"allowzero", INT},
    {"size", INT},
    {"bias", FLOAT},
    {"fmod", INT},
    {"min", FLOAT},
    {"max", FLOAT},
    {"dtype", INT},
    {"num_heads", INT},
    {"rotary_embedding_dim", INT},
    {"interleaved", INT},
    {"onesided", INT},
    {"inverse", INT},
    {"coordinate_transformation_mode", STRING},
    {"nearest_mode", STRING},
    {"ignore_index", INT},
    {"then_branch", GRAPH},
    {"else_branch", GRAPH},
    {"body", GRAPH},
    {"block_size", INT},
    {"depth", INT},
    {"stash_type", INT},
    {"storage_order", INT},
#undef INT
#undef INTS
#undef FLOAT
#undef STRING
#undef TENSOR
#undef GRAPH
};

static const char *const strings[] = {
    "SAME_UPPER", "SAME_LOWER",    "VALID",      "NOTSET",     "constant",      "edge",
    "reflect",    "wrap",          "nearest",    "linear",     "cubic",         "forward",
    "reverse",    "bidirectional", "ij,jk->ik",  "bij,bjk",    "...ii->...i",   "sum",
    "mean",       "none",          "add",        "mul",        "max",           "min",
    "DCR",        "CRD",           "asymmetric", "half_pixel", "align_corners", "floor",
    "ceil",       "tanh",          "",           "i,j->",      "%s%n",          "->"};

static Onnx__AttributeProto *make_attribute(struct making *making)
{
    Onnx__AttributeProto *made = room(sizeof *made);
    unsigned row = take(making, sizeof attributes / sizeof *attributes);
    onnx__attribute_proto__init(made);
    made->name = (char *)attributes[row].name;
    made->has_type = !is_wild(making);
    made->type = is_wild(making) ? (Onnx__AttributeProto__AttributeType)take(making, 16)
                                 : attributes[row].type;
    made->has_i = made->has_f = made->has_s = 1;
    made->i = small_number(making, -1, 6);
    made->f = (float)small_number(making, -1, 6) / 4;
    const char *word = strings[take(making, sizeof strings / sizeof *strings)];
    made->s = (ProtobufCBinaryData){strlen(word), (uint8_t *)word};
    made->ints = numbers(making, &made->n_ints, -1, 6);
    if (made->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR)
        made->t = make_tensor(making);
    if (made->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH && making->depth < DEEPEST)
        made->g = make_graph(making);
    return made;
}

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

static const char *operator_name(struct making *making, const char **domain)
{
    static const char *const odd[] = {"Unheard", "", "Loop", "Scan", "If", "%s%n"};
    kiln_model_operator op;
    if (is_wild(making) || kiln_model_get_operator(take(making, operator_count()), &op))
        return odd[take(making, sizeof odd / sizeof *odd)];
    *domain = op.domain;
    return op.name;
}

static Onnx__NodeProto *make_node(struct making *making)
{
    Onnx__NodeProto *node = room(sizeof *node);
    const char *domain = "";
    onnx__node_proto__init(node);
    node->op_type = (char *)operator_name(making, &domain);
    node->domain = (char *)domain;
    node->n_input = take(making, 6);
    node->input = room((node->n_input + 1) * sizeof *node->input);
    for (size_t i = 0; i < node->n_input; i++)
        node->input[i] = (char *)old_name(making);
    node->n_attribute = take(making, 5);
    node->attribute = room((node->n_attribute + 1) * sizeof *node->attribute);
    for (size_t i = 0; i < node->n_attribute; i++)
        node->attribute[i] = make_attribute(making);
    node->n_output = is_wild(making) ? take(making, 4) : 1;
    node->output = room((node->n_output + 1) * sizeof *node->output);
    for (size_t i = 0; i < node->n_output; i++)
        node->output[i] = (char *)(is_wild(making) ? old_name(making) : new_name(making));
    return node;
}

static void make_weights(struct making *making, Onnx__GraphProto *graph)
{
    graph->n_initializer = take(making, 6);
    graph->initializer = room(6 * sizeof *graph->initializer);
    for (size_t i = 0; i < graph->n_initializer; i++) {
        graph->initializer[i] = make_tensor(making);
        graph->initializer[i]->name =
            (char *)(is_wild(making) ? old_name(making) : new_name(making));
    }
}

static void make_inputs(struct making *making, Onnx__GraphProto *graph)
{
    graph->n_input = making->depth ? 0 : 1 + take(making, 3);
    graph->input = room(4 * sizeof *graph->input);
    for (size_t i = 0; i < graph->n_input; i++)
        graph->input[i] = make_value(making, is_wild(making) ? old_name(making) : new_name(making));
}

static Onnx__GraphProto *make_graph(struct making *making)
{
    Onnx__GraphProto *graph = room(sizeof *graph);
    unsigned outer = making->n_names;
    onnx__graph_proto__init(graph);
    make_weights(making, graph);
    make_inputs(making, graph);
    making->depth++;
    graph->n_node = 1 + take(making, making->depth > 1 ? 3 : MOST_NODES);
    graph->node = room(graph->n_node * sizeof *graph->node);
    for (size_t i = 0; i < graph->n_node; i++)
        graph->node[i] = make_node(making);
    graph->n_output = is_wild(making) ? take(making, 4) : 1;
    graph->output = room(4 * sizeof *graph->output);
    for (size_t i = 0; i < graph->n_output; i++) {
        const char *last = making->n_names ? making->names[making->n_names - 1] : "";
        graph->output[i] = make_value(making, i ? old_name(making) : last);
    }
    making->depth--;
    if (making->depth)
        making->n_names = outer;
    return graph;
}

static Onnx__OperatorSetIdProto *make_set(struct making *making)
{
    Onnx__OperatorSetIdProto *set = room(sizeof *set);
    onnx__operator_set_id_proto__init(set);
    set->domain = (char *)(is_wild(making) ? "com.microsoft" : "");
    set->has_version = 1;
    set->version = small_number(making, 7, 17);
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
    struct making making = {.bytes = bytes, .wild = wildness[fuzz_take(bytes, 4)]};
    bool spoil = !fuzz_take(bytes, 4);
    Onnx__ModelProto model = ONNX__MODEL_PROTO__INIT;
    Onnx__OperatorSetIdProto *sets[2];
    arena_used = 0;
    model.has_ir_version = 1;
    model.ir_version = small_number(&making, 3, 8);
    model.n_opset_import = 1 + is_wild(&making);
    model.opset_import = sets;
    for (size_t i = 0; i < 2; i++)
        sets[i] = make_set(&making);
    model.graph = make_graph(&making);
    *size = onnx__model_proto__get_packed_size(&model);
    uint8_t *file = malloc(*size + 1);
    if (!file)
        return NULL;
    onnx__model_proto__pack(&model, file);
    if (spoil)
        *size = damage(bytes, file, *size);
    return file;
}
