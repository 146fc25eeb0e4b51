/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the work that an executor does. */
#pragma once

#include "opencl_work.h"

/* It is made, serves a few requests, and goes. */
void executor_act(struct trial *trial);

/* It has been made, with one context or two, serves, and serves on. */
void executor_prepare_serve(struct trial *trial);
void executor_prepare_two(struct trial *trial);
void executor_act_serve(struct trial *trial);
void executor_inspect(struct trial *trial);
