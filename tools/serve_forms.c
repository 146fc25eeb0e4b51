/* SPDX-License-Identifier: Apache-2.0 */
/* What OpenAI's clients ask of language models. What is there and would change the answer, but is
 * not known, is refused. */
#define _GNU_SOURCE
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "serve.h"

enum { USUAL_TOKENS = 16 }; /* of a text that goes on; as OpenAI has it */

/* ---- how texts go on ---- */

static uint64_t random_seed(void)
{
    uint64_t seed = 0;
    return getrandom(&seed, sizeof seed, 0) == sizeof seed ? seed : (uint64_t)time(NULL);
}

static bool read_sampling(struct serve_reading *r)
{
    kiln_lm_request_options *options = &r->form->options;
    json_int_t top_k = 0, seed = 0;
    options->temperature = options->top_p = 1;
    const bool fine = serve_read_number(r, "temperature", 1000, &options->temperature) &&
                      serve_read_number(r, "top_p", 1, &options->top_p) &&
                      serve_read_number(r, "min_p", 1, &options->min_p) &&
                      serve_read_whole(r, "top_k", -1, INT32_MAX, &top_k) &&
                      serve_read_whole(r, "seed", INT64_MIN, INT64_MAX, &seed);
    options->top_k = top_k > 0 ? (size_t)top_k : 0;
    options->seed = serve_member(r, "seed") ? (uint64_t)seed : random_seed();
    return fine;
}

static bool read_tokens(struct serve_reading *r)
{
    const struct server *server = r->form->server;
    const json_int_t limit = server->most_tokens ? (json_int_t)server->most_tokens : INT32_MAX;
    json_int_t most = r->form->chat ? 0 : USUAL_TOKENS;
    if (!serve_read_whole(r, "max_tokens", 1, INT32_MAX, &most) ||
        !serve_read_whole(r, "max_completion_tokens", 1, INT32_MAX, &most))
        return false;
    r->form->options.max_tokens = (size_t)(most && most < limit  ? most
                                           : server->most_tokens ? limit
                                                                 : most);
    return true;
}

static bool add_stop(struct serve_reading *r, json_t *stop)
{
    struct serve_form *form = r->form;
    if (!json_is_string(stop) || !json_string_length(stop))
        return serve_refuse_param(r, "stop",
                                  "it is neither a text nor a list of such, or one is empty");
    if (form->stop_count == SERVE_MOST_STOPS)
        return serve_refuse_param(r, "stop", "there are more than 16");
    if (json_string_length(stop) > SERVE_LONGEST_STOP)
        return serve_refuse_param(r, "stop", "one has more than 1000 bytes");
    char *copy = strdup(json_string_value(stop));
    if (!copy)
        return serve_refuse(r->problem, 500, NULL, NULL, "no memory");
    form->stops[form->stop_count++] = copy;
    return true;
}

static bool read_stops(struct serve_reading *r)
{
    json_t *stop = serve_member(r, "stop"), *each;
    size_t i;
    if (!stop)
        return true;
    if (!json_is_array(stop))
        return add_stop(r, stop);
    json_array_foreach(stop, i, each)
    {
        if (!add_stop(r, each))
            return false;
    }
    return true;
}

/* Of texts a number of the most probable tokens; of messages whether there are any, and that
 * number. */
static bool read_logprobs(struct serve_reading *r)
{
    json_int_t top = -1;
    bool wanted = false;
    if (!r->form->chat) {
        if (!json_is_false(serve_member(r, "logprobs")) &&
            !serve_read_whole(r, "logprobs", 0, SERVE_MOST_LOGPROBS, &top))
            return false;
    } else if (!serve_read_bool(r, "logprobs", &wanted) ||
               !serve_read_whole(r, "top_logprobs", 0, SERVE_MOST_LOGPROBS, &top)) {
        return false;
    } else if (!wanted && top > 0) {
        return serve_refuse_param(r, "top_logprobs", "it takes logprobs to be true");
    } else {
        top = !wanted ? -1 : top > 0 ? top : 0;
    }
    r->form->options.logprobs = (size_t)(top + 1);
    return true;
}

