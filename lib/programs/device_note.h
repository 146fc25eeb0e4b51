/* SPDX-License-Identifier: Apache-2.0 */
/* What was measured on a device, kept beside its programs: an entry of the disk cache like theirs,
 * with a text instead of a binary. Its key says kiln's version, the device and its driver. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct kiln__programs;

#define KILN__LONGEST_NOTE 65535

/* The note about `subject`; false: there is none of this device that can be read. One that is
 * damaged is removed and counted, as a program's is. */
bool kiln__device_note_get(struct kiln__programs *programs, const char *subject, char *text,
                           size_t size);

/* Keep a note in the place of an earlier one, as far as the cache can be written. `subject` is also
 * what people see of it in `kiln cache list`. */
void kiln__device_note_put(struct kiln__programs *programs, const char *subject, const char *text);
