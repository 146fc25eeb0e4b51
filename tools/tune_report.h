/* SPDX-License-Identifier: Apache-2.0 */
/* What a search of `kiln tune` came to: a table or JSON, and what is kept. */
#pragma once

#include "tune_search.h"

struct tune_report {
    bool json, compares; /* as asked */
    bool of_works;       /* of single works, not of the device */
};

void tune_report(const struct tune_search *search, const struct tune_report *report,
                 const struct tune_gain *gains, size_t count);
