/* SPDX-License-Identifier: Apache-2.0 */
/* A library that has one symbol and does nothing: for who looks a function up and never calls it.
 */
#pragma once

#include <stdbool.h>

/* Write one of this process's kind, which dlopen() takes. What `symbol` stands for can be read and
 * not run: a call ends the process. False: there is a file already, or it cannot be written. */
bool kiln__stand_in_write(const char *path, const char *symbol);
