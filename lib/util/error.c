/* SPDX-License-Identifier: Apache-2.0 */
/* The first-error-wins message, its speaker ("kiln_add, call 57"), and the thread's last error. */
#include "util/error.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "util/format.h"
#include "util/log.h"

static _Thread_local struct kiln__error last;

static _Thread_local const struct kiln__speaker *speaker;

/* The sentence of kiln_error_set(), if that was called after the last failure of kiln's own. */
static _Thread_local char foreign[4096];

void kiln__error_speaker(const struct kiln__speaker *who)
{
    speaker = who;
}

/* "kiln_add: ..." becomes "kiln_add, call 57: ...". */
static void put_speaker(struct kiln__error *error)
{
    char inner[sizeof error->text];
    size_t length = strlen(speaker->call), size = sizeof error->text;
    memcpy(inner, error->text, sizeof inner);
    bool named = !strncmp(inner, speaker->call, length) && inner[length] == ':';
    int written = snprintf(error->text, size, "%s, call %zu: %s", speaker->call, speaker->number,
                           named ? inner + length + 2 : inner);
    if (speaker->add && written > 0 && (size_t)written < size)
        speaker->add(speaker, error->text + written, size - (size_t)written);
}

kiln_status kiln__fail(struct kiln__error *error, kiln_status status, const char *format, ...)
{
    if (error && error->status)
        return error->status;
    va_list arguments;
    va_start(arguments, format);
    last.status = status;
    kiln__vformat(last.text, sizeof last.text, format, arguments);
    va_end(arguments);
    if (speaker)
        put_speaker(&last);
    *foreign = 0;
    KILN__LOG(KILN__LOG_ERROR, "%s", last.text);
    if (error)
        *error = last;
    return status;
}

kiln_status kiln__check_not_null(struct kiln__error *error, const char *call, const char *names,
                                 const bool *given, size_t count)
{
    size_t i = 0;
    for (; i < count && given[i]; i++)
        names += strcspn(names, ",") + (i + 1 < count ? strlen(", ") : 0);
    return i == count ? KILN_OK
                      : kiln__fail(error, KILN_INVALID_ARGUMENT, "%s: %.*s is NULL", call,
                                   (int)strcspn(names, ","), names);
}

void kiln__error_within(struct kiln__error *error, const char *doing)
{
    char inner[sizeof error->text];
    size_t length = strlen(doing);
    if (!error->status || (!strncmp(error->text, doing, length) && error->text[length] == ':'))
        return;
    memcpy(inner, error->text, sizeof inner);
    int written = snprintf(error->text, sizeof error->text, "%s: ", doing);
    snprintf(error->text + written, sizeof error->text - (size_t)written, "%s", inner);
    last = *error;
    *foreign = 0;
}

const char *kiln_last_error(void)
{
    return *foreign ? foreign : last.text;
}

kiln_status kiln_error_set(kiln_status status, const char *sentence)
{
    char copy[sizeof foreign];
    snprintf(copy, sizeof copy, "%s", sentence ? sentence : "");
    memcpy(foreign, copy, sizeof foreign);
    *last.text = 0;
    KILN__LOG(KILN__LOG_ERROR, "%s", foreign);
    return status;
}

const char *kiln_status_name(kiln_status status)
{
    switch (status) {
#define STATUS_NAME(name, value, text)                                                             \
    case KILN_##name: return #name;
        KILN_STATUS_MAP(STATUS_NAME)
#undef STATUS_NAME
    }
    return "UNKNOWN";
}

const char *kiln_status_text(kiln_status status)
{
    switch (status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case KILN_##name: return text;
        KILN_STATUS_MAP(STATUS_TEXT)
#undef STATUS_TEXT
    }
    return "not a status of kiln";
}
