/* SPDX-License-Identifier: Apache-2.0 */
/* A step of such a model is recorded once for each of a few numbers of rows: caches have room for
 * the whole text, and the attention mask says how much of it is there. */
#define _GNU_SOURCE
#include "folder.h"

#include <inttypes.h>
#include <kiln/onnx.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../lm/sample.h"
#include "../lm/subwords.h"
#include "tokenizer.h"

enum { STEPS = 3, MOST_ROWS = 128, USUAL_CONTEXT = 4096, MOST_CONTEXT = 1 << 20 };
enum { MOST_LAYERS = 1024, MOST_ENDS = 16, NAME = 256 };

/* Rows of a step. */
static const size_t rows_of[STEPS] = {1, 16, MOST_ROWS};

/* What inputs and outputs are called; "%d" is a layer. */
struct names {
    const char *ids, *mask, *positions, *total, *key, *value, *logits, *new_key, *new_value;
};

struct folder {
    const char *command, *path;
    json_t *config;
    struct names names;
    kiln_context *context;
    kiln_onnx_model *model;
    struct tokenizer *tokenizer;
    bool *is_special; /* tokens that are no text */
    int64_t ends[MOST_ENDS];
    size_t n_ends, n_tokens; /* those that end an answer; those of the tokenizer */

    size_t room, length, layers; /* tokens of the text: most, now */
    kiln_buffer *caches[2 * MOST_LAYERS];
    kiln_batch *steps[STEPS];
    size_t words; /* logits of a row */
    int64_t ids[MOST_ROWS], positions[MOST_ROWS], *mask, total;
    int32_t last;
    float *logits;

    struct kiln__sampling sampling;
    uint64_t seed;
    struct kiln__candidate *candidates;
    int32_t pending; /* chosen, and not yet run; -1: none */
    char *shown;     /* the text of the last one */
};

__attribute__((format(printf, 2, 3))) static bool complain(const struct folder *folder,
                                                           const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "%s: %s: ", folder->command, folder->path);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return false;
}

static bool fine(const struct folder *folder, kiln_status status)
{
    return !status || complain(folder, "%s", kiln_last_error());
}

/* "FOLDER/NAME". NULL: no memory. */
static char *path_of(const char *folder, const char *name)
{
    char *path;
    return asprintf(&path, "%s/%s", folder, name) < 0 ? NULL : path;
}

bool folder_is(const char *path)
{
    char *config = path_of(path, "genai_config.json");
    const bool is = config && !access(config, F_OK);
    free(config);
    return is;
}

/* ---- genai_config.json ---- */

static const char *name_in(const json_t *object, const char *key, const char *usual)
{
    const char *name = json_string_value(json_object_get(object, key));
    return name ? name : usual;
}

static void read_names(struct folder *folder, const json_t *decoder)
{
    const json_t *in = json_object_get(decoder, "inputs"),
                 *out = json_object_get(decoder, "outputs");
    folder->names = (struct names){
        .ids = name_in(in, "input_ids", "input_ids"),
        .mask = name_in(in, "attention_mask", "attention_mask"),
        .positions = name_in(in, "position_ids", "position_ids"),
        .total = name_in(in, "total_sequence_length", "total_sequence_length"),
        .key = name_in(in, "past_key_names", "past_key_values.%d.key"),
        .value = name_in(in, "past_value_names", "past_key_values.%d.value"),
        .logits = name_in(out, "logits", "logits"),
        .new_key = name_in(out, "present_key_names", "present.%d.key"),
        .new_value = name_in(out, "present_value_names", "present.%d.value"),
    };
}

/* A number, or a list of such. */
static bool read_ends(struct folder *folder, const json_t *ends)
{
    const size_t count = json_is_array(ends) ? json_array_size(ends) : ends != NULL;
    for (size_t i = 0; i < count; i++) {
        const json_t *end = json_is_array(ends) ? json_array_get(ends, i) : ends;
        if (!json_is_integer(end) || i == MOST_ENDS)
            return complain(folder,
                            "genai_config.json: eos_token_id is no number, nor %d of them at "
                            "most",
                            MOST_ENDS);
        folder->ends[folder->n_ends++] = json_integer_value(end);
    }
    return true;
}