/* What would change the answer: absent, or with the value that changes nothing. */
static bool refuse_others(struct serve_reading *r)
{
    static const char *const zeros[] = {"presence_penalty", "frequency_penalty"};
    static const char *const none[] = {"logit_bias", "tools",   "functions",  "suffix",
                                       "audio",      "grammar", "json_schema"};
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) {
        json_t *value = serve_member(r, zeros[i]);
        if (value && !json_is_false(value) &&
            !(json_is_number(value) && json_number_value(value) == 0))
            return serve_refuse_param(r, zeros[i], "this server does not have it");
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        json_t *value = serve_member(r, none[i]);
        if (value && (json_is_string(value)  ? json_string_length(value)
                      : json_is_array(value) ? json_array_size(value)
                                             : json_object_size(value) || !json_is_object(value)))
            return serve_refuse_param(r, none[i], "this server does not have it");
    }
    bool echo = false;
    json_int_t best = 1;
    json_t *format = serve_member(r, "response_format");
    if (format && strcmp(json_string_value(json_object_get(format, "type"))
                             ? json_string_value(json_object_get(format, "type"))
                             : "",
                         "text") != 0)
        return serve_refuse_param(r, "response_format", "this server has \"text\" alone");
    if (!serve_read_bool(r, "echo", &echo) ||
        !serve_read_whole(r, "best_of", 1, SERVE_MOST_CHOICES, &best))
        return false;
    if (echo || best > (json_int_t)r->form->each)
        return serve_refuse_param(r, echo ? "echo" : "best_of", "this server does not have it");
    return true;
}

/* ---- prompts ---- */

static bool add_prompt(struct serve_reading *r, const int32_t *tokens, size_t count)
{
    struct serve_prompt *prompt = &r->form->prompts[r->form->prompt_count];
    prompt->tokens = malloc((count + 1) * sizeof *tokens);
    if (!prompt->tokens)
        return serve_refuse(r->problem, 500, NULL, NULL, "no memory");
    memcpy(prompt->tokens, tokens, count * sizeof *tokens);
    prompt->count = count;
    r->form->prompt_count++;
    return count || serve_refuse_param(r, "prompt", "it has no tokens to go on from");
}

static bool add_text(struct serve_reading *r, json_t *text)
{
    int32_t *tokens;
    size_t count;
    const kiln_status status =
        kiln_lm_tokenize(r->form->model->lm, json_string_value(text), json_string_length(text),
                         KILN_LM_BEGIN, &tokens, &count);
    const bool fine = status ? serve_refuse_kiln(r->problem, status) : add_prompt(r, tokens, count);
    kiln_free(tokens);
    return fine;
}

static bool add_numbers(struct serve_reading *r, json_t *numbers)
{
    const size_t count = json_array_size(numbers);
    int32_t *tokens = malloc((count + 1) * sizeof *tokens);
    json_t *number;
    size_t i;
    if (!tokens)
        return serve_refuse(r->problem, 500, NULL, NULL, "no memory");
    json_array_foreach(numbers, i, number)
    {
        const json_int_t value = json_integer_value(number);
        const bool fits = json_is_integer(number) && value >= 0 && value < INT32_MAX;
        tokens[i] = fits ? (int32_t)value : -1; /* which is no token */
    }
    const bool fine = add_prompt(r, tokens, count);
    free(tokens);
    return fine;
}

/* A text, or tokens. */
static bool add_one(struct serve_reading *r, json_t *prompt)
{
    if (r->form->prompt_count == SERVE_MOST_CHOICES)
        return serve_refuse_param(r, "prompt", "there are more than 64");
    if (json_is_string(prompt))
        return add_text(r, prompt);
    if (json_is_array(prompt))
        return add_numbers(r, prompt);
    return serve_refuse_param(r, "prompt", "it is no text, list of tokens, or list of such");
}

static bool read_prompts(struct serve_reading *r)
{
    json_t *prompt = serve_member(r, "prompt"), *each;
    size_t i;
    if (!prompt)
        return serve_refuse_param(r, "prompt", "it is missing");
    if (!json_is_array(prompt) || json_is_integer(json_array_get(prompt, 0)))
        return add_one(r, prompt);
    json_array_foreach(prompt, i, each)
    {
        if (!add_one(r, each))
            return false;
    }
    return r->form->prompt_count || serve_refuse_param(r, "prompt", "it is an empty list");
}

