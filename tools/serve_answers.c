/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as OpenAI's clients read them: whole, or as server-sent events. */
#include <stdlib.h>
#include <string.h>

#include "language.h"
#include "serve.h"

/* ---- texts of tokens ---- */

/* Where a stop begins that the new end of a text may have; its length: nowhere. */
static size_t find_stop(const struct serve_form *form, const struct kiln__text *text, size_t before)
{
    size_t found = text->length;
    for (size_t i = 0; i < form->stop_count; i++) {
        const size_t length = strlen(form->stops[i]);
        size_t at = before >= length ? before - length + 1 : 0;
        for (; at + length <= text->length && at < found; at++)
            if (!memcmp(text->data + at, form->stops[i], length))
                found = at;
    }
    return found;
}

static void add_token(struct serve_job *job, struct serve_choice *choice, int32_t token)
{
    size_t bytes;
    const char *text = kiln_lm_token_text(job->form.model->lm, token, &bytes);
    const size_t before = choice->text.length;
    choice->tokens++;
    if (kiln_lm_is_end(job->form.model->lm, token)) {
        choice->finish = "stop";
        return;
    }
    kiln__text_add_bytes(&choice->text, text, bytes);
    if (job->form.options.logprobs && bytes && !choice->text.failed &&
        !serve_said_add(choice, choice->tokens - 1, before))
        choice->text.failed = true;
    const size_t stop = find_stop(&job->form, &choice->text, before);
    if (stop < choice->text.length) {
        choice->text.length = stop;
        choice->finish = "stop";
        kiln_lm_request_cancel(choice->request);
    }
}

void serve_choice_read(struct serve_job *job, struct serve_choice *choice)
{
    int32_t tokens[64];
    size_t count;
    const kiln_status status = kiln_lm_request_poll(choice->request);
    if (status && status != KILN_NOT_READY)
        serve_refuse_kiln(&job->problem, status);
    while (!choice->finish &&
           (count = kiln_lm_request_read(choice->request, choice->tokens, tokens, 64)) > 0)
        for (size_t i = 0; i < count && !choice->finish; i++)
            add_token(job, choice, tokens[i]);
    if (choice->text.failed)
        serve_refuse(&job->problem, 500, NULL, NULL, "no memory");
    if (!status && !choice->finish)
        choice->finish = "length";
}

/* ---- what can be sent ---- */

/* Bytes of a character that has begun at the end and lacks some. */
static size_t begun_character(const char *text, size_t count)
{
    for (size_t back = 1; back <= 3 && back <= count; back++) {
        const unsigned char byte = (unsigned char)text[count - back];
        const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
        if (byte < 0x80 || byte >= 0xc0)
            return length > back ? back : 0;
    }
    return 0;
}

/* Bytes at the end with which a stop may begin. */
static size_t begun_stop(const struct serve_form *form, const char *text, size_t count)
{
    size_t most = 0;
    for (size_t i = 0; i < form->stop_count; i++) {
        const size_t length = strlen(form->stops[i]);
        size_t begun = length - 1 < count ? length - 1 : count;
        while (begun > most && memcmp(text + count - begun, form->stops[i], begun) != 0)
            begun--;
        most = begun > most ? begun : most;
    }
    return most;
}

/* ---- objects ---- */

static json_t *text_json(const struct serve_choice *choice, size_t from, size_t to)
{
    return language_json_text(choice->text.data ? choice->text.data + from : "", to - from);
}

static json_t *usage_json(const struct serve_job *job)
{
    size_t prompt = 0, answer = 0;
    for (size_t i = 0; i < job->form.prompt_count; i++)
        prompt += job->form.prompts[i].count;
    for (size_t i = 0; i < job->count; i++)
        answer += job->choices[i].tokens;
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)prompt, "completion_tokens",
                     (json_int_t)answer, "total_tokens", (json_int_t)prompt + (json_int_t)answer);
}

