/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of a folder's safetensors files: what they are called, and where they are. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/folder.h"
#include "lm/tokenizer_json.h"

/* ---- names ---- */

void kiln__lm_folder_name(const struct kiln__architecture *architecture, const char *prefix,
                          const char *name, size_t layer, char *full, size_t room)
{
    static const struct {
        const char *gguf, *folder;
    } names[] = {
        {"token_embd", "embed_tokens"},
        {"output_norm", "norm"},
        {"attn_norm", "input_layernorm"},
        {"attn_q", "self_attn.q_proj"},
        {"attn_k", "self_attn.k_proj"},
        {"attn_v", "self_attn.v_proj"},
        {"attn_qkv", "self_attn.qkv_proj"},
        {"attn_q_norm", "self_attn.q_norm"},
        {"attn_k_norm", "self_attn.k_norm"},
        {"attn_output", "self_attn.o_proj"},
        {"post_attention_norm", "post_attention_layernorm"},
        {"ffn_gate", "mlp.gate_proj"},
        {"ffn_down", "mlp.down_proj"},
        {"post_ffw_norm", "post_feedforward_layernorm"},
    };
    const size_t length = strcspn(name, ".");
    const char *own = "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strlen(names[i].gguf) == length && !memcmp(names[i].gguf, name, length))
            own = names[i].folder;
    if (!strcmp(name, "ffn_norm.weight"))
        own = architecture->after_norms ? "pre_feedforward_layernorm" : "post_attention_layernorm";
    if (!strcmp(name, "ffn_up.weight"))
        own = architecture->fused ? "mlp.gate_up_proj" : "mlp.up_proj";
    if (!strcmp(name, "output.weight"))
        snprintf(full, room, "lm_head.weight");
    else if (layer == SIZE_MAX)
        snprintf(full, room, "%s%s%s", prefix, own, name + length);
    else
        snprintf(full, room, "%slayers.%zu.%s%s", prefix, layer, own, name + length);
}

/* ---- files ---- */

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

/* Frequencies, which files of earlier years have; what sees pictures. */
static bool is_needless(const struct kiln__lm_folder *folder, const char *name)
{
    return ends_with(name, ".rotary_emb.inv_freq") ||
           (folder->decoder != folder->config &&
            (strstr(name, "vision_tower.") || strstr(name, "multi_modal_projector.")));
}

static kiln_status note_tensor(struct kiln__lm_folder *folder, const char *file,
                               const kiln_saved *saved)
{
    struct kiln__gguf_tensor *tensor = &folder->tensors.tensors[folder->tensors.n_tensors++];
    *tensor = (struct kiln__gguf_tensor){.name = {saved->name, strlen(saved->name)},
                                         .format = kiln__block_format_of(saved->type),
                                         .rank = saved->rank ? saved->rank : 1,
                                         .dims = {1}};
    if (saved->rank > KILN__GGUF_MOST_RANK || !tensor->format)
        return kiln__lm_folder_fail(
            folder, KILN_UNSUPPORTED, file,
            "tensor \"%.100s\" is of type %.20s and rank %zu, which kiln does "
            "not read here",
            saved->name, saved->stored, saved->rank);
    for (size_t i = 0; i < saved->rank; i++)
        tensor->dims[i] = saved->dims[saved->rank - 1 - i];
    return KILN_OK;
}

/* What a call of kiln's said. */
static kiln_status pass_on(kiln_status status)
{
    char why[2048];
    snprintf(why, sizeof why, "%s", kiln_last_error());
    return kiln__lm_fail(status, "kiln_lm_load: %s", why);
}

static kiln_status list_tensors(struct kiln__lm_folder *folder, const char *file,
                                const struct kiln__lm_folder_file *listed)
{
    struct kiln__gguf_tensor *grown =
        realloc(folder->tensors.tensors,
                (folder->tensors.n_tensors + listed->count + 1) * sizeof *folder->tensors.tensors);
    kiln_status status = grown ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
    folder->tensors.tensors = grown ? grown : folder->tensors.tensors;
    for (size_t i = 0; i < listed->count && !status; i++)
        if (!is_needless(folder, listed->list[i].name))
            status = note_tensor(folder, file, &listed->list[i]);
    return status;
}

static kiln_status list_file(struct kiln__lm_folder *folder, const char *file)
{
    struct kiln__lm_folder_file *grown =
        realloc(folder->files, (folder->n_files + 1) * sizeof *grown);
    struct kiln__lm_folder_file listed = {.path = kiln__lm_folder_path(folder, file)};
    if (grown)
        folder->files = grown;
    if (!grown || !listed.path) {
        free(listed.path);
        return kiln__lm_no_memory("kiln_lm_load");
    }
    const kiln_status status = kiln_saved_list(listed.path, &listed.list, &listed.count);
    folder->files[folder->n_files++] = listed;
    return status ? pass_on(status) : list_tensors(folder, file, &listed);
}

