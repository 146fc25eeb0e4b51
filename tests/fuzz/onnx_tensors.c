/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of random types, shapes and numbers, their data in any of the ways that a file may have
 * it; the types of inputs and outputs. */
#include "onnx_parts.h"

#include <string.h>

static int32_t element_type(struct onnx_maker *maker)
{
    static const uint8_t types[] = {1, 1, 1, 1, 7, 7, 7, 6, 9, 10, 11, 2, 3, 16, 5, 12};
    return onnx_is_wild(maker) ? (int32_t)onnx_wild_number(maker)
                               : types[onnx_choose(maker, sizeof types)];
}

static size_t element_bytes(int32_t type)
{
    static const uint8_t bytes[17] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2};
    return type > 0 && type < 17 ? bytes[type] : 1;
}

/* Small numbers, so that they may be axes, shapes and indices. */
static void fill_raw(struct onnx_maker *maker, Onnx__TensorProto *tensor, size_t count)
{
    size_t bytes = element_bytes(tensor->data_type);
    bool floats = tensor->data_type == 1;
    tensor->has_raw_data = 1;
    tensor->raw_data.len = count * bytes;
    tensor->raw_data.data = onnx_room(tensor->raw_data.len + 1);
    for (size_t i = 0; i < count; i++) {
        int64_t value = onnx_small_number(maker, -1, 5);
        float real = (float)value / 2;
        for (size_t b = 0; !floats && b < bytes && b < 8; b++)
            tensor->raw_data.data[i * bytes + b] = (uint8_t)(value >> 8 * b);
        if (floats)
            memcpy(tensor->raw_data.data + i * bytes, &real, sizeof real);
    }
    if (onnx_is_wild(maker))
        tensor->raw_data.len /= 2;
}

static void fill_fields(struct onnx_maker *maker, Onnx__TensorProto *tensor, size_t count)
{
    tensor->n_int64_data = tensor->data_type == 7 ? count : 0;
    tensor->n_float_data = tensor->data_type == 1 ? count : 0;
    tensor->n_int32_data = tensor->n_int64_data || tensor->n_float_data ? 0 : count;
    tensor->int64_data = onnx_room((tensor->n_int64_data + 1) * sizeof(int64_t));
    tensor->float_data = onnx_room((tensor->n_float_data + 1) * sizeof(float));
    tensor->int32_data = onnx_room((tensor->n_int32_data + 1) * sizeof(int32_t));
    for (size_t i = 0; i < tensor->n_int64_data; i++)
        tensor->int64_data[i] = onnx_small_number(maker, -1, 5);
    for (size_t i = 0; i < tensor->n_int32_data; i++)
        tensor->int32_data[i] = (int32_t)onnx_small_number(maker, -1, 5);
}

static void make_external(struct onnx_maker *maker, Onnx__TensorProto *tensor)
{
    static const char *const words[][2] = {{"location", "weights"},
                                           {"location", "../../etc/passwd"},
                                           {"location", "/etc/passwd"},
                                           {"offset", "0"},
                                           {"offset", "-1"},
                                           {"length", "18446744073709551615"}};
    tensor->has_data_location = 1;
    tensor->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    tensor->n_external_data = onnx_choose(maker, 3);
    tensor->external_data = onnx_room(3 * sizeof *tensor->external_data);
    for (size_t i = 0; i < tensor->n_external_data; i++) {
        Onnx__StringStringEntryProto *entry = onnx_room(sizeof *entry);
        onnx__string_string_entry_proto__init(entry);
        unsigned row = onnx_choose(maker, sizeof words / sizeof *words);
        entry->key = (char *)words[row][0];
        entry->value = (char *)words[row][1];
        tensor->external_data[i] = entry;
    }
}

Onnx__TensorProto *onnx_make_tensor(struct onnx_maker *maker)
{
    Onnx__TensorProto *tensor = onnx_room(sizeof *tensor);
    size_t count = 1;
    onnx__tensor_proto__init(tensor);
    tensor->has_data_type = 1;
    tensor->data_type = element_type(maker);
    tensor->n_dims = onnx_choose(maker, 5);
    tensor->dims = onnx_room((tensor->n_dims + 1) * sizeof(int64_t));
    for (size_t i = 0; i < tensor->n_dims; i++) {
        unsigned extent = 1 + onnx_choose(maker, 4);
        tensor->dims[i] = onnx_is_wild(maker) ? onnx_wild_number(maker) : extent;
        count *= extent;
    }
    if (onnx_is_wild(maker) && !onnx_choose(maker, 2))
        make_external(maker, tensor);
    else if (onnx_choose(maker, 4))
        fill_raw(maker, tensor, count);
    else
        fill_fields(maker, tensor, count);
    return tensor;
}

static Onnx__TensorShapeProto *make_shape(struct onnx_maker *maker)
{
    Onnx__TensorShapeProto *shape = onnx_room(sizeof *shape);
    onnx__tensor_shape_proto__init(shape);
    shape->n_dim = onnx_is_wild(maker) ? onnx_choose(maker, 12) : onnx_choose(maker, 5);
    shape->dim = onnx_room(12 * sizeof *shape->dim);
    for (size_t i = 0; i < shape->n_dim; i++) {
        Onnx__TensorShapeProto__Dimension *dim = onnx_room(sizeof *dim);
        onnx__tensor_shape_proto__dimension__init(dim);
        unsigned kind = onnx_choose(maker, 4);
        if (kind < 2) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            dim->dim_value = onnx_small_number(maker, 1, 4);
        } else if (kind == 2) {
            dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
            dim->dim_param = onnx_number_name('n', onnx_choose(maker, 2));
        }
        shape->dim[i] = dim;
    }
    return shape;
}

Onnx__ValueInfoProto *onnx_make_value(struct onnx_maker *maker, const char *name)
{
    Onnx__ValueInfoProto *value = onnx_room(sizeof *value);
    Onnx__TypeProto *type = onnx_room(sizeof *type);
    Onnx__TypeProto__Tensor *tensor = onnx_room(sizeof *tensor);
    onnx__value_info_proto__init(value);
    onnx__type_proto__init(type);
    onnx__type_proto__tensor__init(tensor);
    value->name = (char *)name;
    value->type = onnx_is_wild(maker) ? NULL : type;
    type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    type->tensor_type = tensor;
    tensor->has_elem_type = 1;
    tensor->elem_type = element_type(maker);
    tensor->shape = onnx_choose(maker, 5) ? make_shape(maker) : NULL;
    return value;
}