static bool read_room(struct folder *folder, const json_t *model, size_t asked)
{
    const json_int_t trained = json_integer_value(json_object_get(model, "context_length"));
    if (trained < 0 || trained > MOST_CONTEXT)
        return complain(folder, "genai_config.json: context_length is %" JSON_INTEGER_FORMAT,
                        trained);
    folder->room = asked                                ? asked
                   : trained && trained < USUAL_CONTEXT ? (size_t)trained
                                                        : USUAL_CONTEXT;
    if (trained && folder->room > (size_t)trained)
        return complain(folder, "a context of %zu tokens, and the model has %" JSON_INTEGER_FORMAT,
                        folder->room, trained);
    return true;
}

static bool read_config(struct folder *folder, size_t room, const char **file)
{
    json_error_t why;
    char *path = path_of(folder->path, "genai_config.json");
    folder->config = path ? json_load_file(path, 0, &why) : NULL;
    free(path);
    if (!folder->config)
        return complain(folder, "genai_config.json: %s", path ? why.text : "no memory");
    const json_t *model = json_object_get(folder->config, "model");
    const json_t *decoder = json_object_get(model, "decoder");
    *file = name_in(decoder, "filename", NULL);
    if (!*file || strchr(*file, '/'))
        return complain(folder, "genai_config.json: model.decoder.filename is no name of a file in "
                                "the folder");
    if (json_object_get(decoder, "pipeline") || json_object_get(model, "encoder") ||
        json_object_get(model, "vision") || json_object_get(model, "speech"))
        return complain(folder, "a model of several networks, of which kiln has none");
    read_names(folder, decoder);
    return read_ends(folder, json_object_get(model, "eos_token_id")) &&
           read_room(folder, model, room);
}

/* ---- tokens ---- */

static bool mark_special(struct folder *folder)
{
    const struct kiln__subwords_list *list = &folder->tokenizer->subwords->list;
    folder->is_special = calloc(folder->n_tokens + 1, sizeof *folder->is_special);
    for (size_t i = 0; i < list->count && folder->is_special; i++)
        if ((size_t)list->added[i].id < folder->n_tokens)
            folder->is_special[list->added[i].id] = list->added[i].is_special;
    return folder->is_special || complain(folder, "no memory");
}

static bool open_tokenizer(struct folder *folder)
{
    char error[KILN__TOKENIZER_ERROR] = "no memory",
         *path = path_of(folder->path, "tokenizer.json");
    folder->tokenizer = path ? tokenizer_open(path, error) : NULL;
    bool opened = folder->tokenizer || complain(folder, "tokenizer.json: %s", error);
    if (opened && !folder->tokenizer->subwords)
        opened = complain(folder, "tokenizer.json: WordPiece, whose tokens are no texts");
    folder->n_tokens = opened ? folder->tokenizer->subwords->vocabulary.count : 0;
    opened = opened && mark_special(folder);
    free(path);
    return opened;
}

/* ---- the model's inputs and outputs ---- */

/* Whether a name is a pattern's, with what layer. */
static bool matches(const char *pattern, const char *name, size_t *layer)
{
    const char *place = strstr(pattern, "%d");
    const size_t before = place ? (size_t)(place - pattern) : 0;
    char *end;
    if (!place || strncmp(pattern, name, before) || name[before] < '0' || name[before] > '9')
        return false;
    *layer = strtoul(name + before, &end, 10);
    return !strcmp(end, place + 2);
}

