/* SPDX-License-Identifier: Apache-2.0 */
/* `kiln chat`: a conversation with a language model, line by line. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "language.h"
#include "suggest.h"
#include "tool.h"

enum { USUAL_TOKENS = 1024 };

static const char command[] = "kiln chat";

struct chat_request {
    struct language_request language;
    kiln_lm_chat_options options;
    const char *system;
};

/* Messages so far; the first one is the system's, if there is one. */
struct conversation {
    const struct chat_request *request;
    const struct language *language;
    bool is_terminal; /* somebody sits there */
    size_t count, capacity;
    kiln_lm_message *messages; /* contents are their own */
};

/* Set by ctrl-C, which also writes into the pipe: a wait for a line ends whenever it comes, and
 * whichever thread it comes to. */
static volatile sig_atomic_t interrupted;
static int wake[2] = {-1, -1};

static void interrupt(int number)
{
    (void)number;
    const int error = errno;
    interrupted = 1;
    if (write(wake[1], "", 1) < 0)
        errno = error; /* the pipe is full: the reader is woken already */
}

static bool catch_interrupts(void)
{
    const struct sigaction action = {.sa_handler = interrupt};
    return !pipe2(wake, O_CLOEXEC | O_NONBLOCK) && !sigaction(SIGINT, &action, NULL);
}

static void forget_interrupts(void)
{
    char bytes[64];
    while (read(wake[0], bytes, sizeof bytes) > 0)
        continue;
}

static bool fail(const char *problem)
{
    fprintf(stderr, "%s: %s\n", command, problem);
    return false;
}

/* ---- messages ---- */

/* Takes the content, which may be NULL for want of memory. */
static bool add_message(struct conversation *conversation, const char *role, char *content)
{
    if (content && conversation->count == conversation->capacity) {
        const size_t capacity = 2 * conversation->capacity + 8;
        kiln_lm_message *grown =
            realloc(conversation->messages, capacity * sizeof *conversation->messages);
        if (grown) {
            conversation->messages = grown;
            conversation->capacity = capacity;
        }
    }
    if (!content || conversation->count == conversation->capacity) {
        free(content);
        return fail("no memory");
    }
    conversation->messages[conversation->count++] = (kiln_lm_message){role, content};
    return true;
}

static void drop_messages(struct conversation *conversation, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        free((char *)conversation->messages[i].content);
    if (to < conversation->count)
        memmove(conversation->messages + from, conversation->messages + to,
                (conversation->count - to) * sizeof *conversation->messages);
    conversation->count -= to - from;
}

/* The oldest question and its answer go. False: there is but one question. */
static bool forget(struct conversation *conversation)
{
    const size_t first = conversation->request->system != NULL;
    if (conversation->count < first + 3)
        return false;
    drop_messages(conversation, first, first + 2);
    return true;
}

/* ---- answers ---- */

/* The model sees the conversation, or as much of its end as leaves room for an answer. */
static bool feed(struct conversation *conversation)
{
    kiln_lm_session *session = conversation->language->session;
    const size_t context = kiln_lm_session_context(session);
    bool has_forgotten = false;
    for (;;) {
        int32_t *tokens;
        size_t count;
        if (kiln_lm_chat_tokens(conversation->language->lm, conversation->messages,
                                conversation->count, &conversation->request->options, &tokens,
                                &count))
            return language_complain(command);
        const bool fits = count < context;
        const kiln_status status = fits ? kiln_lm_session_rewrite(session, tokens, count) : KILN_OK;
        kiln_free(tokens);
        if (has_forgotten && fits)
            fprintf(stderr, "(the context of %zu tokens is full: what is oldest is forgotten)\n",
                    context);
        if (fits)
            return !status || language_complain(command);
        if (!forget(conversation))
            return fail("this is more than the context has room for");
        has_forgotten = true;
    }
}

/* Writes tokens until the model ends the answer, or somebody does; `text` collects them. */
static bool go_on(const struct conversation *conversation, FILE *text, size_t *tokens)
{
    kiln_lm_session *session = conversation->language->session;
    const kiln_lm *lm = conversation->language->lm;
    while (!interrupted && *tokens < conversation->request->language.most &&
           kiln_lm_session_length(session) < kiln_lm_session_context(session)) {
        int32_t token;
        size_t bytes;
        if (kiln_lm_next(session, &token))
            return language_complain(command);
        if (kiln_lm_is_end(lm, token))
            break;
        ++*tokens;
        const char *part = kiln_lm_token_text(lm, token, &bytes);
        fwrite(part, 1, bytes, text);
        if (fwrite(part, 1, bytes, stdout) != bytes || fflush(stdout))
            return fail("standard output could not be written");
    }
    return true;
}

