/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/runtime.h"

#include <unistd.h>

kiln_status kiln__runtime_check_process(const struct kiln__runtime *runtime,
                                        struct kiln__error *error)
{
    if (runtime->process == getpid())
        return KILN_OK;
    return kiln__fail(error, KILN_FORKED,
                      "kiln: the context was made before a fork, and OpenCL does not work in the "
                      "child; fork before the first call, or let the child exec");
}
