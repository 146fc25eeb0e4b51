/* SPDX-License-Identifier: Apache-2.0 */
/* What a model is run on: files, or random numbers of shapes that the command line completes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run_model.h"

/* ---- NAME=VALUE ---- */

/* Names of values may have a '=' of their own; a file's name rather not. */
bool namings_add(struct namings *namings, const char *text)
{
    const char *equals = strrchr(text, '=');
    struct naming *items = realloc(namings->items, (namings->count + 1) * sizeof *items);
    if (items)
        namings->items = items;
    if (!items || !equals || equals == text || !equals[1])
        return false;
    items[namings->count++] = (struct naming){text, (size_t)(equals - text), equals + 1};
    return true;
}

const char *namings_find(const struct namings *namings, const char *name)
{
    for (size_t i = 0; i < namings->count; i++)
        if (strlen(name) == namings->items[i].length &&
            !memcmp(name, namings->items[i].name, namings->items[i].length))
            return namings->items[i].value;
    return NULL;
}

/* ---- shapes ---- */

/* What --dim says of a dimension that the file leaves open, by its name or as INPUT:AXIS. */
static bool find_dim(const struct run_request *request, const kiln_model_value *value, size_t axis,
                     size_t *dim)
{
    char place[300];
    const char *text = NULL, *symbol = value->symbols[axis];
    snprintf(place, sizeof place, "%s:%zu", value->name, axis);
    if (symbol)
        text = namings_find(&request->dims, symbol);
    if (!text)
        text = namings_find(&request->dims, place);
    if (!text) {
        fprintf(stderr, "kiln run: input \"%s\" has an open dimension: say --dim %s=SIZE\n",
                value->name, symbol ? symbol : place);
        return false;
    }
    *dim = strtoul(text, NULL, 10);
    return true;
}

static bool find_shape(const struct run_request *request, const kiln_model_value *value,
                       kiln_array *array)
{
    if (value->rank > KILN_MAX_RANK) {
        fprintf(stderr, "kiln run: the file does not say the shape of \"%s\": give it by --input\n",
                value->name);
        return false;
    }
    array->rank = value->rank;
    for (size_t axis = 0; axis < value->rank; axis++) {
        array->dims[axis] = value->dims[axis];
        if (!value->dims[axis] && !find_dim(request, value, axis, &array->dims[axis]))
            return false;
    }
    return true;
}

/* ---- numbers ---- */

static unsigned next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33);
}

/* From -1 to 1; of integers 0 and 1, which are good as indices, flags and masks. */
static void fill(kiln_array *array, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++) {
        unsigned number = next_random(state);
        switch (array->type) {
        case KILN_F32: ((float *)array->data)[i] = (float)number * (1.0f / (1u << 30)) - 1; break;
        case KILN_I64: ((int64_t *)array->data)[i] = number >> 20 & 1; break;
        case KILN_I32: ((int32_t *)array->data)[i] = (int32_t)(number >> 20 & 1); break;
        default: ((uint8_t *)array->data)[i] = number >> 20 & 1; break;
        }
    }
}

static bool make_random(const struct run_request *request, const kiln_model_value *value,
                        kiln_array *array, uint64_t *state)
{
    size_t count = 1;
    bool is_float = value->type == KILN_F16 || value->type == KILN_BF16;
    array->type = is_float ? KILN_F32 : value->type;
    if (value->content) {
        fprintf(stderr, "kiln run: shapes depend on the numbers of \"%s\": give it by --input\n",
                value->name);
        return false;
    }
    if (!find_shape(request, value, array))
        return false;
    for (size_t axis = 0; axis < array->rank; axis++)
        if (__builtin_mul_overflow(count, array->dims[axis], &count))
            count = SIZE_MAX / 16;
    array->data = calloc(count ? count : 1, kiln_type_size(array->type));
    if (!array->data) {
        fprintf(stderr, "kiln run: no memory for \"%s\"\n", value->name);
        return false;
    }
    fill(array, count, state);
    return true;
}

/* ---- all inputs ---- */

static bool make_input(const struct run_request *request, const kiln_model_value *value,
                       kiln_array *array, uint64_t *state)
{
    const char *path = namings_find(&request->inputs, value->name);
    if (path && kiln_npy_read(path, array)) {
        fprintf(stderr, "kiln run: %s\n", kiln_last_error());
        return false;
    }
    if (path || request->random)
        return path || make_random(request, value, array, state);
    fprintf(stderr, "kiln run: input \"%s\" is missing: say --input %s=FILE.npy, or --random\n",
            value->name, value->name);
    return false;
}

bool run_make_inputs(const struct run_request *request, const kiln_onnx_model *model,
                     kiln_array *arrays)
{
    const kiln_model_value *values;
    uint64_t state = 1;
    size_t count = kiln_model_inputs(model, &values);
    for (size_t i = 0; i < count; i++)
        if (!make_input(request, &values[i], &arrays[i], &state))
            return false;
    return true;
}

void run_free_arrays(kiln_array *arrays, size_t count)
{
    for (size_t i = 0; arrays && i < count; i++)
        kiln_free(arrays[i].data);
    free(arrays);
}
