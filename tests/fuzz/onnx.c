/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever the bytes are, loading and recording answer with a status and a sentence, make no memory
 * of any size that a file asks for, and leave nothing. No kernel is compiled. */
#include "onnx.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kiln/kiln.h>
#include <kiln/onnx.h>

#include "onnx_file.h"

enum { NO_DEVICE = 77, MOST_INPUTS = 8, MOST_OUTPUTS = 64, MOST_ELEMENTS = 256 };

/* The first byte of a file, most often: the tag of its version. */
enum { FILE_TAG = 0x08 };

static kiln_context *context;
static struct fuzz_files counts;

static void stop(const char *why) __attribute__((noreturn));
static void stop(const char *why)
{
    fprintf(stderr, "%s\nkiln_last_error(): %s\n", why, kiln_last_error());
    __builtin_trap(); /* not abort(): OpenCL's driver takes that signal from libFuzzer */
}

static void check_status(kiln_status status, const char *call)
{
    char why[120];
    bool named = strcmp(kiln_status_name(status), "UNKNOWN") && status <= 0;
    snprintf(why, sizeof why, "%s answers %d", call, (int)status);
    if (!named || (status && !*kiln_last_error()) || status == KILN_WRONG_STATE)
        stop(why);
}

/* ---- recording ---- */

struct recording {
    kiln_batch *batch;
    kiln_array contents[MOST_INPUTS];
    kiln_tensor inputs[MOST_INPUTS], outputs[MOST_OUTPUTS];
    int64_t data[MOST_INPUTS][MOST_ELEMENTS];
};

/* Small shapes where the file leaves them open. False: the file asks for more elements. */
static bool choose_shape(struct fuzz_bytes *bytes, const kiln_model_value *value,
                         kiln_array *content)
{
    size_t count = 1;
    content->rank = value->rank == KILN_MODEL_ANY_RANK ? fuzz_take(bytes, 5) : value->rank;
    if (content->rank > KILN_MAX_RANK)
        stop("an input of more dimensions than there may be");
    for (size_t i = 0; i < content->rank; i++) {
        bool open = value->rank == KILN_MODEL_ANY_RANK || !value->dims[i];
        content->dims[i] = open ? 1 + fuzz_take(bytes, 4) : value->dims[i];
        if (content->dims[i] > MOST_ELEMENTS || (count *= content->dims[i]) > MOST_ELEMENTS)
            return false;
    }
    return true;
}

static void fill(struct fuzz_bytes *bytes, kiln_array *content)
{
    unsigned begin = fuzz_take(bytes, 5);
    size_t width = kiln_type_size(content->type);
    if (!width || width > sizeof(int64_t))
        stop("an input of no type");
    for (size_t i = 0; i < MOST_ELEMENTS; i++) {
        int64_t value = (int64_t)((begin + i) % 5) - (begin == 4);
        float real = (float)value;
        memcpy((char *)content->data + i * width,
               content->type == KILN_F32 ? (const void *)&real : (const void *)&value, width);
    }
}

static bool make_inputs(struct fuzz_bytes *bytes, const kiln_onnx_model *model,
                        struct recording *recording)
{
    const kiln_model_value *values;
    size_t count = kiln_model_inputs(model, &values);
    if (count > MOST_INPUTS || kiln_model_outputs(model, NULL) > MOST_OUTPUTS)
        return false;
    for (size_t i = 0; i < count; i++) {
        kiln_array *content = &recording->contents[i];
        *content = (kiln_array){.type = values[i].type, .data = recording->data[i]};
        if (!choose_shape(bytes, &values[i], content))
            return false;
        fill(bytes, content);
        recording->inputs[i] = kiln_upload(recording->batch, content->type, content->rank,
                                           content->dims, content->data);
        if (!values[i].content && fuzz_take(bytes, 2))
            content->data = NULL;
    }
    return true;
}

static void record(struct fuzz_bytes *bytes, kiln_onnx_model *model)
{
    struct recording recording = {.batch = kiln_batch_create(context)};
    if (!recording.batch)
        stop("no batch");
    if (make_inputs(bytes, model, &recording)) {
        kiln_status status = kiln_model_record(model, recording.batch, recording.inputs,
                                               recording.contents, recording.outputs);
        check_status(status, "kiln_model_record");
        counts.recorded += !status;
    }
    kiln_batch_release(recording.batch);
}

/* ---- a file ---- */

static void begin(void)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    if (context)
        return;
    options.cache = KILN_CACHE_OFF;
    options.compile = KILN_COMPILE_NEVER;
    if (kiln_context_create(&options, &context)) {
        fprintf(stderr, "%s\n", kiln_last_error());
        exit(NO_DEVICE);
    }
}

static void check_nothing_is_left(void)
{
    kiln_context_stats stats;
    if (kiln_context_get_stats(context, &stats) || stats.buffers_live || stats.host_bytes)
        stop("a buffer of a model that is released is left");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_bytes bytes = {data, size, 0};
    kiln_onnx_model *model = NULL;
    begin();
    bool is_file = size && *data == FILE_TAG;
    uint8_t *made = is_file ? NULL : fuzz_make_file(&bytes, &size);
    kiln_status status = kiln_model_load_memory(context, is_file ? data : made, size, NULL, &model);
    check_status(status, "kiln_model_load_memory");
    if (!status != !!model)
        stop("a model and an error, or neither");
    counts.files++;
    counts.loaded += !status;
    if (model)
        record(&bytes, model);
    kiln_model_release(model);
    free(made);
    check_nothing_is_left();
    return 0;
}

struct fuzz_files fuzz_file_count(void)
{
    return counts;
}
