/* SPDX-License-Identifier: Apache-2.0 */
/* Log-probabilities as OpenAI's clients read them: lists by tokens for texts, objects for messages.
 */
#include <math.h>
#include <stdlib.h>

#include "language.h"
#include "serve.h"

/* Characters of a part of a text, as many as its JSON has: begun ones at most. */
static size_t characters(const struct serve_choice *choice, size_t from, size_t to)
{
    size_t count = 0;
    for (size_t i = from; i < to; i++)
        count += ((unsigned char)choice->text.data[i] & 0xc0) != 0x80;
    return count;
}

bool serve_said_add(struct serve_choice *choice, size_t number, size_t begin)
{
    if (choice->said_count == choice->said_room) {
        const size_t room = choice->said_room ? 2 * choice->said_room : 64;
        struct serve_said *grown = realloc(choice->said, room * sizeof *grown);
        if (!grown)
            return false;
        choice->said = grown;
        choice->said_room = room;
    }
    struct serve_said *said = &choice->said[choice->said_count++];
    const struct serve_said first = {0, 0, 0}, *last = choice->said_count > 1 ? said - 1 : &first;
    *said = (struct serve_said){number, begin,
                                last->character + characters(choice, last->begin, begin)};
    return true;
}

/* Up to where in the text those reach that are answered with its part up to `end`. */
static size_t said_until(const struct serve_choice *choice, size_t from, size_t end)
{
    size_t count = from;
    while (count < choice->said_count && choice->said[count].begin < end)
        count++;
    return count;
}

static json_t *token_text(const struct serve_job *job, int32_t token)
{
    size_t bytes;
    const char *text = kiln_lm_token_text(job->form.model->lm, token, &bytes);
    return language_json_text(text, bytes);
}

/* JSON has no infinity: OpenAI says this instead. */
static double finite_of(float logprob)
{
    return isfinite(logprob) ? (double)logprob : -9999.0;
}

/* As many as there are. */
static size_t read_kept(const struct serve_job *job, const struct serve_choice *choice, size_t said,
                        kiln_lm_logprob kept[SERVE_MOST_LOGPROBS + 1])
{
    return kiln_lm_request_logprobs(choice->request, choice->said[said].number, kept,
                                    job->form.options.logprobs);
}

/* ---- messages ---- */

static json_t *message_token(const struct serve_job *job, kiln_lm_logprob kept)
{
    size_t bytes;
    const char *text = kiln_lm_token_text(job->form.model->lm, kept.token, &bytes);
    json_t *numbers = json_array();
    for (size_t i = 0; i < bytes; i++)
        json_array_append_new(numbers, json_integer((unsigned char)text[i]));
    return json_pack("{s:o, s:f, s:o}", "token", token_text(job, kept.token), "logprob",
                     finite_of(kept.logprob), "bytes", numbers);
}

static json_t *message_logprobs(const struct serve_job *job, const struct serve_choice *choice,
                                size_t from, size_t to)
{
    json_t *content = json_array();
    for (size_t i = from; i < to; i++) {
        kiln_lm_logprob kept[SERVE_MOST_LOGPROBS + 1] = {{0}};
        const size_t count = read_kept(job, choice, i, kept);
        json_t *one = message_token(job, kept[0]), *top = json_array();
        for (size_t k = 1; k < count; k++)
            json_array_append_new(top, message_token(job, kept[k]));
        json_object_set_new(one, "top_logprobs", top);
        json_array_append_new(content, one);
    }
    return json_pack("{s:o, s:n}", "content", content, "refusal");
}

/* ---- texts ---- */

/* By their texts; of equal ones the most probable. */
static json_t *text_top(const struct serve_job *job, const kiln_lm_logprob *kept, size_t count)
{
    json_t *top = json_object();
    for (size_t k = count; k-- > 1;) {
        json_t *text = token_text(job, kept[k].token);
        json_object_setn_new(top, json_string_value(text), json_string_length(text),
                             json_real(finite_of(kept[k].logprob)));
        json_decref(text);
    }
    return top;
}

static json_t *text_logprobs(const struct serve_job *job, const struct serve_choice *choice,
                             size_t from, size_t to)
{
    json_t *tokens = json_array(), *own = json_array(), *top = json_array(), *at = json_array();
    for (size_t i = from; i < to; i++) {
        kiln_lm_logprob kept[SERVE_MOST_LOGPROBS + 1] = {{0}};
        const size_t count = read_kept(job, choice, i, kept);
        json_array_append_new(tokens, token_text(job, kept[0].token));
        json_array_append_new(own, json_real(finite_of(kept[0].logprob)));
        json_array_append_new(top, text_top(job, kept, count));
        json_array_append_new(at, json_integer((json_int_t)choice->said[i].character));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", own,
                     "top_logprobs", top, "text_offset", at);
}

json_t *serve_logprobs_json(const struct serve_job *job, struct serve_choice *choice, size_t end)
{
    if (!job->form.options.logprobs)
        return json_null();
    const size_t from = choice->said_sent, to = said_until(choice, from, end);
    choice->said_sent = to;
    return job->form.chat ? message_logprobs(job, choice, from, to)
                          : text_logprobs(job, choice, from, to);
}
