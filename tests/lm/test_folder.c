/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of Hugging Face's transformers: what models give beside transformers in float64, and what
 * is refused in words. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "folder_answers.h"
#include "tiny.h"

TestSuite(folder, .init = open_device, .fini = close_device);

static kiln_lm *load(const struct hub *hub)
{
    return load_hub(hub, (kiln_type)0);
}

/* The others are in test_folder_answers. */
Test(folder, an_answer)
{
#define FOLDER(name, tokenizer, words, start, text, logits)                                        \
    if (!strcmp(name, "qwen3"))                                                                    \
        check_answer(name, tokenizer, words, start, text, logits);
#include "folders.def"
}

/* The names of all tensors begin otherwise. */
static void rename_tensors(const struct hub *hub, const char *prefix)
{
    static const char file[] = "model.safetensors", old[] = "\"model.";
    enum { LENGTH = 8 };
    size_t count;
    char *bytes = hub_get(hub, file, &count), *made = calloc(3, count), *to = made + LENGTH;
    const size_t length = (size_t)(strstr(bytes + LENGTH, "}}") + 2 - bytes) - LENGTH;
    cr_assert(made);
    for (const char *at = bytes + LENGTH; at < bytes + LENGTH + length;)
        if (!strncmp(at, old, sizeof old - 1)) {
            *to++ = '"';
            to = stpcpy(to, prefix);
            at += sizeof old - 1;
        } else {
            *to++ = *at++;
        }
    const size_t spaces = strspn(bytes + LENGTH + length, " ");
    const size_t head = (size_t)(to - made) - LENGTH, left = count - LENGTH - length - spaces;
    for (int i = 0; i < LENGTH; i++)
        made[i] = (char)(head >> 8 * i);
    memcpy(to, bytes + LENGTH + length + spaces, left);
    hub_put(hub, file, made, LENGTH + head + left);
    free(made);
    free(bytes);
}

/* Of a model that sees pictures the part that reads and writes texts. */
Test(folder, a_model_that_sees)
{
    static const char file[] = "config.json";
    static const char *const prefixes[] = {"", "model.language_model.", "language_model.model."};
    struct hub hub = hub_make("gemma3", "characters");
    size_t count;
    char *config = hub_get(&hub, file, &count), *whole;
    cr_assert_geq(asprintf(&whole, "{\"model_type\": \"gemma3\", \"text_config\": %s}", config), 0);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        kiln_lm_info info;
        hub_remove(&hub);
        hub = hub_make("gemma3", "characters");
        hub_text(&hub, file, whole);
        rename_tensors(&hub, prefixes[i]);
        kiln_lm *lm = load(&hub);
        expect_ok(kiln_lm_get_info(lm, &info));
        cr_expect(info.layers == 7 && info.end == 2);
        kiln_lm_release(lm);
    }
    hub_replace(&hub, file, "\"head_dim\": 16", "\"x\": 1"); /* 256, as usual */
    kiln_lm *lm;
    expect_error_part(kiln_lm_load(context, hub.path, NULL, &lm), KILN_INVALID_ARGUMENT,
                      "is [32,16], and should be [512,16]");
    free(whole);
    free(config);
    hub_remove(&hub);
}

/* ---- what stands beside the weights ---- */

static size_t tokens_of(const kiln_lm *lm, const char *text, int reading, int32_t first[4])
{
    int32_t *tokens;
    size_t count;
    expect_ok(kiln_lm_tokenize(lm, text, strlen(text), reading, &tokens, &count));
    for (size_t i = 0; i < 4; i++)
        first[i] = i < count ? tokens[i] : -1;
    kiln_free(tokens);
    return count;
}

