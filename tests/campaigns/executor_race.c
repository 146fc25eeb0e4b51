/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads at executors that come and go, in the end on devices whose calls fail at times.
 *
 *     executor_race          some 20,000 requests
 *     executor_race long     1,000,000 */
#include <stdio.h>

#include "../support/cache.h"
#include "../support/layer.h"
#include "executor_requests.h"

enum { NOT_RUN = 77 };

static kiln_context *contexts[2];
static unsigned lives;

static void live_until(unsigned long requests, unsigned long each, bool faulty)
{
    static const unsigned threads[] = {16, 8, 32};
    for (; atomic_load(&requests_seen.submitted) < requests; lives++)
        requests_live(contexts, lives, threads[lives / 3 % 3], each, faulty);
}

int main(int argc, char **argv)
{
    const bool is_long = campaign_is_long(argc, argv);
    const unsigned long wanted = is_long ? 1000000 : 20000, each = is_long ? 5000 : 400;
    for (int i = 0; i < 2; i++)
        if (kiln_context_create(NULL, &contexts[i])) {
            printf("%s\n", kiln_last_error());
            return NOT_RUN;
        }
    live_until(wanted, each, false);
    bool fine = !atomic_load(&requests_seen.failed);
    unsigned long before = atomic_load(&requests_seen.submitted);
    if (layer_available()) {
        live_until(before + wanted / 4, each, true);
        printf("%lu calls failed, ", (unsigned long)layer_failures());
        fine = fine && layer_failures() > 0;
    }
    for (int i = 0; i < 2; i++)
        kiln_context_release(contexts[i]);
    printf("%u executors, ", lives);
    return requests_fine() && fine ? 0 : 1;
}
