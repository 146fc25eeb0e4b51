/* SPDX-License-Identifier: Apache-2.0 */
/* The part of the work that an executor does: it is made, serves a few requests, and goes. */
#ifndef KILN_TESTS_CAMPAIGNS_EXECUTOR_WORK_H
#define KILN_TESTS_CAMPAIGNS_EXECUTOR_WORK_H

#include "opencl_work.h"

void executor_act(struct trial *trial);

#endif
