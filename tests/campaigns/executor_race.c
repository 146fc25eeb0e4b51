/* SPDX-License-Identifier: Apache-2.0 */
/* Many threads at executors that come and go.
 *
 *     executor_race          some 20,000 requests
 *     executor_race long     1,000,000 */
#include <stdio.h>

#include "../support/cache.h"
#include "executor_requests.h"

enum { NOT_RUN = 77 };

int main(int argc, char **argv)
{
    static const unsigned threads[] = {16, 8, 32};
    const bool is_long = campaign_is_long(argc, argv);
    const unsigned long wanted = is_long ? 1000000 : 20000, each = is_long ? 5000 : 400;
    kiln_context *contexts[2];
    unsigned lives = 0;
    for (int i = 0; i < 2; i++)
        if (kiln_context_create(NULL, &contexts[i])) {
            printf("%s\n", kiln_last_error());
            return NOT_RUN;
        }
    for (; atomic_load(&requests_seen.submitted) < wanted; lives++)
        requests_live(contexts, lives, threads[lives / 3 % 3], each);
    for (int i = 0; i < 2; i++)
        kiln_context_release(contexts[i]);
    printf("%u executors, ", lives);
    return requests_fine() ? 0 : 1;
}
