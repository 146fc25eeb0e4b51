/* SPDX-License-Identifier: Apache-2.0 */
/* CLBlast's own parameters. It has one set per device for a whole process and does not tell which
 * it begins with, so that each set is timed in a process of its own. */
#pragma once

#include "tune_search.h"

enum { TUNE_LIBRARY_WORKS = 2 };

/* To be called before the first call of OpenCL, whose loader may cut off in the environment which
 * drivers there are (doc/devices.md): each set's process gets it as it is now. */
void tune_keep_drivers(void);

/* Whether the parameter is one of CLBlast's: no plan tells its values apart. */
bool tune_is_of_library(const kiln_tunable *tunable);

/* Whether products go to CLBlast here, as the device or $KILN_MATMUL wants. */
bool tune_uses_library(kiln_context *context);

/* Search the sets of each kernel. What is found is in the record, and kept. `device` as given to
 * the tool, or NULL. */
kiln_status tune_search_library(struct tune_search *search, const char *device,
                                struct tune_gain gains[TUNE_LIBRARY_WORKS]);

/* `kiln tune --time`, which such a process is: the seconds of a work's run on standard output, once
 * its result has been compared with plain C. */
kiln_status tune_time_work(kiln_context *context, const struct tune_work *work);
