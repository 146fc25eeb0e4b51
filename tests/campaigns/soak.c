/* SPDX-License-Identifier: Apache-2.0 */
/* Counts from /proc, from the allocator and from the counting layer. */
#include "soak.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "../support/layer.h"

double soak_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { RESIDENT, HEAP, DESCRIPTORS, THREADS, OBJECTS };

/* A sanitizer keeps freed memory for a while. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define MEMORY_COUNTS false
#else
#define MEMORY_COUNTS true
#endif

/* What may be more at the end than at the beginning: allocators and drivers keep some. */
static const struct {
    const char *name;
    unsigned long slack;
    bool is_memory;
} counts[SOAK_COUNTS] = {
    [RESIDENT] = {"KiB resident", 4096, true}, [HEAP] = {"KiB allocated", 256, true},
    [DESCRIPTORS] = {"descriptors", 4, false}, [THREADS] = {"threads", 4, false},
    [OBJECTS] = {"OpenCL objects", 16, false},
};

static unsigned long entries(const char *folder)
{
    unsigned long found = 0;
    DIR *all = opendir(folder);
    while (all && readdir(all))
        found++;
    if (all)
        closedir(all);
    return found;
}

static unsigned long resident(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*u %lu", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

static unsigned long allocated(void)
{
    struct mallinfo2 info = mallinfo2();
    return (unsigned long)(info.uordblks + info.hblkhd) / 1024;
}

/* A thread that has been joined, and a driver's callback, may need a moment to be gone. */
void soak_count(unsigned long found[SOAK_COUNTS])
{
    for (int i = 0; i < 5; i++) {
        unsigned long next[SOAK_COUNTS] = {resident(), allocated(), entries("/proc/self/fd"),
                                           entries("/proc/self/task"),
                                           layer_available() ? layer_count("alive") : 0};
        for (int k = 0; k < SOAK_COUNTS; k++)
            found[k] = !i || next[k] < found[k] ? next[k] : found[k];
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
}

void soak_print(const unsigned long found[SOAK_COUNTS])
{
    for (int k = 0; k < SOAK_COUNTS; k++)
        printf(", %lu %s", found[k], counts[k].name);
}

/* The least of the last quarter is more than the most of the quarter after the warm-up. */
static bool grows(unsigned long found[SOAK_SHIFTS][SOAK_COUNTS], int which, bool memory_counts)
{
    unsigned long most = 0, least = (unsigned long)-1;
    for (int i = SOAK_SHIFTS / 4; i < SOAK_SHIFTS / 2; i++)
        most = found[i][which] > most ? found[i][which] : most;
    for (int i = SOAK_SHIFTS * 3 / 4; i < SOAK_SHIFTS; i++)
        least = found[i][which] < least ? found[i][which] : least;
    bool more = least > most + counts[which].slack;
    printf("%s: at most %lu in the second quarter, at least %lu in the last%s\n",
           counts[which].name, most, least, more ? ": it grows" : "");
    return more && (memory_counts || !counts[which].is_memory);
}

bool soak_is_flat(unsigned long found[SOAK_SHIFTS][SOAK_COUNTS], double seconds)
{
    bool flat = true;
    for (int k = 0; k < SOAK_COUNTS; k++)
        flat = !grows(found, k, MEMORY_COUNTS && seconds >= 60) && flat;
    return flat;
}