/* Answer the last message. What ctrl-C has ended stays as far as it was. */
static bool answer(struct conversation *conversation)
{
    char *content = NULL;
    size_t length = 0, tokens = 0;
    interrupted = 0;
    if (!feed(conversation))
        return false;
    const double began = language_now();
    FILE *text = open_memstream(&content, &length);
    if (!text)
        return fail("no memory");
    bool fine = go_on(conversation, text, &tokens);
    const double seconds = language_now() - began;
    if (fclose(text) && fine)
        fine = fail("no memory");
    if (!fine) {
        free(content);
        return false;
    }
    putchar('\n');
    fflush(stdout);
    if (conversation->is_terminal)
        fprintf(stderr, "(%zu tokens, %.3g tokens/s)\n", tokens,
                seconds > 0 ? (double)tokens / seconds : 0);
    return add_message(conversation, "assistant", content);
}

/* ---- lines ---- */

/* Asks until somebody begins to answer: ctrl-C drops half a line and asks anew. */
static void prompt(void)
{
    struct pollfd either[] = {{STDIN_FILENO, POLLIN, 0}, {wake[0], POLLIN, 0}};
    do {
        if (either[1].revents)
            fputc('\n', stderr);
        forget_interrupts();
        fputs("> ", stderr);
        while (poll(either, 2, -1) < 0 && errno == EINTR)
            continue;
    } while (either[1].revents);
}

/* A line without its end, which the caller frees; NULL: there are no more. */
static char *read_line(const struct conversation *conversation)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    do {
        if (conversation->is_terminal)
            prompt();
        errno = 0;
        clearerr(stdin);
        length = getline(&line, &capacity, stdin);
    } while (length < 0 && errno == EINTR);
    if (length < 0) {
        free(line);
        return NULL;
    }
    if (length && line[length - 1] == '\n')
        line[length - 1] = '\0';
    return line;
}

/* A question that cannot be answered is taken back, so that another may be asked by who sits there.
 */
static bool talk(struct conversation *conversation)
{
    char *line;
    while ((line = read_line(conversation)) != NULL) {
        if (!*line) {
            free(line);
            continue;
        }
        if (!add_message(conversation, "user", line))
            return false;
        if (answer(conversation))
            continue;
        if (!conversation->is_terminal || ferror(stdout))
            return false;
        drop_messages(conversation, conversation->count - 1, conversation->count);
    }
    if (conversation->is_terminal)
        fputc('\n', stderr);
    return !ferror(stdin) || fail("standard input cannot be read");
}

static int run(const struct chat_request *request)
{
    struct language language = {0};
    struct conversation conversation = {
        .request = request, .language = &language, .is_terminal = isatty(STDIN_FILENO) != 0};
    bool fine = !request->system || add_message(&conversation, "system", strdup(request->system));
    fine = fine && language_open(command, &request->language, &language);
    if (fine && conversation.is_terminal && !catch_interrupts())
        fine = fail("ctrl-C cannot be caught");
    fine = fine && talk(&conversation);
    language_close(&language);
    drop_messages(&conversation, 0, conversation.count);
    free(conversation.messages);
    return fine ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- the command line ---- */

enum { NO_THINKING = 256 };

static const struct argp_option options[] = {
    {"system", 'S', "TEXT", 0, "What the model is told before the conversation", 0},
    {"no-thinking", NO_THINKING, NULL, 0, "A model that thinks before an answer does not", 0},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct chat_request *request = state->input;
    switch (key) {
    case ARGP_KEY_INIT: state->child_inputs[0] = &request->language; return 0;
    case 'S': request->system = arg; return 0;
    case NO_THINKING: request->options.thinking = -1; return 0;
    case ARGP_KEY_ARG:
        if (request->language.model)
            argp_error(state, "\"%s\" is one argument too many", arg);
        request->language.model = arg;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "MODEL is missing"); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int kiln__tool_chat(int argc, char **argv)
{
    static const char doc[] =
        "Talk with a language model: each line of standard input is a message, the answer is "
        "written "
        "as it is made. MODEL is a GGUF file, or a folder of Hugging Face's transformers, or one "
        "in "
        "onnxruntime-genai's form, with a "
        "chat template. On a terminal ctrl-C ends an answer, ctrl-D the conversation.";
    static const struct argp_child children[] = {{&language_argp, 0, NULL, 0}, {0}};
    struct argp argp = {
        .options = options, .parser = parse, .args_doc = "MODEL", .doc = doc, .children = children};
    struct chat_request request = {0};
    language_begin(&request.language, USUAL_TOKENS);
    kiln_lm_chat_options_init(&request.options);
    kiln__tool_parse(&argp, argc, argv, 0, &request);
    return run(&request);
}
