/* SPDX-License-Identifier: Apache-2.0 */
/* A record is a text of lines "name value"; a line that starts with # says what was measured. */
#include "session/tuned.h"

#include <string.h>

#include "cache/note.h"
#include "device/tunables.h"
#include "util/environment.h"
#include "util/log.h"

/* ---- reading ---- */

static void apply_record(const struct kiln__device *device, const char *record,
                         struct kiln__traits *traits)
{
    for (const char *line = record; *line;) {
        size_t length = strcspn(line, "\n");
        if (length && *line != '#' && !kiln__tunable_apply(device, line, traits))
            KILN__LOG(KILN__LOG_ERROR, "%s: \"%.*s\" is not understood and does not count",
                      KILN_TUNED, (int)(length < 100 ? length : 100), line);
        line += length + (line[length] == '\n');
    }
}

static kiln_status apply_variable(const char *call, const struct kiln__device *device,
                                  const char *value, struct kiln__traits *traits)
{
    if (!strcmp(value, "off"))
        return KILN_OK;
    for (const char *word = value; *word;) {
        size_t length = strcspn(word, ",");
        if (!kiln__tunable_apply(device, word, traits)) {
            struct kiln__text known = {0};
            kiln__tunables_list(device, &known);
            kiln_status status = kiln__fail(
                NULL, KILN_INVALID_ARGUMENT, "%s: KILN_TUNE has \"%.*s\", none of off, %s", call,
                (int)(length < 64 ? length : 64), word, known.data ? known.data : "those known");
            kiln__text_free(&known);
            return status;
        }
        word += length + (word[length] == ',');
    }
    return KILN_OK;
}

kiln_status kiln__tuned_choose(const char *call, kiln_context *context)
{
    struct kiln__device *device = &context->runtime.device;
    const char *variable = kiln__environment("KILN_TUNE");
    char record[KILN__LONGEST_NOTE + 1];
    kiln_status status = KILN_OK;
    context->traits = *device->traits;
    if (variable)
        status = apply_variable(call, device, variable, &context->traits);
    else if (kiln__note_get(context->runtime.programs, KILN_TUNED, record, sizeof record))
        apply_record(device, record, &context->traits);
    device->traits = &context->traits;
    return status;
}

/* ---- asking ---- */

kiln_status kiln_context_get_tunable(const kiln_context *context, size_t number,
                                     kiln_tunable *tunable)
{
    if (!context || !tunable)
        return kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is NULL", __func__,
                          context ? "tunable" : "context");
    const struct kiln__device *device = &context->runtime.device;
    const struct kiln__tunable *row = kiln__tunable(device, number);
    *tunable = (kiln_tunable){0};
    if (!row)
        return KILN_OK;
    tunable->name = row->name;
    tunable->purpose = row->purpose;
    tunable->value = kiln__tunable_get(&context->traits, row);
    tunable->usual = kiln__tunable_get(kiln__traits_for(&device->info), row);
    for (size_t i = 0; row->candidates[i]; i++)
        if (kiln__tunable_takes(device, row, row->candidates[i]))
            tunable->candidates[tunable->count++] = row->candidates[i];
    return KILN_OK;
}