Test(folder, control_tokens)
{
    const struct hub hub = hub_make("mistral", "bytes");
    kiln_lm *lm = load(&hub);
    int32_t tokens[4];
    cr_expect_eq(tokens_of(lm, "<s></s>", KILN_LM_CONTROL, tokens), 2);
    cr_expect(tokens[0] == 0 && tokens[1] == 2);
    cr_expect_gt(tokens_of(lm, "<s></s>", KILN_LM_PLAIN, tokens), 4);
    cr_expect_eq(tokens_of(lm, "suns", KILN_LM_PLAIN, tokens), 1);
    cr_expect_eq(tokens[0], 331); /* a token that a user may write */
    cr_expect_eq(tokens_of(lm, "", KILN_LM_BEGIN, tokens), 1);
    cr_expect_eq(tokens[0], 0);
    size_t bytes;
    cr_expect_eq(memcmp(kiln_lm_token_text(lm, 331, &bytes), "suns", 4), 0);
    cr_expect_eq(bytes, 4);
    kiln_lm_token_text(lm, 2, &bytes);
    cr_expect_eq(bytes, 0);
    kiln_lm_release(lm);
    hub_remove(&hub);
}

Test(folder, beginnings_and_ends)
{
    const struct hub hub = hub_make("mistral", "bytes");
    kiln_lm_info info;
    hub_text(&hub, "generation_config.json", "{\"eos_token_id\": [7, 9]}");
    kiln_lm *lm = load(&hub);
    expect_ok(kiln_lm_get_info(lm, &info));
    cr_expect(info.begin == 0 && info.end == 7 && !*info.chat_template);
    cr_expect(kiln_lm_is_end(lm, 7) && kiln_lm_is_end(lm, 9) && kiln_lm_is_end(lm, 2));
    cr_expect_not(kiln_lm_is_end(lm, 8));
    kiln_lm_release(lm);
    hub_text(&hub, "tokenizer_config.json", "{\"eos_token\": {\"content\": \"</s>\"}}");
    lm = load(&hub);
    expect_ok(kiln_lm_get_info(lm, &info));
    cr_expect_eq(info.end, 2);
    kiln_lm_release(lm);
    hub_remove(&hub);
}

static void check_template(const struct hub *hub, const char *wanted)
{
    const kiln_lm_message messages[] = {{"user", "<s>the"}};
    kiln_lm *lm = load(hub);
    char *text;
    expect_ok(kiln_lm_chat_text(lm, messages, 1, NULL, &text));
    cr_expect_str_eq(text, wanted);
    kiln_free(text);
    kiln_lm_release(lm);
}

Test(folder, chat_templates)
{
    const struct hub hub = hub_make("mistral", "bytes");
    const kiln_lm_message messages[] = {{"user", "<s>the"}};
    int32_t *tokens;
    size_t count;
    hub_text(&hub, "tokenizer_config.json",
             "{\"eos_token\": \"</s>\", \"chat_template\": [{\"name\": \"other\", \"template\": "
             "\"b\"}, {\"name\": \"default\", \"template\": \"{{ messages[0].content }}a\"}]}");
    check_template(&hub, "<s>thea");
    hub_text(&hub, "tokenizer_config.json", "{\"chat_template\": \"c{{ messages[0].content }}\"}");
    check_template(&hub, "c<s>the");
    hub_text(&hub, "chat_template.jinja", "{{ bos_token }}</s>{{ messages[0].content }}</s>");
    check_template(&hub, "<s></s><s>the</s>");
    kiln_lm *lm = load(&hub);
    expect_ok(kiln_lm_chat_tokens(lm, messages, 1, NULL, &tokens, &count));
    cr_assert_gt(count, 4);
    cr_expect(tokens[0] == 0 && tokens[1] == 2 && tokens[count - 1] == 2);
    for (size_t i = 2; i + 1 < count; i++)
        cr_expect(tokens[i] != 0 && tokens[i] != 2, "a message has control token %d", tokens[i]);
    kiln_free(tokens);
    kiln_lm_release(lm);
    hub_remove(&hub);
}

/* ---- what is refused ---- */

static void refused(const struct hub *hub, kiln_status status, const char *part)
{
    kiln_lm *lm;
    expect_error_part(kiln_lm_load(context, hub->path, NULL, &lm), status, part);
    cr_expect_not(lm);
}

