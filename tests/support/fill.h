/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of a real device for the cache's tests: kernels by number that fill a buffer, a folder
 * for kiln's cache, and for each process an empty one for the driver's, so that only kiln's can
 * help. */
#pragma once

#include "programs/program.h"

struct fill {
    cl_context context;
    cl_command_queue queue;
    struct kiln__device device;
    struct kiln__programs *programs;
};

/* A fresh folder; fill_end() removes it. The cache is in "kiln" below it. */
const char *fill_folder(void);
void fill_end(void);

/* Files of the cache whose names end so. */
int fill_files(const char *suffix);

/* False: there is no device. */
bool fill_start(struct fill *fill, kiln_cache_mode mode);
void fill_stop(struct fill *fill);

/* The program of kernel `number`. */
kiln_status fill_get(struct fill *fill, int number, struct kiln__program **program,
                     struct kiln__error *error);

/* Run it, tell the programs of the launch if they want one, and look at the result. */
bool fill_launch(struct fill *fill, struct kiln__program *program, int number);

double fill_seconds(void);
