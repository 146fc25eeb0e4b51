/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that has the programs of one context stored, out of everybody's way.
 *
 * It never calls the driver, so that the process may end at any time: a compiler's own parts are
 * taken down then, whoever still compiles. Where a binary is complete once it is built, who built
 * it has fetched it, and the thread writes it. On devices with late binaries fetching would stop
 * every kernel of the process for as long as the driver compiles: there the thread hands what has
 * gathered to another process (programs/compile_workers.h). Where none can be started, who waits
 * for the cache fetches and writes, while nothing is launched (programs/fetch_interlock.h); if
 * nobody does, it is not stored.
 */
#pragma once

#include "programs/program_state.h"

struct kiln__store_thread;

/* `folder` is where the store is. NULL: out of memory. */
struct kiln__store_thread *kiln__store_thread_create(struct kiln__programs *programs,
                                                     const char *folder);

/* $KILN_CACHE_WAIT: a program ends when its kernels are stored, however long that takes. */
bool kiln__store_thread_is_awaited(void);

/* Wait for what is left, a second at most ($KILN_CACHE_WAIT: for all), say what was not stored, and
 * end. In a child of fork, where there is no thread, at once. */
void kiln__store_thread_destroy(struct kiln__store_thread *storing);

/* The program stays until it is stored or the storing ends. False: nothing is stored any more. */
bool kiln__store_thread_add(struct kiln__store_thread *storing, struct kiln__program *program);

/* Wait until all that was added is stored, or is known not to be. */
void kiln__store_thread_sync(struct kiln__store_thread *storing);

/* Where the store is, absolute. NULL: nowhere. Owner: the storing. */
const char *kiln__store_thread_folder(const struct kiln__store_thread *storing);

/* How many programs are to be stored still. */
uint64_t kiln__store_thread_pending(struct kiln__store_thread *storing);

/* Have all storing end before the driver is taken down at the end of the process: what is released
 * after that stores nothing. Handlers run in reverse order, and a driver adds its own while it is
 * loaded and when it compiles for the first time: so one of kiln's is added after each, once. */
enum kiln__store_thread_guard { KILN__GUARD_LOADED = 1, KILN__GUARD_COMPILED = 2 };
void kiln__store_thread_guard_exit(enum kiln__store_thread_guard after);
