/* SPDX-License-Identifier: Apache-2.0 */
/* A model from its file or from memory, and its end. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/kiln.h>

#include "onnx/batches.h"
#include "onnx/error.h"
#include "onnx/model.h"
#include "onnx/patterns.h"
#include "onnx/source.h"
#include "onnx/structure.h"
#include "onnx/weights.h"
#include "onnx/wire.h"

enum { USUAL_BATCHES = 16 };

void(kiln_model_options_init)(kiln_model_options *options, size_t size)
{
    static const kiln_model_options own = KILN_MODEL_OPTIONS_INIT;
    if (!options || size < sizeof size)
        return;
    kiln__onnx_structure_fill(options, size, &own, sizeof own);
    memcpy(options, &size, sizeof size);
}

/* Of both calls that load: what the caller says, as own options. */
static kiln_status check_arguments(kiln_context *context, const kiln_model_options *options,
                                   kiln_model_options *own)
{
    if (!context)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_load: context is NULL");
    kiln_status status = kiln__onnx_read_options("kiln_model_load", options, own);
    if (status)
        return status;
    if (own->weights && own->weights != KILN_F32 && own->weights != KILN_F16 &&
        own->weights != KILN_BF16 && own->weights != KILN_Q8_0 && own->weights != KILN_Q4_0)
        return kiln__onnx_fail(
            KILN_INVALID_ARGUMENT,
            "kiln_model_load: options->weights is %s, and can be f32, f16, bf16, q8_0 or q4_0",
            kiln_type_name(own->weights));
    return KILN_OK;
}

static kiln_status finish(kiln_onnx_model *model, const char *folder, struct kiln__onnx_text *notes)
{
    kiln_status status = kiln__onnx_resolve(model->proto, &model->graphs);
    if (!status)
        status = kiln__onnx_supported(&model->graphs);
    if (!status)
        status = kiln__onnx_describe(model, notes);
    if (!status && !model->options.plain)
        status = kiln__onnx_find_patterns(&model->graphs);
    if (!status)
        status = kiln__onnx_read_weights(model, folder, notes);
    if (!status && notes->failed)
        status = kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    return status;
}

/* Of an unpacked file, which becomes the model's, or goes. */
static kiln_status load(kiln_context *context, Onnx__ModelProto *proto,
                        struct kiln__onnx_file *file, const char *folder,
                        const kiln_model_options *options, kiln_onnx_model **result)
{
    kiln_onnx_model *model = calloc(1, sizeof *model);
    if (!model || pthread_mutex_init(&model->lock, NULL)) {
        free(model);
        kiln__onnx_file_release(file);
        onnx__model_proto__free_unpacked(proto, NULL);
        return kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    }
    kiln_context_retain(context);
    model->context = context;
    model->proto = proto;
    model->file = file;
    model->options = *options;
    model->options.folder = NULL; /* the caller's */
    if (!model->options.batches)
        model->options.batches = USUAL_BATCHES;
    struct kiln__onnx_text notes = {0};
    kiln_status status = finish(model, folder, &notes);
    model->notes = notes.text;
    if (status) {
        /* What is released now must not say the last word. */
        kiln_model_release(model);
        return status;
    }
    *result = model;
    return KILN_OK;
}

kiln_status kiln_model_load_memory(kiln_context *context, const void *data, size_t bytes,
                                   const kiln_model_options *options, kiln_onnx_model **model)
{
    if (!model)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_load_memory: model is NULL");
    *model = NULL;
    kiln_model_options own;
    kiln_status status = check_arguments(context, options, &own);
    if (!status && !data)
        status = kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_load_memory: data is NULL");
    Onnx__ModelProto *proto = NULL;
    if (!status)
        status = kiln__onnx_unpack("the memory", data, bytes, &proto);
    return status ? status : load(context, proto, NULL, own.folder, &own, model);
}

