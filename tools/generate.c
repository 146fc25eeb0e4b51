/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln generate`: a text from an argument or standard input goes on, by a language model. */
#define _GNU_SOURCE
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "language.h"
#include "suggest.h"
#include "tool.h"

enum { USUAL_TOKENS = 128 };

static const char command[] = "kiln generate";

struct generate_request {
    struct language_request language;
    const char *prompt; /* NULL: standard input */
    bool json, control;
};

/* A text, and what came of it. */
struct generated {
    char *prompt, *text;
    size_t prompt_bytes, text_bytes, capacity;
    size_t prompt_tokens, tokens;
    bool ended; /* by the model */
    double first, seconds;
};

/* ---- texts ---- */

static bool fail(const char *problem)
{
    fprintf(stderr, "%s: %s\n", command, problem);
    return false;
}

static bool append(struct generated *generated, const char *bytes, size_t count)
{
    if (generated->text_bytes + count > generated->capacity) {
        const size_t capacity = 2 * (generated->text_bytes + count);
        char *grown = realloc(generated->text, capacity);
        if (!grown)
            return fail("no memory");
        generated->text = grown;
        generated->capacity = capacity;
    }
    if (count) /* control tokens have no text */
        memcpy(generated->text + generated->text_bytes, bytes, count);
    generated->text_bytes += count;
    return true;
}

/* A new line at its end belongs to the file, not to the text. */
static bool read_input(struct generated *generated)
{
    char part[4096];
    size_t count;
    while ((count = fread(part, 1, sizeof part, stdin)) > 0)
        if (!append(generated, part, count))
            return false;
    if (ferror(stdin))
        return fail("standard input cannot be read");
    if (generated->text_bytes && generated->text[generated->text_bytes - 1] == '\n')
        generated->text_bytes--;
    generated->prompt = generated->text;
    generated->prompt_bytes = generated->text_bytes;
    generated->text = NULL;
    generated->text_bytes = generated->capacity = 0;
    return true;
}

static bool find_prompt(const struct generate_request *request, struct generated *generated)
{
    if (!request->prompt)
        return read_input(generated);
    generated->prompt = strdup(request->prompt);
    generated->prompt_bytes = strlen(request->prompt);
    return generated->prompt || fail("no memory");
}

/* ---- tokens ---- */

static bool feed(const struct generate_request *request, const struct language *language,
                 struct generated *generated)
{
    int32_t *tokens;
    size_t count;
    const int reading = KILN_LM_BEGIN | (request->control ? KILN_LM_CONTROL : 0);
    if (kiln_lm_tokenize(language->lm, generated->prompt, generated->prompt_bytes, reading, &tokens,
                         &count))
        return language_complain(command);
    generated->prompt_tokens = count;
    bool fine = count || fail("the text has no tokens to go on from");
    if (fine && kiln_lm_feed(language->session, tokens, count))
        fine = language_complain(command);
    kiln_free(tokens);
    return fine;
}

static bool write_text(const struct generate_request *request, struct generated *generated,
                       const char *text, size_t bytes)
{
    generated->tokens++;
    if (request->json)
        return append(generated, text, bytes);
    return (fwrite(text, 1, bytes, stdout) == bytes && !fflush(stdout)) ||
           fail("standard output could not be written");
}

/* Until the model ends it, or there is no room for more. */
static bool go_on(const struct generate_request *request, const struct language *language,
                  struct generated *generated)
{
    kiln_lm_session *session = language->session;
    while (generated->tokens < request->language.most &&
           kiln_lm_session_length(session) < kiln_lm_session_context(session)) {
        int32_t token;
        size_t bytes;
        if (kiln_lm_next(session, &token))
            return language_complain(command);
        generated->ended = kiln_lm_is_end(language->lm, token);
        if (generated->ended)
            return true;
        const char *text = kiln_lm_token_text(language->lm, token, &bytes);
        if (!write_text(request, generated, text, bytes))
            return false;
    }
    return true;
}

static bool generate(const struct generate_request *request, const struct language *language,
                     struct generated *generated)
{
    const double began = language_now();
    if (!feed(request, language, generated))
        return false;
    generated->first = language_now() - began;
    const bool fine = go_on(request, language, generated);
    generated->seconds = language_now() - began - generated->first;
    return fine;
}

/* ---- JSON ---- */

static bool print_json(const struct generate_request *request, const struct language *language,
                       const struct generated *generated)
{
    const double tokens = (double)generated->tokens;
    json_t *all =
        json_pack("{s:o, s:I, s:I, s:s, s:I, s:f, s:f, s:f, s:f}", "text",
                  language_json_text(generated->text ? generated->text : "", generated->text_bytes),
                  "prompt_tokens", (json_int_t)generated->prompt_tokens, "tokens",
                  (json_int_t)generated->tokens, "ended", generated->ended ? "end" : "length",
                  "seed", (json_int_t)request->language.session.seed, "load_seconds",
                  language->load, "prompt_seconds", generated->first, "seconds", generated->seconds,
                  "tokens_per_second", generated->seconds > 0 ? tokens / generated->seconds : 0.0);
    char *text = all ? json_dumps(all, JSON_REAL_PRECISION(6)) : NULL;
    json_decref(all);
    if (!text)
        return fail("no memory");
    printf("%s\n", text);
    free(text);
    return true;
}

/* ---- from the command line to the text ---- */

static int run(const struct generate_request *request)
{
    struct language language = {0};
    struct generated generated = {0};
    bool fine = find_prompt(request, &generated);
    fine = fine && language_open(command, &request->language, &language) &&
           generate(request, &language, &generated);
    if (fine && request->json)
        fine = print_json(request, &language, &generated);
    else if (fine)
        putchar('\n');
    language_close(&language);
    free(generated.prompt);
    free(generated.text);
    return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}

enum { CONTROL = 256 };

static const struct argp_option options[] = {
    {"control", CONTROL, NULL, 0,
     "Control tokens that are written out in the text, such as "
     "<|im_end|>, are these",
     0},
    {"json", 'j', NULL, 0, "Print a JSON object: text, tokens, seconds", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct generate_request *request = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &request->language; return 0;
    case CONTROL: request->control = true; return 0;
    case 'j': request->json = true; return 0;
    case ARGP_KEY_ARG:
        if (request->prompt)
            argp_error(state, "\"%s\" is one argument too many", arg);
        *(request->language.model ? &request->prompt : &request->language.model) = arg;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "MODEL is missing"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int kiln__tool_generate(int argc, char **argv)
{
    static const char doc[] =
        "Have a text go on: TEXT, or what standard input has. MODEL is a GGUF file, or a folder "
        "of Hugging Face's transformers, or one in onnxruntime-genai's form: genai_config.json, an "
        "ONNX file, tokenizer.json. What comes of it is written as it is made, and ends where the "
        "model ends it.";
    static const struct argp_child children[] = {{&language_argp, 0, NULL, 0}, {0}};
    struct argp argp = {.options = options,
                        .parser = parse,
                        .args_doc = "MODEL [TEXT]",
                        .doc = doc,
                        .children = children};
    struct generate_request request = {0};
    language_begin(&request.language, USUAL_TOKENS);
    kiln__tool_parse(&argp, argc, argv, 0, &request);
    return run(&request);
}