/* All tensors of a file, in buffers. */
static kiln_status load_file(struct kiln__lm_folder *folder, const kiln_lm *lm,
                             const struct kiln__lm_folder_file *file)
{
    const char **names = malloc((file->count + 1) * sizeof *names);
    kiln_buffer **buffers = calloc(file->count + 1, sizeof *buffers);
    size_t n = 0;
    kiln_status status = names && buffers ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
    for (size_t i = 0; i < file->count && !status; i++)
        if (!is_needless(folder, file->list[i].name))
            names[n++] = file->list[i].name;
    if (!status && (status = kiln_load(lm->context, file->path, n, names, buffers)) != KILN_OK)
        status = pass_on(status);
    for (size_t i = 0; i < n && !status; i++) {
        const struct kiln__gguf_tensor *tensor = kiln__gguf_tensor(&folder->tensors, names[i]);
        folder->tensors.tensors[tensor - folder->tensors.tensors].buffer = buffers[i];
    }
    free(buffers);
    free(names);
    return status;
}

/* ---- which files ---- */

/* Those that the index names, each once. */
static kiln_status list_indexed(struct kiln__lm_folder *folder, const json_t *index)
{
    json_t *map = json_object_get(index, "weight_map"), *seen = json_object(), *value;
    const char *tensor;
    kiln_status status = seen ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
    json_object_foreach(map, tensor, value)
    {
        const char *file = json_string_value(value);
        if (status || (file && json_object_get(seen, file)))
            continue;
        if (!file || !*file || strchr(file, '/') || json_object_set(seen, file, value))
            status =
                kiln__lm_folder_fail(folder, KILN_INVALID_ARGUMENT, "model.safetensors.index.json",
                                     "tensor \"%.100s\" is in no file of the folder", tensor);
        else
            status = list_file(folder, file);
    }
    json_decref(seen);
    return status;
}

/* model.safetensors, or the only such file under another name. */
static kiln_status list_single(struct kiln__lm_folder *folder)
{
    DIR *files = opendir(folder->path);
    char name[sizeof((struct dirent *)0)->d_name] = "";
    size_t count = 0;
    bool is_usual = false;
    for (struct dirent *file; files && !is_usual && (file = readdir(files)) != NULL;)
        if (ends_with(file->d_name, ".safetensors")) {
            stpcpy(name, file->d_name);
            is_usual = !strcmp(name, "model.safetensors");
            count++;
        }
    if (files)
        closedir(files);
    if (count == 1 || is_usual)
        return list_file(folder, name);
    return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s: the folder has %s", folder->path,
                         count ? "several safetensors files without "
                                 "model.safetensors.index.json"
                               : "no safetensors file");
}

kiln_status kiln__lm_folder_list(struct kiln__lm_folder *folder, const kiln_lm *lm)
{
    static const char *const prefixes[] = {"model.", "", "language_model.model.",
                                           "model.language_model."};
    json_t *index;
    kiln_status status = kiln__lm_folder_json(folder, "model.safetensors.index.json", &index);
    if (!status)
        status = index ? list_indexed(folder, index) : list_single(folder);
    json_decref(index);
    if (!status)
        status = kiln__gguf_order(&folder->tensors);
    if (status)
        return status;
    const struct kiln__gguf_tensor *tensor = NULL;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !tensor; i++) {
        char words[64];
        folder->tensors.prefix = prefixes[i];
        snprintf(words, sizeof words, "%sembed_tokens.weight", prefixes[i]);
        tensor = kiln__gguf_tensor(&folder->tensors, words);
    }
    return tensor && tensor->dims[1] == lm->shape.words
               ? KILN_OK
               : kiln__lm_fail(KILN_INVALID_ARGUMENT,
                               "kiln_lm_load: %s: there is no tensor \"embed_tokens.weight\" of as "
                               "many rows as config.json has tokens, %zu",
                               folder->path, lm->shape.words);
}

kiln_status kiln__lm_folder_tensors(struct kiln__lm_folder *folder, const kiln_lm *lm)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < folder->n_files && !status; i++)
        status = load_file(folder, lm, &folder->files[i]);
    return status;
}

void kiln__lm_folder_free_tensors(struct kiln__lm_folder *folder)
{
    for (size_t i = 0; i < folder->tensors.n_tensors; i++)
        kiln_buffer_release(folder->tensors.tensors[i].buffer);
    for (size_t i = 0; i < folder->n_files; i++) {
        kiln_free(folder->files[i].list);
        free(folder->files[i].path);
    }
    free(folder->files);
    kiln__gguf_free(&folder->tensors);
}