/* Number 2 * layer of keys, or one more of values; *i is below the caches that there can be. */
static bool is_cache(const struct names *names, const char *name, bool is_new, size_t *i)
{
    size_t layer;
    const char *const patterns[] = {is_new ? names->new_key : names->key,
                                    is_new ? names->new_value : names->value};
    for (size_t k = 0; k < 2; k++)
        if (matches(patterns[k], name, &layer) && layer < MOST_LAYERS) {
            *i = 2 * layer + k;
            return true;
        }
    return false;
}

/* A cache of `room` keys for a text, of zeros. */
static bool make_cache(struct folder *folder, const kiln_model_value *input, size_t i)
{
    const size_t dims[] = {1, input->dims[1], folder->room, input->dims[3]};
    if (input->rank != 4 || !dims[1] || !dims[3] || dims[1] > INT16_MAX || dims[3] > INT16_MAX)
        return complain(folder, "input '%s' is no cache [texts, heads, keys, size]", input->name);
    const size_t bytes = dims[1] * dims[2] * dims[3] * kiln_type_size(input->type);
    void *zeros = calloc(1, bytes);
    bool made = zeros || complain(folder, "no memory");
    made = made &&
           fine(folder,
                kiln_buffer_create(folder->context, input->type, 4, dims, &folder->caches[i])) &&
           fine(folder, kiln_buffer_write(folder->caches[i], 0, zeros, bytes));
    free(zeros);
    folder->layers = i / 2 + 1 > folder->layers ? i / 2 + 1 : folder->layers;
    return made;
}

static bool make_caches(struct folder *folder)
{
    const kiln_model_value *inputs;
    const size_t count = kiln_model_inputs(folder->model, &inputs);
    for (size_t i = 0, at; i < count; i++)
        if (is_cache(&folder->names, inputs[i].name, false, &at) && !folder->caches[at] &&
            !make_cache(folder, &inputs[i], at))
            return false;
    return folder->layers || complain(folder, "its model has no caches of keys and values by the "
                                              "names that genai_config.json has");
}

/* Input i of a step: a tensor, or content. */
static bool give_input(struct folder *folder, kiln_batch *b, const kiln_model_value *input,
                       size_t rows, kiln_tensor *tensor, kiln_array *content)
{
    size_t at;
    if (is_cache(&folder->names, input->name, false, &at)) {
        *tensor = kiln_import(b, folder->caches[at]);
    } else if (!strcmp(input->name, folder->names.ids)) {
        *tensor = kiln_upload(b, KILN_I64, 2, (size_t[]){1, rows}, folder->ids);
    } else if (!strcmp(input->name, folder->names.positions)) {
        *tensor = kiln_upload(b, KILN_I64, 2, (size_t[]){1, rows}, folder->positions);
    } else if (!strcmp(input->name, folder->names.mask)) {
        *tensor = kiln_upload(b, KILN_I64, 2, (size_t[]){1, folder->room}, folder->mask);
    } else if (!strcmp(input->name, folder->names.total)) {
        *content = (kiln_array){KILN_I64, input->rank == 1, {1}, &folder->total};
    } else {
        return complain(folder, "its model has an input '%s', which kiln does not know",
                        input->name);
    }
    return true;
}

/* Logits of the last row that counts. */
static bool take_logits(struct folder *folder, kiln_batch *b, kiln_tensor logits)
{
    size_t rank, dims[KILN_MAX_RANK];
    if (!fine(folder, kiln_tensor_shape(b, logits, NULL, &rank, dims)))
        return false;
    if (rank != 3 || dims[0] != 1 || !dims[1] || !dims[2] || dims[2] > INT32_MAX)
        return complain(folder, "its logits are not [texts, tokens, words]");
    if (!folder->logits) {
        folder->words = dims[2];
        folder->logits = calloc(dims[2], sizeof *folder->logits);
        folder->candidates = calloc(dims[2], sizeof *folder->candidates);
    }
    if (!folder->logits || !folder->candidates)
        return complain(folder, "no memory");
    logits = kiln_reshape(b, logits, 2, dims + 1);
    if (dims[1] > 1)
        logits =
            kiln_gather(b, logits, kiln_upload(b, KILN_I32, 1, (size_t[]){1}, &folder->last), 0);
    kiln_read(b, kiln_cast(b, logits, KILN_F32), folder->logits,
              folder->words * sizeof *folder->logits);
    return true;
}

