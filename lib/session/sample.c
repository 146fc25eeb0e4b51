/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling of runs for validation and the check of values: reads the share from an option or
 * variable, and spreads the runs evenly. */
#include "session/sample.h"

#include <math.h>

#include "util/environment.h"
#include "util/error.h"
#include "util/format.h"

kiln_status kiln__sample_choose(struct kiln__sample *sample, const char *call, const char *name,
                                double option, const char *variable)
{
    const char *text = kiln__environment(variable);
    char *end = NULL;
    sample->share = option;
    if (option == 0 && text) {
        sample->share = kiln__parse_double(text, &end);
        if (*end || !(sample->share >= 0 && sample->share <= 1))
            return kiln__fail(NULL, KILN_INVALID_ARGUMENT,
                              "%s: %s is \"%s\", not a number from 0 to 1", call, variable, text);
    }
    return sample->share >= 0 && sample->share <= 1
               ? KILN_OK
               : kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is %g, not a number from 0 to 1",
                            call, name, sample->share);
}

bool kiln__sample_next(struct kiln__sample *sample)
{
    if (sample->share <= 0)
        return false;
    double before = (double)atomic_fetch_add(&sample->runs, 1);
    return ceil((before + 1) * sample->share) > ceil(before * sample->share);
}
