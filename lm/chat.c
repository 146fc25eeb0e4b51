/* SPDX-License-Identifier: Apache-2.0 */
/* Conversations: a chat template makes a text of messages, the tokenizer tokens of the text. */
#include <stdlib.h>
#include <string.h>

#include "lm/error.h"
#include "lm/jinja.h"
#include "lm/model.h"
#include "lm/structure.h"

void(kiln_lm_chat_options_init)(kiln_lm_chat_options *options, size_t size)
{
    static const kiln_lm_chat_options own = KILN_LM_CHAT_OPTIONS_INIT;
    kiln__lm_options_fill(options, size, &own, sizeof own);
}

/* What a conversation becomes. */
struct written {
    char *text, *given;
    size_t length;
};

/* A template may make a control token of it, as "<|" + role + "|>". */
static bool is_role(const char *role)
{
    const size_t length = strspn(role, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_-");
    return length && !role[length];
}

static kiln_status check_messages(const char *call, const kiln_lm_message *messages, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!messages[i].role || !messages[i].content)
            return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: message %zu has %s of NULL", call, i,
                                 messages[i].role ? "a content" : "a role");
        if (!is_role(messages[i].role))
            return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: the role of message %zu is \"%.100s\"",
                                 call, i, messages[i].role);
    }
    return KILN_OK;
}

static kiln_status read_options(const char *call, const kiln_lm *lm,
                                const kiln_lm_chat_options *options, kiln_lm_chat_options *own)
{
    kiln_status status =
        kiln__lm_read_options(call, "KILN_LM_CHAT_OPTIONS_INIT", options, own, sizeof *own);
    if (status)
        return status;
    if (own->thinking < -1 || own->thinking > 1)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: options->thinking is %d", call,
                             own->thinking);
    if (!own->chat_template)
        own->chat_template = lm->template;
    return *own->chat_template ? KILN_OK
                               : kiln__lm_fail(KILN_INVALID_ARGUMENT,
                                               "%s: the model's file has no chat template, and "
                                               "options->chat_template is NULL",
                                               call);
}

static struct kiln__jinja_text text_of(const kiln_lm *lm, int32_t token)
{
    if (token < 0)
        return (struct kiln__jinja_text){"", NULL, 0};
    const struct kiln__token *found = &lm->tokenizer.vocabulary.tokens[token];
    return (struct kiln__jinja_text){found->bytes, NULL, found->length};
}

static kiln_status write_out(const char *call, const kiln_lm *lm, const kiln_lm_message *messages,
                             size_t count, const kiln_lm_chat_options *options,
                             struct written *written)
{
    kiln_lm_chat_options own = KILN_LM_CHAT_OPTIONS_INIT;
    if (!lm || (!messages && count))
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: %s is NULL", call, lm ? "messages" : "lm");
    kiln_status status = read_options(call, lm, options, &own);
    if (!status)
        status = check_messages(call, messages, count);
    if (status)
        return status;
    const struct kiln__jinja_request request = {.call = call,
                                                .source = own.chat_template,
                                                .begin = text_of(lm, lm->tokenizer.begin),
                                                .end = text_of(lm, lm->tokenizer.end),
                                                .messages = messages,
                                                .count = count,
                                                .answer = !own.without_answer,
                                                .thinking = own.thinking};
    return kiln__jinja_render(&request, &written->text, &written->given, &written->length);
}

kiln_status kiln_lm_chat_text(const kiln_lm *lm, const kiln_lm_message *messages, size_t count,
                              const kiln_lm_chat_options *options, char **text)
{
    struct written written = {0};
    if (!text)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_chat_text: text is NULL");
    kiln_status status = write_out("kiln_lm_chat_text", lm, messages, count, options, &written);
    free(written.given);
    *text = written.text;
    return status;
}

/* Whether the template has written the token that a text begins with. */
static bool begins(const kiln_lm *lm, const struct written *written)
{
    const struct kiln__jinja_text begin = text_of(lm, lm->tokenizer.begin);
    return begin.length && begin.length <= written->length &&
           !memcmp(written->text, begin.bytes, begin.length) &&
           !memchr(written->given, 1, begin.length);
}

kiln_status kiln_lm_chat_tokens(const kiln_lm *lm, const kiln_lm_message *messages, size_t count,
                                const kiln_lm_chat_options *options, int32_t **tokens,
                                size_t *token_count)
{
    static const char call[] = "kiln_lm_chat_tokens";
    struct written written = {0};
    if (tokens)
        *tokens = NULL;
    if (!tokens || !token_count)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "%s: %s is NULL", call,
                             tokens ? "token_count" : "tokens");
    kiln_status status = write_out(call, lm, messages, count, options, &written);
    if (!status) {
        const struct kiln__reading reading = {written.text, written.length, true, written.given};
        status = kiln__lm_encode(call, lm, &reading, !begins(lm, &written), tokens, token_count);
    }
    free(written.text);
    free(written.given);
    return status;
}