static bool take_outputs(struct folder *folder, kiln_batch *b, const kiln_tensor *tensors)
{
    const kiln_model_value *outputs;
    const size_t count = kiln_model_outputs(folder->model, &outputs);
    bool taken = false;
    for (size_t i = 0, at; i < count; i++) {
        if (is_cache(&folder->names, outputs[i].name, true, &at) && folder->caches[at]) {
            kiln_export(b, tensors[i], folder->caches[at]);
        } else if (!strcmp(outputs[i].name, folder->names.logits)) {
            taken = take_logits(folder, b, tensors[i]);
            if (!taken)
                return false;
        }
    }
    return taken || complain(folder, "its model has no output '%s'", folder->names.logits);
}

static bool record(struct folder *folder, size_t step)
{
    const kiln_model_value *inputs;
    const size_t n_inputs = kiln_model_inputs(folder->model, &inputs);
    const size_t n_outputs = kiln_model_outputs(folder->model, NULL);
    kiln_tensor *in = calloc(n_inputs + n_outputs + 1, sizeof *in);
    kiln_array *contents = calloc(n_inputs + 1, sizeof *contents);
    kiln_batch *b = folder->steps[step] = kiln_batch_create(folder->context);
    bool recorded = (in && contents && b) || complain(folder, "no memory");
    for (size_t i = 0; i < n_inputs && recorded; i++)
        recorded = give_input(folder, b, &inputs[i], rows_of[step], &in[i], &contents[i]);
    recorded = recorded &&
               fine(folder, kiln_model_record(folder->model, b, in, contents, in + n_inputs)) &&
               take_outputs(folder, b, in + n_inputs) &&
               (!kiln_batch_status(b) || complain(folder, "%s", kiln_batch_error(b)));
    free(in);
    free(contents);
    if (!recorded) {
        kiln_batch_release(b);
        folder->steps[step] = NULL;
    }
    return recorded;
}

/* ---- steps ---- */

/* As many of the tokens as one step takes. */
static size_t choose(const struct folder *folder, size_t count)
{
    size_t step = 0;
    while (step + 1 < STEPS && rows_of[step] < count &&
           folder->length + rows_of[step + 1] <= folder->room)
        step++;
    return step;
}

/* Rows beyond the tokens are of no text: those to come are written over them. */
static bool run_step(struct folder *folder, const int32_t *tokens, size_t count)
{
    const size_t step = choose(folder, count), rows = rows_of[step];
    const size_t taken = count < rows ? count : rows;
    for (size_t i = 0; i < rows; i++) {
        folder->ids[i] = i < taken ? tokens[i] : tokens[0];
        folder->positions[i] = (int64_t)(folder->length + i);
    }
    for (size_t i = 0; i < folder->room; i++)
        folder->mask[i] = i < folder->length + rows;
    folder->last = (int32_t)taken - 1;
    if (!folder->steps[step] && !record(folder, step))
        return false;
    if (kiln_batch_execute(folder->steps[step]))
        return complain(folder, "%s", kiln_batch_error(folder->steps[step]));
    folder->length += taken;
    return taken == count || run_step(folder, tokens + taken, count - taken);
}

bool folder_has_room(const struct folder *folder)
{
    return folder->length + (folder->pending >= 0) < folder->room;
}