/* ---- conversations ---- */

/* A text, or the texts of a list of parts, put together. */
static bool read_content(struct serve_reading *r, json_t *content, struct kiln__text *text)
{
    json_t *part;
    size_t i;
    if (json_is_string(content))
        kiln__text_add_bytes(text, json_string_value(content), json_string_length(content));
    else if (!json_is_array(content))
        return serve_refuse_param(r, "messages", "a content is neither a text nor a list of parts");
    json_array_foreach(content, i, part)
    {
        json_t *said = json_object_get(part, "text");
        if (!json_is_string(said))
            return serve_refuse_param(r, "messages", "a part of a content is no text");
        kiln__text_add_bytes(text, json_string_value(said), json_string_length(said));
    }
    kiln__text_add_bytes(text, "", 0);
    return !text->failed || serve_refuse(r->problem, 500, NULL, NULL, "no memory");
}

static bool tokenize_messages(struct serve_reading *r, const kiln_lm_message *messages,
                              size_t count)
{
    int32_t *tokens;
    size_t token_count;
    const kiln_status status =
        kiln_lm_chat_tokens(r->form->model->lm, messages, count, NULL, &tokens, &token_count);
    if (status) {
        serve_refuse_kiln(r->problem, status);
        strcpy(r->problem->param, "messages");
        return false;
    }
    const bool fine = add_prompt(r, tokens, token_count);
    kiln_free(tokens);
    return fine;
}

static bool read_messages(struct serve_reading *r)
{
    json_t *list = serve_member(r, "messages"), *each;
    const size_t count = json_array_size(list);
    size_t i;
    if (!count)
        return serve_refuse_param(r, "messages", "it is missing, no list, or empty");
    kiln_lm_message *messages = calloc(count, sizeof *messages);
    struct kiln__text *texts = calloc(count, sizeof *texts);
    bool fine = (messages && texts) || serve_refuse(r->problem, 500, NULL, NULL, "no memory");
    json_array_foreach(list, i, each)
    {
        json_t *role = json_object_get(each, "role");
        if (fine && !json_is_string(role))
            fine = serve_refuse_param(r, "messages", "a message has no role");
        fine = fine && read_content(r, json_object_get(each, "content"), &texts[i]);
        if (fine)
            messages[i] = (kiln_lm_message){json_string_value(role), texts[i].data};
    }
    fine = fine && tokenize_messages(r, messages, count);
    for (i = 0; texts && i < count; i++)
        kiln__text_free(&texts[i]);
    free(texts);
    free(messages);
    return fine;
}

/* ---- all ---- */

static bool read_stream(struct serve_reading *r)
{
    json_t *options = serve_member(r, "stream_options");
    if (!serve_read_bool(r, "stream", &r->form->stream))
        return false;
    if (options && !json_is_object(options))
        return serve_refuse_param(r, "stream_options", "it is no object");
    r->form->usage = json_is_true(json_object_get(options, "include_usage"));
    return true;
}

static bool read_each(struct serve_reading *r)
{
    json_int_t each = 1;
    if (!serve_read_whole(r, "n", 1, SERVE_MOST_CHOICES, &each))
        return false;
    r->form->each = (size_t)each;
    return true;
}

static bool read_form(struct serve_reading *r, serve_reader *read_prompt)
{
    kiln_lm_request_options_init(&r->form->options);
    return serve_read_model(r, &serve_language) && read_each(r) && read_stream(r) &&
           read_sampling(r) && read_tokens(r) && read_stops(r) && read_logprobs(r) &&
           refuse_others(r) && read_prompt(r) &&
           (r->form->prompt_count * r->form->each <= SERVE_MOST_CHOICES ||
            serve_refuse_param(r, "n", "there are more than 64 answers"));
}

bool serve_read_completion(struct serve_reading *r)
{
    return read_form(r, read_prompts);
}

bool serve_read_chat(struct serve_reading *r)
{
    r->form->chat = true;
    return read_form(r, read_messages);
}
