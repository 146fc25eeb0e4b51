/* SPDX-License-Identifier: Apache-2.0 */
/* Work-groups of one work-item do the phases of a launch (codegen/one_launch.c): each takes items
 * of a phase from a counter, and when none is left waits until those that were taken are done. What
 * it waits for is running already, so a work-group may begin late, or after all others have ended.
 * A phase has two counters, each in a cache line of its own; one behind the last counts work-groups
 * that have ended. A lone work-group leaves all of them alone. */
#define KILN_LINE 16

/* So often it looks, some microseconds, before it lets others have the core. */
#define KILN_LOOKS 2000

/* Along a dimension, the place of a work-item among `wide` times `high` times others. */
static inline int kiln_item(int dimension, int item, int wide, int high)
{
    return dimension == 0 ? item % wide : dimension == 1 ? item / wide % high : item / wide / high;
}

/* A work-group's first item of a phase: there may be none of that number. */
static int kiln_first(volatile global int *phase)
{
    return get_num_groups(0) > 1 ? atomic_inc(phase) : 0;
}

/* The next one, once `item` is done. */
static int kiln_next(volatile global int *phase, int item)
{
    if (get_num_groups(0) == 1)
        return item + 1;
    mem_fence(CLK_GLOBAL_MEM_FENCE);
    atomic_inc(phase + KILN_LINE);
    return atomic_inc(phase);
}

/* Lets others have the core, if any wait for it: a work-group that this one waits for may be among
 * them. */
static void kiln_yield(void)
{
#if defined __linux__ && defined __x86_64__
    long call = 24; /* sched_yield() */
    __asm__ volatile("syscall" : "+a"(call) : : "rcx", "r11", "memory");
#elif defined __linux__ && defined __aarch64__
    __asm__ volatile("mov x8, #124\n\tsvc #0" : : : "x0", "x8", "memory");
#endif
}

/* Until all items are done: what they have stored is there. */
static void kiln_wait(volatile global int *phase, int items)
{
    for (uint looks = 1; get_num_groups(0) > 1 && phase[KILN_LINE] < items; looks++)
        if (looks % KILN_LOOKS == 0)
            kiln_yield();
    if (get_num_groups(0) > 1)
        atomic_add(phase + KILN_LINE, 0);
    mem_fence(CLK_GLOBAL_MEM_FENCE);
}

/* The last work-group leaves zeros, from `first` on to the counter of work-groups. */
static void kiln_end(volatile global int *first, volatile global int *ended)
{
    if (get_num_groups(0) == 1 || atomic_inc(ended) + 1 < (int)get_num_groups(0))
        return;
    for (; first <= ended; first += KILN_LINE)
        *first = 0;
}

/* An integer of 64 bits, its low half first. */
static inline long kiln_long(global const int *halves)
{
    return (long)((ulong)(uint)halves[1] << 32 | (uint)halves[0]);
}