/* The part of a path before its last name. Owner: the caller. */
static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return !slash          ? strdup(".")
           : slash == path ? strdup("/")
                           : strndup(path, (size_t)(slash - path));
}

/* The file stays open. */
static kiln_status map_file(const char *path, int *descriptor, void **data, size_t *bytes)
{
    int file = *descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    if (file < 0 || fstat(file, &about)) {
        kiln_status status =
            kiln__onnx_fail(KILN_IO_ERROR, "kiln_model_load: %s: %s", path, strerror(errno));
        if (file >= 0)
            close(file);
        return status;
    }
    bool fits = S_ISREG(about.st_mode) && about.st_size > 0 && about.st_size <= PTRDIFF_MAX;
    *bytes = fits ? (size_t)about.st_size : 0;
    *data = fits ? mmap(NULL, *bytes, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
    bool mapped = *data != MAP_FAILED;
    int why = errno;
    if (!mapped)
        close(file);
    if (!fits)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_load: %s is empty, or no file",
                               path);
    return mapped ? KILN_OK
                  : kiln__onnx_fail(KILN_IO_ERROR, "kiln_model_load: %s: %s", path, strerror(why));
}

kiln_status kiln_model_load(kiln_context *context, const char *path,
                            const kiln_model_options *options, kiln_onnx_model **model)
{
    if (!model)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_load: model is NULL");
    *model = NULL;
    kiln_model_options own;
    kiln_status status = check_arguments(context, options, &own);
    if (status)
        return status;
    if (!path)
        return kiln__onnx_fail(KILN_INVALID_ARGUMENT, "kiln_model_load: path is NULL");
    void *data = NULL;
    size_t bytes = 0;
    int descriptor;
    status = map_file(path, &descriptor, &data, &bytes);
    if (status)
        return status;
    Onnx__ModelProto *proto = NULL;
    status = kiln__onnx_unpack(path, data, bytes, &proto);
    struct kiln__onnx_file *file = NULL;
    if (status)
        close(descriptor);
    else
        file = kiln__onnx_file_open(descriptor, data, bytes, proto);
    munmap(data, bytes); /* it is all in `proto`: the weights are not to be there three times */
    if (status)
        return status;
    char *folder = folder_of(path);
    if (folder) {
        status = load(context, proto, file, folder, &own, model);
    } else {
        kiln__onnx_file_release(file);
        onnx__model_proto__free_unpacked(proto, NULL);
        status = kiln__onnx_fail(KILN_OUT_OF_HOST_MEMORY, "kiln_model_load: no memory");
    }
    free(folder);
    return status;
}

void kiln_model_release(kiln_onnx_model *model)
{
    if (!model)
        return;
    kiln__onnx_free_cached(model);
    kiln__onnx_free_weights(model);
    kiln__onnx_file_release(model->file);
    kiln__onnx_graphs_free(&model->graphs);
    kiln__onnx_free_forms(model);
    free(model->inputs);
    free(model->outputs);
    free((void *)model->input_types);
    free(model->notes);
    if (model->proto)
        onnx__model_proto__free_unpacked(model->proto, NULL);
    kiln_context_release(model->context);
    pthread_mutex_destroy(&model->lock);
    free(model);
}

size_t(kiln_model_inputs)(const kiln_onnx_model *model, const kiln_model_value **values,
                          size_t size)
{
    if (values)
        *values = model ? kiln__onnx_values(model, false, size) : NULL;
    return model && (!values || *values) ? model->graphs.main->n_inputs : 0;
}

size_t(kiln_model_outputs)(const kiln_onnx_model *model, const kiln_model_value **values,
                           size_t size)
{
    if (values)
        *values = model ? kiln__onnx_values(model, true, size) : NULL;
    return model && (!values || *values) ? model->graphs.main->n_outputs : 0;
}

const char *kiln_model_notes(const kiln_onnx_model *model)
{
    return model && model->notes ? model->notes : "";
}