/* With its choices; `usage` may be NULL. */
static json_t *answer_json(const struct serve_job *job, json_t *choices, json_t *usage)
{
    const char *kind = !job->form.chat    ? "text_completion"
                       : job->form.stream ? "chat.completion.chunk"
                                          : "chat.completion";
    json_t *answer =
        json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", job->id, "object", kind, "created",
                  (json_int_t)job->created, "model", job->form.model->name, "choices", choices);
    if (usage)
        json_object_set_new(answer, "usage", usage);
    return answer;
}

static void send_event(struct serve_job *job, json_t *event)
{
    kiln__text_add_bytes(&job->out, "data: ", 6);
    serve_text_json(&job->out, event);
    kiln__text_add_bytes(&job->out, "\n\n", 2);
}

/* What a message has more; the first part, though it has no text, says whose it is. `text` is given
 * back. */
static json_t *delta_json(json_t *text, bool is_first)
{
    json_t *delta = text ? json_pack("{s:o}", "content", text) : json_object();
    if (is_first)
        json_object_set_new(delta, "role", json_string("assistant"));
    return delta;
}

/* A part of a stream: of its text, up to `end`, or its end. `text` is given back. */
static void send_part(struct serve_job *job, struct serve_choice *choice, json_t *text, size_t end,
                      const char *finish)
{
    const json_int_t index = choice - job->choices;
    json_t *part = job->form.chat ? delta_json(text, !choice->sent) : text ? text : json_string("");
    json_t *logprobs = finish ? json_null() : serve_logprobs_json(job, choice, end);
    json_t *one = json_pack("{s:I, s:o, s:o, s:o}", "index", index,
                            job->form.chat ? "delta" : "text", part, "logprobs", logprobs,
                            "finish_reason", finish ? json_string(finish) : json_null());
    send_event(job, answer_json(job, json_pack("[o]", one), NULL));
}

void serve_choice_send(struct serve_job *job, struct serve_choice *choice)
{
    const char *text = choice->text.data;
    size_t end = choice->text.length;
    if (!choice->finish && end)
        end -= begun_stop(&job->form, text, end);
    if (!choice->finish && end)
        end -= begun_character(text, end);
    if (end > choice->sent) {
        send_part(job, choice, text_json(choice, choice->sent, end), end, NULL);
        choice->sent = end;
    }
    if (choice->finish)
        send_part(job, choice, NULL, end, choice->finish);
}

static json_t *whole_choice(struct serve_job *job, size_t index)
{
    struct serve_choice *choice = &job->choices[index];
    json_t *text = text_json(choice, 0, choice->text.length);
    json_t *logprobs = serve_logprobs_json(job, choice, choice->text.length);
    return job->form.chat ? json_pack("{s:I, s:{s:s, s:o}, s:o, s:s}", "index", (json_int_t)index,
                                      "message", "role", "assistant", "content", text, "logprobs",
                                      logprobs, "finish_reason", choice->finish)
                          : json_pack("{s:I, s:o, s:o, s:s}", "index", (json_int_t)index, "text",
                                      text, "logprobs", logprobs, "finish_reason", choice->finish);
}

static void finish_whole(struct serve_job *job)
{
    json_t *choices = json_array();
    if (job->problem.status) {
        json_decref(choices);
        serve_text_json(&job->out, serve_problem_json(&job->problem));
        return;
    }
    for (size_t i = 0; i < job->count; i++)
        json_array_append_new(choices, whole_choice(job, i));
    serve_text_json(&job->out, answer_json(job, choices, usage_json(job)));
}

void serve_texts_write(struct serve_job *job)
{
    if (!job->form.stream) {
        finish_whole(job);
        return;
    }
    if (job->problem.status)
        send_event(job, serve_problem_json(&job->problem));
    else if (job->form.usage)
        send_event(job, answer_json(job, json_array(), usage_json(job)));
    kiln__text_add_bytes(&job->out, "data: [DONE]\n\n", 14);
}
