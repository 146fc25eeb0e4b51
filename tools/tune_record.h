/* SPDX-License-Identifier: Apache-2.0 */
/* What `kiln tune` keeps of a device, and the lines of text that say it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kiln/kiln.h>

enum { MOST_TUNABLES = 32, MOST_TUNED = 256, MOST_NOTES = 32767, MOST_RECORD = 65535 };

/* What is kept: the values of parameters, of the device and of single works, and what was measured
 * for them. */
struct tune_record {
    kiln_tunable tunables[MOST_TUNABLES]; /* `value` is the device's */
    size_t count;
    struct tuned_work {
        char name[96];
        unsigned values[MOST_TUNABLES]; /* 0: the device's */
    } works[MOST_TUNED];
    size_t works_count;
    char notes[MOST_NOTES + 1]; /* lines "# name value: 1.02 of the time", "# WORK: name value: " */
};

/* One without values. */
kiln_status tune_record_begin(kiln_context *context, struct tune_record *record);

/* What the context's device has kept; values that are not kept are the usual ones. */
kiln_status tune_record_recall(kiln_context *context, struct tune_record *record);
kiln_status tune_record_remember(kiln_context *context, const struct tune_record *record);

/* Takes over what a text says; a line that is not understood is named. False: there was one. */
bool tune_record_read(const char *text, struct tune_record *record);

/* Values that are not the usual ones, and the notes. */
void tune_record_write(const struct tune_record *record, char text[MOST_RECORD + 1]);

void tune_record_note(struct tune_record *record, const char *line, size_t length);
bool tune_record_has_note(const struct tune_record *record, const char *start);

/* The place of a value: of `work`, or of the device where that is NULL. NULL: the record is full.
 */
unsigned *tune_record_value(struct tune_record *record, const char *work, size_t tunable);
