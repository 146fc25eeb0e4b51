/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that grow, and what is wrong with a request as JSON. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <string.h>

#include "language.h"
#include "serve.h"
#include "util/format.h"

static int add_part(const char *bytes, size_t count, void *text)
{
    kiln__text_add_bytes(text, bytes, count);
    return 0;
}

void serve_text_json(struct kiln__text *text, json_t *json)
{
    if (!json || json_dump_callback(json, add_part, text, JSON_COMPACT | JSON_ENCODE_ANY))
        text->failed = true;
    json_decref(json);
}

/* ---- problems ---- */

static const char *type_of(unsigned status)
{
    return status >= 500   ? "server_error"
           : status == 429 ? "rate_limit_error"
                           : "invalid_request_error";
}

bool serve_refuse(struct serve_problem *problem, unsigned status, const char *code,
                  const char *param, const char *format, ...)
{
    va_list arguments;
    *problem = (struct serve_problem){.status = status, .type = type_of(status), .code = code};
    strncpy(problem->param, param ? param : "", sizeof problem->param - 1);
    va_start(arguments, format);
    kiln__vformat(problem->message, sizeof problem->message, format, arguments);
    va_end(arguments);
    return false;
}

/* Who asked is to ask for less, later, or for something else. */
bool serve_refuse_kiln(struct serve_problem *problem, kiln_status status)
{
    static const struct {
        kiln_status status;
        unsigned http;
        const char *code;
    } rows[] = {{KILN_INVALID_ARGUMENT, 400, NULL},
                {KILN_UNSUPPORTED, 400, NULL},
                {KILN_TOO_LARGE, 400, "context_length_exceeded"},
                {KILN_BUSY, 429, "rate_limit_exceeded"},
                {KILN_TIMED_OUT, 503, "timed_out"},
                {KILN_CANCELLED, 503, "cancelled"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].status == status)
            return serve_refuse(problem, rows[i].http, rows[i].code, NULL, "%s", kiln_last_error());
    return serve_refuse(problem, 500, NULL, NULL, "%s", kiln_last_error());
}

json_t *serve_problem_json(const struct serve_problem *problem)
{
    return json_pack("{s:{s:o, s:s, s:o, s:s?}}", "error", "message",
                     language_json_text(problem->message, strlen(problem->message)), "type",
                     problem->type, "param",
                     *problem->param ? language_json_text(problem->param, strlen(problem->param))
                                     : json_null(),
                     "code", problem->code);
}
