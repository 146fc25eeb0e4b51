/* SPDX-License-Identifier: Apache-2.0 */
/* Versioned public structures of kiln/onnx.h: options read, and model values written, in the
 * caller's size. */
#include "onnx/structure.h"

#include <stdlib.h>
#include <string.h>

#include "onnx/error.h"

enum { LARGEST = 4096 };

kiln_status kiln__onnx_read_options(const char *call, const kiln_model_options *options,
                                    kiln_model_options *own)
{
    *own = (kiln_model_options)KILN_MODEL_OPTIONS_INIT;
    if (!options)
        return KILN_OK;
    const size_t size = options->size, common = size < sizeof *own ? size : sizeof *own;
    if (size < sizeof size || size > LARGEST || size % _Alignof(size_t))
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT,
                               "%s: options->size is %zu; start from KILN_MODEL_OPTIONS_INIT", call,
                               size);
    for (size_t i = common; i < size; i++)
        if (((const char *)options)[i])
            return kiln__onnx_fail(KILN_UNSUPPORTED,
                                   "%s: options has fields that this version of kiln has not, and "
                                   "they are not 0",
                                   call);
    memcpy(own, options, common);
    return KILN_OK;
}

void kiln__onnx_structure_fill(void *to, size_t size, const void *own, size_t own_size)
{
    const size_t common = size < own_size ? size : own_size;
    memcpy(to, own, common);
    memset((char *)to + common, 0, size - common);
}

/* ---- lists that a model keeps ---- */

struct kiln__onnx_form {
    struct kiln__onnx_form *next;
    size_t size;
    bool outputs;
    size_t values[]; /* the structures, whose first field is a pointer */
};

static struct kiln__onnx_form *make_form(const kiln_model_value *values, size_t count, size_t size)
{
    struct kiln__onnx_form *form = malloc(sizeof *form + count * size);
    for (size_t i = 0; form && i < count; i++)
        kiln__onnx_structure_fill((char *)form->values + i * size, size, &values[i],
                                  sizeof *values);
    return form;
}

static struct kiln__onnx_form *find_form(const kiln_onnx_model *model, bool outputs, size_t size)
{
    struct kiln__onnx_form *form = model->forms;
    while (form && (form->size != size || form->outputs != outputs))
        form = form->next;
    return form;
}

const kiln_model_value *kiln__onnx_values(const kiln_onnx_model *model, bool outputs, size_t size)
{
    const struct kiln__onnx_graph *main = model->graphs.main;
    const kiln_model_value *values = outputs ? model->outputs : model->inputs;
    if (size == sizeof *values)
        return values;
    kiln_onnx_model *own = (kiln_onnx_model *)(uintptr_t)model;
    pthread_mutex_lock(&own->lock);
    struct kiln__onnx_form *form = find_form(own, outputs, size);
    if (!form) {
        form = make_form(values, outputs ? main->n_outputs : main->n_inputs, size);
        if (form) {
            form->size = size;
            form->outputs = outputs;
            form->next = own->forms;
            own->forms = form;
        }
    }
    pthread_mutex_unlock(&own->lock);
    return form ? (const kiln_model_value *)(const void *)form->values : NULL;
}

void kiln__onnx_free_forms(kiln_onnx_model *model)
{
    for (struct kiln__onnx_form *form = model->forms, *next; form; form = next) {
        next = form->next;
        free(form);
    }
}
