/* SPDX-License-Identifier: Apache-2.0 */
/* Work-groups of a launch count themselves once they have stored their results. The last
 * `helpers` of them, which is numbered from 0 on, go on with what is behind it; kiln_arrive() tells
 * each its number, or a negative one. If there are several they wait for those that have not
 * arrived: devices for which there are several run as many work-groups at once, and one more.
 *
 * counters[0] has the work-groups that have arrived, the next line those helpers that have met, the
 * last one those that have left. All are 0 before and after. */
#define KILN_LINE 16

static inline int kiln_count(volatile global int *counter)
{
    KILN_FENCE();
    const int before = atomic_inc(counter);
    KILN_FENCE();
    return before;
}

static inline void kiln_await(volatile global int *counter, int count)
{
    while (*counter < count)
        ;
    KILN_FENCE();
}

static inline bool kiln_is_first(void)
{
    return get_local_id(0) == 0;
}

static int kiln_arrive(volatile global int *counters, local int *told, int helpers)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (kiln_is_first()) {
        const int groups = get_num_groups(0) * get_num_groups(1) * get_num_groups(2);
        *told = kiln_count(counters) - (groups - helpers);
        if (*told >= 0 && helpers > 1)
            kiln_await(counters, groups);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    return *told;
}

/* The helpers' meeting `number`, from 1 on: each sees what all have stored before. */
static void kiln_meet(volatile global int *counters, int number, int helpers)
{
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (kiln_is_first() && helpers > 1) {
        kiln_count(counters + KILN_LINE);
        kiln_await(counters + KILN_LINE, number * helpers);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}

static void kiln_leave(volatile global int *counters, int helpers)
{
    if (!kiln_is_first() || kiln_count(counters + 2 * KILN_LINE) + 1 < helpers)
        return;
    for (int i = 0; i < 3; i++)
        counters[i * KILN_LINE] = 0;
}
