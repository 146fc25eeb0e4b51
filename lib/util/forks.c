/* SPDX-License-Identifier: Apache-2.0 */
/* A fork counter, kept by pthread_atfork(). */
#include "util/forks.h"

#include <pthread.h>
#include <stdatomic.h>

static atomic_uint forks;

static void count_fork(void)
{
    atomic_fetch_add(&forks, 1);
}

bool kiln__forks_watch(void)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool watched;
    pthread_mutex_lock(&lock);
    watched = watched || !pthread_atfork(NULL, NULL, count_fork);
    bool done = watched;
    pthread_mutex_unlock(&lock);
    return done;
}

unsigned kiln__forks(void)
{
    return atomic_load_explicit(&forks, memory_order_relaxed);
}
