/* SPDX-License-Identifier: Apache-2.0 */
/* A record is a text of lines "name value", which are the device's, and "work: name value, name
 * value", which are those of one work (lower/workload.h); a line that starts with # says what was
 * measured. */
#include "tune/tuning_record.h"

#include <stdlib.h>
#include <string.h>

#include "programs/device_note.h"
#include "util/environment.h"
#include "util/log.h"
#include "util/structure.h"

/* ---- reading ---- */

/* Another record's values go, and plans that were made by them are not found again. */
static void tuning_record_begin(kiln_context *context)
{
    context->traits = *kiln__traits_for(&context->runtime.device.info);
    context->tuning.works.count = 0;
    if (context->plan_cache)
        kiln__plan_cache_forget(context->plan_cache);
}

static kiln_status apply_line(const char *line, size_t length, kiln_context *context)
{
    const struct kiln__device *device = &context->runtime.device;
    if (!length || *line == '#' || kiln__tunable_apply(device, line, &context->traits))
        return KILN_OK;
    return kiln__tuning_add(device, line, length, &context->tuning);
}

/* Lines that are not understood do not count, and are logged. The first failure's status, and
 * *wrong is its line. */
static kiln_status apply_record(const char *record, kiln_context *context, const char **wrong)
{
    kiln_status first = KILN_OK;
    for (const char *line = record; *line;) {
        size_t length = strcspn(line, "\n");
        kiln_status status = apply_line(line, length, context);
        if (status == KILN_INVALID_ARGUMENT)
            KILN__LOG(KILN__LOG_ERROR, "%s: \"%.*s\" is not understood and does not count",
                      KILN_TUNED, (int)(length < 100 ? length : 100), line);
        if (status && !first) {
            first = status;
            *wrong = line;
        }
        line += length + (line[length] == '\n');
    }
    return first;
}

static void recall_record(kiln_context *context)
{
    char *record = malloc(KILN__LONGEST_NOTE + 1);
    const char *wrong;
    if (record && kiln__device_note_get(context->runtime.programs, KILN_TUNED, record,
                                        KILN__LONGEST_NOTE + 1))
        apply_record(record, context, &wrong);
    free(record);
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

kiln_status kiln__tuning_load(const char *call, kiln_context *context)
{
    const char *variable = kiln__environment("KILN_TUNE");
    tuning_record_begin(context);
    context->runtime.device.traits = &context->traits;
    if (variable)
        return apply_variable(call, &context->runtime.device, variable, &context->traits);
    recall_record(context);
    return KILN_OK;
}

kiln_status kiln_context_tune(kiln_context *context, const char *record)
{
    KILN__RETURN_IF_NULL(NULL, __func__, context, record);
    tuning_record_begin(context);
    const char *wrong = "";
    kiln_status status = apply_record(record, context, &wrong);
    size_t length = strcspn(wrong, "\n");
    if (status == KILN_OUT_OF_HOST_MEMORY)
        return kiln__fail(NULL, status, "%s: no memory", __func__);
    return status ? kiln__fail(NULL, status, "%s: \"%.*s\" is not understood and does not count",
                               __func__, (int)(length < 100 ? length : 100), wrong)
                  : KILN_OK;
}

/* ---- asking ---- */

kiln_status(kiln_context_get_tunable)(const kiln_context *context, size_t number,
                                      kiln_tunable *tunable, size_t size)
{
    kiln_tunable own = {0};
    KILN__RETURN_IF_NULL(NULL, __func__, context, tunable);
    const struct kiln__device *device = &context->runtime.device;
    const struct kiln__tunable *row = kiln__tunable(device, number);
    if (row) {
        own.name = row->name;
        own.purpose = row->purpose;
        own.value = kiln__tunable_get(&context->traits, row);
        own.usual = kiln__tunable_get(kiln__traits_for(&device->info), row);
        own.of_works = row->of_works;
    }
    for (size_t i = 0; row && row->candidates[i]; i++)
        if (kiln__tunable_takes(device, row, row->candidates[i]))
            own.candidates[own.count++] = row->candidates[i];
    kiln__structure_fill(tunable, size, &own, sizeof own);
    return KILN_OK;
}
