/* SPDX-License-Identifier: Apache-2.0 */
#include "tune_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static kiln_tunable *find_tunable(struct tune_record *record, const char *name, size_t length)
{
    for (size_t i = 0; i < record->count; i++)
        if (strlen(record->tunables[i].name) == length &&
            !strncmp(record->tunables[i].name, name, length))
            return &record->tunables[i];
    return NULL;
}

static bool is_candidate(const kiln_tunable *tunable, unsigned long value)
{
    for (size_t i = 0; i < tunable->count; i++)
        if (tunable->candidates[i] == value)
            return true;
    return false;
}

static kiln_status begin_record(kiln_context *context, struct tune_record *record)
{
    kiln_status status = KILN_OK;
    *record = (struct tune_record){0};
    while (record->count < MOST_TUNABLES) {
        kiln_tunable *tunable = &record->tunables[record->count];
        status = kiln_context_get_tunable(context, record->count, tunable);
        if (status || !tunable->name)
            break;
        tunable->value = tunable->usual;
        record->count++;
    }
    return status;
}

void tune_record_note(struct tune_record *record, const char *line, size_t length)
{
    size_t used = strlen(record->notes);
    if (used + length + 2 < sizeof record->notes / 2)
        sprintf(record->notes + used, "%.*s\n", (int)length, line);
}

bool tune_record_read(const char *text, struct tune_record *record)
{
    bool understood = true;
    while (*text) {
        size_t length = strcspn(text, "\n"), name = strcspn(text, " \n");
        kiln_tunable *tunable = find_tunable(record, text, name);
        char *end = NULL;
        unsigned long value = tunable ? strtoul(text + name, &end, 10) : 0;
        if (*text == '#')
            tune_record_note(record, text, length);
        else if (tunable && end == text + length && is_candidate(tunable, value))
            tunable->value = (unsigned)value;
        else if (length) {
            fprintf(stderr, "kiln tune: \"%.*s\" is not understood and does not count\n",
                    (int)length, text);
            understood = false;
        }
        text += length + (text[length] == '\n');
    }
    return understood;
}

kiln_status tune_record_recall(kiln_context *context, struct tune_record *record)
{
    char *text = NULL;
    kiln_status status = begin_record(context, record);
    if (!status)
        status = kiln_context_recall(context, KILN_TUNED, &text);
    if (!status && text)
        tune_record_read(text, record);
    kiln_free(text);
    return status;
}

void tune_record_write(const struct tune_record *record, char text[MOST_RECORD + 1])
{
    size_t at = 0;
    *text = 0;
    for (size_t i = 0; i < record->count; i++)
        if (record->tunables[i].value != record->tunables[i].usual)
            at += (size_t)snprintf(text + at, MOST_RECORD + 1 - at, "%s %u\n",
                                   record->tunables[i].name, record->tunables[i].value);
    snprintf(text + at, MOST_RECORD + 1 - at, "%s", record->notes);
}

kiln_status tune_record_remember(kiln_context *context, const struct tune_record *record)
{
    char text[MOST_RECORD + 1];
    tune_record_write(record, text);
    return kiln_context_remember(context, KILN_TUNED, text);
}

void tune_record_words(const struct tune_record *record, const kiln_tunable *changed,
                       unsigned value, char *words, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < record->count && at < size; i++) {
        const kiln_tunable *tunable = &record->tunables[i];
        at += (size_t)snprintf(words + at, size - at, "%s%s=%u", i ? "," : "", tunable->name,
                               tunable == changed ? value : tunable->value);
    }
}