/* With other files the folder is refused; then it is as it was. */
static void spoil_file(const struct hub *hub, const char *file, const char *text,
                       kiln_status status, const char *part)
{
    size_t count;
    char *before = hub_get(hub, file, &count);
    hub_text(hub, file, text);
    refused(hub, status, part);
    hub_put(hub, file, before, count);
    free(before);
}

static void spoil(const struct hub *hub, const char *file, const char *from, const char *to,
                  kiln_status status, const char *part)
{
    size_t count;
    char *before = hub_get(hub, file, &count);
    hub_replace(hub, file, from, to);
    refused(hub, status, part);
    hub_put(hub, file, before, count);
    free(before);
}

Test(folder, configurations_that_are_refused)
{
    static const char file[] = "config.json";
    const struct hub hub = hub_make("gemma3", "characters");
    spoil_file(&hub, file, NULL, KILN_INVALID_ARGUMENT, "the folder has no config.json");
    spoil_file(&hub, file, "{\"a\": ", KILN_INVALID_ARGUMENT, "config.json: line 1: ");
    spoil_file(&hub, file, "[1]", KILN_INVALID_ARGUMENT, "config.json: it is no object");
    spoil_file(&hub, file, "{}", KILN_UNSUPPORTED, "the architecture is \"\"; kiln knows llama,");
    spoil(&hub, file, "gemma3_text", "gemma9", KILN_UNSUPPORTED, "architecture is \"gemma9\"");
    static const struct {
        const char *from, *to, *part;
        kiln_status status;
    } rows[] = {
        {"\"num_hidden_layers\": 7", "\"num_hidden_layers\": 0",
         "num_hidden_layers is no whole number from 1", KILN_INVALID_ARGUMENT},
        {"\"num_hidden_layers\": 7", "\"x\": 7", "num_hidden_layers is no whole number from 1",
         KILN_INVALID_ARGUMENT},
        {"\"num_hidden_layers\": 7", "\"num_hidden_layers\": \"7\"",
         "num_hidden_layers is no whole number from 1", KILN_INVALID_ARGUMENT},
        {"\"num_hidden_layers\": 7", "\"num_hidden_layers\": 16777216", "tensors for 16777216",
         KILN_INVALID_ARGUMENT},
        {"\"num_hidden_layers\": 7", "\"num_hidden_layers\": 6", "kiln knows no tensor \"model.la",
         KILN_UNSUPPORTED},
        {"\"num_hidden_layers\": 7", "\"num_hidden_layers\": 8",
         "has no tensor \"model.layers.7.input_layernorm.weight\"", KILN_INVALID_ARGUMENT},
        {"\"hidden_size\": 16", "\"hidden_size\": 32", "is [424,16], and should be [424,32]",
         KILN_INVALID_ARGUMENT},
        {"\"head_dim\": 16", "\"head_dim\": 15", "2 heads of 15 with 1 of keys", KILN_UNSUPPORTED},
        {"\"num_key_value_heads\": 1", "\"num_key_value_heads\": 3", "with 3 of keys",
         KILN_UNSUPPORTED},
        {"\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": -1", "rms_norm_eps is no number above 0",
         KILN_INVALID_ARGUMENT},
        {"\"linear\"", "\"yarn\"", "positions are scaled by \"yarn\"", KILN_UNSUPPORTED},
        {"\"linear\"", "\"llama3\"", "positions are scaled by \"llama3\"", KILN_UNSUPPORTED},
        {"\"factor\": 4.0", "\"factor\": 0", "factor is no number above 0", KILN_INVALID_ARGUMENT},
        {"\"gelu_pytorch_tanh\"", "\"silu\"", "the gate's function is \"silu\"", KILN_UNSUPPORTED},
        {"\"final_logit_softcapping\": null", "\"final_logit_softcapping\": 30.0",
         "it has final_logit_softcapping", KILN_UNSUPPORTED},
        {"\"use_cache\": true", "\"quantization_config\": {\"quant_method\": \"gptq\"}",
         "it has quantization_config", KILN_UNSUPPORTED},
        {"\"full_attention\",", "\"sliding_attention\",", "layer 5 of layer_types is",
         KILN_UNSUPPORTED},
        {"\"vocab_size\": 424", "\"vocab_size\": 20",
         "of as many rows as config.json has tokens, 20", KILN_INVALID_ARGUMENT},
        {"\"eos_token_id\": 2", "\"eos_token_id\": 424", "eos_token_id is no token",
         KILN_INVALID_ARGUMENT},
        {"\"eos_token_id\": 2", "\"eos_token_id\": [2, \"3\"]", "eos_token_id is no token",
         KILN_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        spoil(&hub, file, rows[i].from, rows[i].to, rows[i].status, rows[i].part);
    hub_text(&hub, file, NULL);
    hub_text(&hub, "genai_config.json", "{}");
    refused(&hub, KILN_INVALID_ARGUMENT, "model.decoder.filename is no name of a file");
    hub_text(&hub, "genai_config.json", NULL);
    cr_assert_not(mkfifo(hub_path(&hub, file), 0600));
    refused(&hub, KILN_INVALID_ARGUMENT, "config.json: it is no file");
    hub_remove(&hub);
}

Test(folder, llama_needs_four_numbers)
{
    const struct hub hub = hub_make("llama", "wide");
    spoil(&hub, "config.json", "\"low_freq_factor\": 1.0", "\"x\": 1", KILN_INVALID_ARGUMENT,
          "without its four numbers");
    spoil(&hub, "config.json", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 4.0",
          KILN_INVALID_ARGUMENT, "such as cannot be");
    hub_remove(&hub);
}

Test(folder, weights_that_are_refused)
{
    static const char file[] = "model.safetensors", index[] = "model.safetensors.index.json";
    struct hub hub = hub_make("phi3", "characters");
    size_t count;
    char *bytes = hub_get(&hub, file, &count);
    hub_put(&hub, file, bytes, count - 1);
    refused(&hub, KILN_IO_ERROR, "beyond the end of the file");
    hub_put(&hub, file, bytes, 7);
    refused(&hub, KILN_IO_ERROR, "ends before its header");
    char *name = memmem(bytes, count, "model.norm.weight", 17);
    cr_assert(name);
    name[0] = 'x';
    hub_put(&hub, file, bytes, count);
    refused(&hub, KILN_INVALID_ARGUMENT, "has no tensor \"model.norm.weight\"");
    name[0] = 'm';
    char *type = memmem(bytes, count, "BF16", 4);
    memcpy(type, "BOOL", 4);
    hub_put(&hub, file, bytes, count);
    refused(&hub, KILN_IO_ERROR, "model.safetensors");
    hub_text(&hub, file, NULL);
    refused(&hub, KILN_INVALID_ARGUMENT, "no safetensors file");
    hub_put(&hub, "a.safetensors", bytes, 7);
    hub_put(&hub, "b.safetensors", bytes, 7);
    refused(&hub, KILN_INVALID_ARGUMENT, "several safetensors files");
    hub_text(&hub, index, "{\"weight_map\": {\"a\": \"../a.safetensors\"}}");
    refused(&hub, KILN_INVALID_ARGUMENT, "tensor \"a\" is in no file of the folder");
    hub_text(&hub, index, "{\"weight_map\": {\"a\": 7}}");
    refused(&hub, KILN_INVALID_ARGUMENT, "tensor \"a\" is in no file of the folder");
    hub_text(&hub, index, "{\"weight_map\": {\"a\": \"c.safetensors\"}}");
    refused(&hub, KILN_IO_ERROR, "c.safetensors");
    hub_text(&hub, index, "{}");
    refused(&hub, KILN_INVALID_ARGUMENT, "no tensor \"embed_tokens.weight\" of as many rows");
    free(bytes);
    hub_remove(&hub);

    hub = hub_make("qwen3", "wide");
    bytes = hub_get(&hub, "model-00003-of-00003.safetensors", &count);
    hub_put(&hub, "model-00002-of-00003.safetensors", bytes, count);
    refused(&hub, KILN_INVALID_ARGUMENT, "two tensors are called");
    free(bytes);
    hub_remove(&hub);
}

Test(folder, tokenizers_that_are_refused)
{
    static const char file[] = "tokenizer.json";
    struct hub hub = hub_make("qwen3", "characters");
    refused(&hub, KILN_INVALID_ARGUMENT, "tokenizer.json: it has 420 tokens, and the model 331");
    hub_remove(&hub);
    hub = hub_make("llama", "wide");
    spoil_file(&hub, file, NULL, KILN_INVALID_ARGUMENT, "the folder has no tokenizer.json");
    spoil_file(&hub, file, "{", KILN_INVALID_ARGUMENT, "tokenizer.json: line 1: ");
    spoil_file(&hub, file, "{\"model\": {\"type\": \"WordPiece\"}}", KILN_UNSUPPORTED,
               "tokenizer.json: its model is \"WordPiece\"");
    spoil(&hub, file, "\"ids\":[0]", "\"ids\":[0,0]", KILN_UNSUPPORTED,
          "a text begins with 2 tokens");
    spoil(&hub, file, "\"ids\":[0]", "\"ids\":[400]", KILN_INVALID_ARGUMENT,
          "a text begins with token 400 of 336");
    hub_remove(&hub);
}

/* Whatever is damaged, loading ends with an answer, and a model that comes of it can be asked. */
static void mutate(const struct hub *hub, const char *file, int files, size_t most)
{
    static const char letters[] = "0123456789-.,:[]{}\"eE \\u";
    size_t count;
    char *bytes = hub_get(hub, file, &count), *spoilt = malloc(count + 1);
    uint32_t state = 7;
    for (int i = 0; i < files; i++) {
        memcpy(spoilt, bytes, count);
        for (int k = 0; k < 1 + i % 4; k++) {
            state = state * 1664525 + 1013904223;
            const size_t at = (state >> 8) % (count < most ? count : most);
            spoilt[at] = state & 0x80 ? letters[(state >> 3) % (sizeof letters - 1)]
                                      : (char)(spoilt[at] ^ (1 << (state & 7)));
        }
        hub_put(hub, file, spoilt, i % 16 ? count : (state >> 8) % (count + 1));
        kiln_lm *lm;
        int32_t tokens[4];
        if (kiln_lm_load(context, hub->path, NULL, &lm))
            cr_assert(!lm && *kiln_last_error());
        else
            tokens_of(lm, "the <s>sun", KILN_LM_BEGIN | KILN_LM_CONTROL, tokens);
        kiln_lm_release(lm);
    }
    hub_put(hub, file, bytes, count);
    free(spoilt);
    free(bytes);
}

Test(folder, mutations)
{
    enum { FILES = 120, HEADER = 2000 };
    const struct hub hub = hub_make("mistral", "bytes");
    mutate(&hub, "config.json", FILES, SIZE_MAX);
    mutate(&hub, "tokenizer.json", FILES, SIZE_MAX);
    mutate(&hub, "model.safetensors", FILES, HEADER);
    hub_text(&hub, "generation_config.json", "{\"eos_token_id\": [2, 7], \"bos_token_id\": 0}");
    mutate(&hub, "generation_config.json", FILES, SIZE_MAX);
    hub_text(&hub, "tokenizer_config.json",
             "{\"eos_token\": {\"content\": \"</s>\"}, \"bos_token\": \"<s>\", \"chat_template\": "
             "[{\"name\": \"default\", \"template\": \"a\"}]}");
    mutate(&hub, "tokenizer_config.json", FILES, SIZE_MAX);
    hub_remove(&hub);
}
