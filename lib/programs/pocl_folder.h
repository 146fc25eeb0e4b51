/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of PoCL's cache for one worker, in which a program is found and compiled once.
 *
 *   cache   = program* temporary*
 *   program = XX/DIGEST/ program.bc (KERNEL/VARIANT/KERNEL.so)*
 *
 * Who asks PoCL for a binary has each kernel compiled for any local size, VARIANT 0-0-0, and once
 * more for those that $POCL_BINARY_SPECIALIZE_WG names. kiln launches by the latter alone, and a
 * binary needs no others: PoCL compiles what is missing from the program.bc in it. Hence a file
 * that does nothing (programs/stand_in.h) is at the first one's place until PoCL has opened it, and
 * not any more when the binary is made. From then on PoCL has it in memory, in this process.
 *
 * PoCL alone can tell a program's DIGEST. In a folder of its own a worker finds it: it is the new
 * one. What the shared cache has of the program already is linked there, and a quick kernel back.
 *
 * Another PoCL may do this otherwise. Where it does not look for the file it compiles twice. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "util/text.h"

struct kiln__pocl_folder {
    int lock; /* held by who has the folder; -1: there is none */
    char shared[PATH_MAX], own[PATH_MAX];
    char program[PATH_MAX];  /* in either; "": none is new */
    struct kiln__text known; /* programs */
};

/* Before PoCL's first call in the process: it reads $POCL_CACHE_DIR, which is set here, then.
 * False: PoCL uses the shared cache. */
bool kiln__pocl_folder_open(struct kiln__pocl_folder *folder);

/* Find the program that PoCL has put there since the last call. */
void kiln__pocl_folder_find(struct kiln__pocl_folder *folder);

/* Link what the shared cache has of its kernels, whose names have semicolons between, and let a
 * stand-in be there for each; then take the stand-ins away. False: one is left. */
void kiln__pocl_folder_stand_in(struct kiln__pocl_folder *folder, const char *kernels);
bool kiln__pocl_folder_withdraw(struct kiln__pocl_folder *folder, const char *kernels);

/* Link the program, which has no stand-in, into the shared cache. */
void kiln__pocl_folder_share(struct kiln__pocl_folder *folder);

/* Remove it. What is started from now on uses the shared cache. */
void kiln__pocl_folder_close(struct kiln__pocl_folder *folder);