bool folder_feed(struct folder *folder, const char *text, size_t bytes, size_t *tokens)
{
    const size_t behind = folder->tokenizer->facts.around.after_count,
                 most = folder->room + behind + 1;
    int32_t *ids = malloc(most * sizeof *ids);
    bool fed = ids && tokenizer_encode(folder->tokenizer, text, bytes, most, ids, tokens);
    if (!fed)
        complain(folder, "no memory");
    /* An answer follows, and not what stands behind a text that is whole. */
    *tokens -= fed && behind <= *tokens ? behind : 0;
    if (fed && !*tokens)
        fed = complain(folder, "the text has no tokens to go on from");
    else if (fed && *tokens > folder->room)
        fed = complain(folder, "the text has more tokens than the context of %zu", folder->room);
    fed = fed && run_step(folder, ids, *tokens);
    free(ids);
    return fed;
}

static bool is_end(const struct folder *folder, int32_t token)
{
    for (size_t i = 0; i < folder->n_ends; i++)
        if (folder->ends[i] == token)
            return true;
    return false;
}

/* A token's part of the text. */
static bool show(struct folder *folder, int32_t token, const char **text, size_t *bytes)
{
    const struct kiln__subwords *subwords = folder->tokenizer->subwords;
    *text = "";
    *bytes = 0;
    if ((size_t)token >= folder->n_tokens || folder->is_special[token])
        return true;
    free(folder->shown);
    folder->shown = malloc(subwords->vocabulary.tokens[token].length + 1);
    if (!folder->shown)
        return complain(folder, "no memory");
    *bytes = kiln__subwords_write(subwords, token, folder->shown);
    *text = folder->shown;
    return true;
}

bool folder_next(struct folder *folder, const char **text, size_t *bytes, bool *ended)
{
    if (folder->pending >= 0 && !run_step(folder, &folder->pending, 1))
        return false;
    folder->pending = kiln__sample(&folder->sampling, folder->logits, folder->words,
                                   kiln__draw(folder->seed, folder->length), folder->candidates);
    if (folder->pending < 0)
        return complain(folder, "a logit is NaN");
    *ended = is_end(folder, folder->pending);
    return show(folder, folder->pending, text, bytes);
}

/* ---- open and close ---- */

static bool open_model(struct folder *folder, const struct language_request *request,
                       const char *name)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_model_options model_options = KILN_MODEL_OPTIONS_INIT;
    char *path = path_of(folder->path, name);
    options.device = request->device;
    options.precision = request->precision.products;
    model_options.weights = request->precision.weights;
    folder->total = (int64_t)folder->room;
    folder->mask = calloc(folder->room, sizeof *folder->mask);
    const bool opened = (path && folder->mask) || complain(folder, "no memory");
    const bool loaded =
        opened && fine(folder, kiln_context_create(&options, &folder->context)) &&
        fine(folder, kiln_model_load(folder->context, path, &model_options, &folder->model)) &&
        make_caches(folder);
    free(path);
    return loaded;
}

struct folder *folder_open(const char *command, const struct language_request *request)
{
    const kiln_lm_session_options *session = &request->session;
    struct folder *folder = calloc(1, sizeof *folder);
    const char *file;
    if (!folder) {
        fprintf(stderr, "%s: no memory\n", command);
        return NULL;
    }
    folder->command = command;
    folder->path = request->model;
    folder->pending = -1;
    folder->seed = session->seed;
    folder->sampling = (struct kiln__sampling){session->temperature, session->top_k, session->top_p,
                                               session->min_p};
    if (read_config(folder, session->context, &file) && open_tokenizer(folder) &&
        open_model(folder, request, file))
        return folder;
    folder_close(folder);
    return NULL;
}

void folder_close(struct folder *folder)
{
    if (!folder)
        return;
    for (size_t i = 0; i < STEPS; i++)
        kiln_batch_release(folder->steps[i]);
    for (size_t i = 0; i < (size_t)2 * MOST_LAYERS; i++)
        kiln_buffer_release(folder->caches[i]);
    kiln_model_release(folder->model);
    kiln_context_release(folder->context);
    tokenizer_close(folder->tokenizer);
    json_decref(folder->config);
    free(folder->is_special);
    free(folder->mask);
    free(folder->logits);
    free(folder->candidates);
    free(folder->shown);
    free(folder);
}
