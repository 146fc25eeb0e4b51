/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes that operators know, each mostly of its usual type. */
#include "onnx_parts.h"

#include <string.h>

enum { MOST_LIST = 6, DEEPEST = 3 };

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

static int64_t *numbers(struct onnx_maker *maker, size_t *count, int lowest, unsigned range)
{
    *count = onnx_choose(maker, MOST_LIST);
    int64_t *list = onnx_room((*count + 1) * sizeof *list);
    for (size_t i = 0; i < *count; i++)
        list[i] = onnx_small_number(maker, lowest, range);
    return list;
}

Onnx__AttributeProto *onnx_make_attribute(struct onnx_maker *maker)
{
    Onnx__AttributeProto *made = onnx_room(sizeof *made);
    unsigned row = onnx_choose(maker, sizeof attributes / sizeof *attributes);
    onnx__attribute_proto__init(made);
    made->name = (char *)attributes[row].name;
    made->has_type = !onnx_is_wild(maker);
    made->type = onnx_is_wild(maker) ? (Onnx__AttributeProto__AttributeType)onnx_choose(maker, 16)
                                     : attributes[row].type;
    made->has_i = made->has_f = made->has_s = 1;
    made->i = onnx_small_number(maker, -1, 6);
    made->f = (float)onnx_small_number(maker, -1, 6) / 4;
    const char *word = strings[onnx_choose(maker, sizeof strings / sizeof *strings)];
    made->s = (ProtobufCBinaryData){strlen(word), (uint8_t *)word};
    made->ints = numbers(maker, &made->n_ints, -1, 6);
    if (made->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR)
        made->t = onnx_make_tensor(maker);
    if (made->type == ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH && maker->depth < DEEPEST)
        made->g = onnx_make_graph(maker);
    return made;
}
