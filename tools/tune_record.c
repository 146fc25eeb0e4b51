/* SPDX-License-Identifier: Apache-2.0 */
/* A device's tuning record: notes, values, parsing, writing. */
#include "tune_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `count` where there is none. */
static size_t find_tunable(const struct tune_record *record, const char *name, size_t length)
{
    size_t i = 0;
    while (i < record->count && (strlen(record->tunables[i].name) != length ||
                                 strncmp(record->tunables[i].name, name, length) != 0))
        i++;
    return i;
}

static bool is_candidate(const kiln_tunable *tunable, unsigned long value)
{
    for (size_t i = 0; i < tunable->count; i++)
        if (tunable->candidates[i] == value)
            return true;
    return false;
}

kiln_status tune_record_begin(kiln_context *context, struct tune_record *record)
{
    kiln_status status = KILN_OK;
    memset(record, 0, sizeof *record);
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
    if (used + length + 2 < sizeof record->notes)
        sprintf(record->notes + used, "%.*s\n", (int)length, line);
}

bool tune_record_has_note(const struct tune_record *record, const char *start)
{
    return strstr(record->notes, start);
}

unsigned *tune_record_value(struct tune_record *record, const char *work, size_t tunable)
{
    size_t i = 0;
    if (!work)
        return &record->tunables[tunable].value;
    while (i < record->works_count && strcmp(record->works[i].name, work) != 0)
        i++;
    if (i == MOST_TUNED)
        return NULL;
    if (i == record->works_count) {
        snprintf(record->works[i].name, sizeof record->works[i].name, "%s", work);
        record->works_count++;
    }
    return &record->works[i].values[tunable];
}

/* ---- reading ---- */

/* "name value" at the start of `text`, `length` long. */
static bool read_value(const char *text, size_t length, const char *work,
                       struct tune_record *record)
{
    size_t name = strcspn(text, " \n"), i = find_tunable(record, text, name);
    char *end = NULL;
    unsigned long value = i < record->count ? strtoul(text + name, &end, 10) : 0;
    unsigned *place = NULL;
    if (end == text + length && is_candidate(&record->tunables[i], value))
        place = tune_record_value(record, work, i);
    if (place)
        *place = (unsigned)value;
    return place;
}

/* "WORK: name value, name value" */
static bool read_work(const char *line, size_t length, struct tune_record *record)
{
    char work[96];
    size_t name = strcspn(line, ":\n"), at = name + 2;
    bool understood = name < sizeof work && at < length;
    snprintf(work, sizeof work, "%.*s", (int)name, line);
    while (understood && at < length) {
        size_t end = at + strcspn(line + at, ",\n");
        understood = read_value(line + at, end - at, work, record);
        at = end + 2;
    }
    return understood;
}

bool tune_record_read(const char *text, struct tune_record *record)
{
    bool understood = true;
    while (*text) {
        size_t length = strcspn(text, "\n");
        if (*text == '#')
            tune_record_note(record, text, length);
        else if (length && !read_value(text, length, NULL, record) &&
                 !read_work(text, length, record)) {
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
    kiln_status status = tune_record_begin(context, record);
    if (!status)
        status = kiln_context_recall(context, KILN_TUNED, &text);
    if (!status && text)
        tune_record_read(text, record);
    kiln_free(text);
    return status;
}

/* ---- writing ---- */

struct writing {
    char *text;
    size_t used;
    bool full; /* nothing follows what had no room */
};

static void add_line(struct writing *writing, const char *line)
{
    size_t length = strlen(line);
    writing->full = writing->full || writing->used + length > MOST_RECORD;
    if (writing->full)
        return;
    memcpy(writing->text + writing->used, line, length + 1);
    writing->used += length;
}

static void write_work(const struct tune_record *record, const struct tuned_work *work,
                       struct writing *writing)
{
    char line[512];
    int at = 0;
    for (size_t i = 0; i < record->count && at < 400; i++)
        if (work->values[i])
            at += snprintf(line + at, sizeof line - (size_t)at, "%s%s%s %u", at ? "" : work->name,
                           at ? ", " : ": ", record->tunables[i].name, work->values[i]);
    if (!at)
        return;
    snprintf(line + at, sizeof line - (size_t)at, "\n");
    add_line(writing, line);
}

void tune_record_write(const struct tune_record *record, char text[MOST_RECORD + 1])
{
    struct writing writing = {.text = text};
    *text = 0;
    for (size_t i = 0; i < record->count; i++) {
        char line[80];
        const kiln_tunable *tunable = &record->tunables[i];
        snprintf(line, sizeof line, "%s %u\n", tunable->name, tunable->value);
        if (tunable->value != tunable->usual)
            add_line(&writing, line);
    }
    for (size_t i = 0; i < record->works_count; i++)
        write_work(record, &record->works[i], &writing);
    add_line(&writing, record->notes);
}

kiln_status tune_record_remember(kiln_context *context, const struct tune_record *record)
{
    char *text = malloc(MOST_RECORD + 1);
    if (!text)
        return KILN_OUT_OF_HOST_MEMORY;
    tune_record_write(record, text);
    kiln_status status = kiln_context_remember(context, KILN_TUNED, text);
    free(text);
    return status;
}
