/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of a template begins and ends with. */
#include <stdlib.h>
#include <string.h>

#include "lm/jinja_parts.h"

/* New lines are \n, and the last one of all is not the text's. */
static void read_source(struct kiln__jinja *j)
{
    const char *given = j->request->source;
    const size_t length = strlen(given);
    char *source = kiln__jinja_take(j, length + 1);
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        if (given[i] != '\r')
            source[count++] = given[i];
        else if (given[i + 1] != '\n')
            source[count++] = '\n';
    if (count && source[count - 1] == '\n')
        count--;
    j->source = (struct kiln__jinja_text){source, NULL, count};
}

static struct kiln__jinja_value list_messages(struct kiln__jinja *j)
{
    const struct kiln__jinja_request *request = j->request;
    struct kiln__jinja_value list = kiln__jinja_new_list(j);
    size_t longest = 0;
    for (size_t i = 0; i < request->count; i++) {
        const size_t length = strlen(request->messages[i].content);
        longest = length > longest ? length : longest;
    }
    char *given = memset(kiln__jinja_take(j, longest), 1, longest);
    for (size_t i = 0; i < request->count; i++) {
        struct kiln__jinja_value message = kiln__jinja_new_dict(j);
        struct kiln__jinja_text content = kiln__jinja_word(request->messages[i].content);
        content.given = given;
        kiln__jinja_put(j, message.dict, kiln__jinja_word("role"),
                        kiln__jinja_of_text(kiln__jinja_word(request->messages[i].role)));
        kiln__jinja_put(j, message.dict, kiln__jinja_word("content"), kiln__jinja_of_text(content));
        kiln__jinja_add(j, list.list, message);
    }
    return list;
}

static void set_all(struct kiln__jinja *j)
{
    const struct kiln__jinja_request *request = j->request;
    kiln__jinja_set(j, kiln__jinja_word("messages"), list_messages(j));
    kiln__jinja_set(j, kiln__jinja_word("bos_token"), kiln__jinja_of_text(request->begin));
    kiln__jinja_set(j, kiln__jinja_word("eos_token"), kiln__jinja_of_text(request->end));
    kiln__jinja_set(j, kiln__jinja_word("add_generation_prompt"),
                    kiln__jinja_truth(request->answer));
    if (request->thinking)
        kiln__jinja_set(j, kiln__jinja_word("enable_thinking"),
                        kiln__jinja_truth(request->thinking > 0));
}

/* Copies of the text and of what was given of it, from one room. */
static void hand_out(struct kiln__jinja *j, char **bytes, char **given, size_t *length)
{
    const struct kiln__jinja_text text = kiln__jinja_built(j->output);
    *bytes = malloc(text.length + 1);
    *given = malloc(text.length + 1);
    if (!*bytes || !*given) {
        free(*bytes);
        free(*given);
        *bytes = *given = NULL;
        kiln__jinja_fail(j, KILN_OUT_OF_HOST_MEMORY, "no memory");
    }
    *length = text.length;
    memcpy(*bytes, text.bytes, text.length);
    if (text.length)
        memcpy(*given, text.given, text.length);
    (*bytes)[text.length] = '\0';
}

static void render(struct kiln__jinja *j, char **bytes, char **given, size_t *length)
{
    j->output = &j->text;
    read_source(j);
    const struct kiln__jinja_node *body = kiln__jinja_parse(j);
    set_all(j);
    kiln__jinja_run(j, body);
    hand_out(j, bytes, given, length);
}

/* What `j` is made of may change behind setjmp(), since it is not this function's own. */
static void guard(struct kiln__jinja *j, char **bytes, char **given, size_t *length)
{
    if (!setjmp(j->end))
        render(j, bytes, given, length);
}

kiln_status kiln__jinja_render(const struct kiln__jinja_request *request, char **bytes,
                               char **given, size_t *length)
{
    enum { LEAST = 1 << 25, TIMES = 32 }; /* bytes that a run may take, and of each given one */
    struct kiln__jinja j = {.request = request, .left = LEAST};
    *bytes = *given = NULL;
    *length = 0;
    for (size_t i = 0; i < request->count; i++)
        j.left += TIMES * strlen(request->messages[i].content);
    guard(&j, bytes, given, length);
    kiln__jinja_free_rooms(&j);
    return j.status;
}
