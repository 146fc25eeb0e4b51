/* SPDX-License-Identifier: Apache-2.0 */
/* How work is shared along a reduced axis: lanes of a work-group, what each of them holds, and the
 * segments of a line. */
#include "fuse/loop_nest.h"
#include "lower/lower.h"

/* Columns that a work-group has beside each other at least: 64 bytes of f32, half a line, which
 * leaves a column the lanes to hold it; a line where it is read once. */
#define FEWEST_COLUMNS 16
#define FEWEST_COLUMNS_ONCE 32

/* Elements of a column that is read once from which on another lane shares in it. Sums of 32 rows
 * of a million took an H200 38 us with one lane, 84 with 8; of 4,096 rows of 16,384 71 us with an
 * item for each column, 68 with 8 lanes, and those of 1,500 rows of 333 23 and 12. */
#define SHARE_OF_COLUMN 32

/* Elements from which on a row has more of each piece in a lane. */
#define LONG_PIECES (1 << 15)

/* Neighbours of which a lane makes running sums by itself: a vector, so that lanes beside each
 * other read one run, or several of a row that is long enough to wait at the barriers of each of
 * its pieces; of columns, whose neighbours are other lanes', a few. On an H100 sums of 2^24
 * took 8.2 ms with 16, 15.7 with 4; 4,096 rows as long 75 us and 61; as many columns 81 us with 8,
 * 105 with 4. In segments and with shuffles 2^24 took an H200 82 us with 16, 60 with 4. */
uint8_t kiln__axis_scan_elements(size_t reduced, const struct kiln__variant *variant)
{
    bool longer = variant->vector > 1 && reduced > LONG_PIECES && !variant->shuffles;
    return variant->kept_mapping == KILN__AXIS_COLUMNS ? 8 : longer ? 16 : 4;
}

/* By the nest, not by strides: a row alone has the lanes, and so the bits, of one among others. */
static struct kiln__loads loads_of(const struct kiln__group *group,
                                   const struct kiln__variant *variant)
{
    struct kiln__nest nest;
    kiln__nest_of(group, !variant->native_math, &nest);
    return kiln__nest_loads(group, &nest);
}

/* As many vectors of each element as a work-item has registers for, beside those it computes with.
 */
static unsigned most_held(const struct kiln__traits *traits, const struct kiln__group *group,
                          const struct kiln__variant *variant)
{
    unsigned shared = (unsigned)__builtin_popcount(loads_of(group, variant).shared);
    return traits->held ? traits->held : shared > 2 ? 4 : 8;
}

/* As many as a lane has before there are more lanes, while a work-group has some. With 8 of two
 * operands layer norm's gradient took an H200 1.25 times as long. Where items exchange values more
 * lanes cost little: softmax of 2,048 rows of 2,048 took it 7.8 us with 2, 7.4 with 4, 8.6 with 8,
 * layer norm's gradient 17.4, 14.4 and 14.8. What a row's end reads beside the row all of a lane's
 * vectors wait for: layer norm took 7.6, 8.9 and 10.2. */
static unsigned wanted_held(const struct kiln__traits *traits, const struct kiln__group *group,
                            const struct kiln__variant *variant)
{
    struct kiln__loads loads = loads_of(group, variant);
    if (traits->held)
        return traits->held;
    if (__builtin_popcount(loads.shared) > 1)
        return 4;
    return !variant->shuffles ? 8 : loads.behind ? 2 : 4;
}

size_t kiln__axis_mapping_lanes(const struct kiln__traits *traits, const struct kiln__group *group,
                                size_t reduced, const struct kiln__variant *variant)
{
    bool held = !kiln__group_reads_once(group), partials = variant->stage == KILN__STAGE_FINAL;
    unsigned wanted = held ? wanted_held(traits, group, variant) : 0;
    size_t lanes = 1, most = (size_t)1 << variant->work_group;
    bool columns = variant->kept_mapping == KILN__AXIS_COLUMNS;
    size_t wide = !columns ? 1 : held ? FEWEST_COLUMNS : FEWEST_COLUMNS_ONCE;
    most = most > wide ? most / wide : 1;
    most = traits->lanes && traits->lanes < most ? traits->lanes : most;
    while (lanes < most && lanes < reduced) {
        /* Each lane has as many vectors as it can hold: a tree costs as much as a few of them. Few
         * lanes have two, so that neighbours read neighbours. */
        size_t share = variant->carried ? variant->carried
                       : held           ? variant->vector * (lanes < 8 ? 2u : wanted)
                       : partials       ? 1
                       : columns        ? SHARE_OF_COLUMN
                                        : variant->vector * (variant->shuffles ? 8u : 4u);
        if (lanes * share >= reduced && !traits->lanes)
            break;
        lanes *= 2;
    }
    return lanes;
}

/* Kernels differ in a power of two. */
uint8_t kiln__axis_cached_vectors(const struct kiln__traits *traits,
                                  const struct kiln__group *group, size_t reduced,
                                  const struct kiln__variant *variant)
{
    size_t lanes = kiln__axis_mapping_lanes(traits, group, reduced, variant), held = 1;
    while (held * lanes * variant->vector < reduced)
        held *= 2;
    return held <= most_held(traits, group, variant) ? (uint8_t)held : 0;
}

/* Runs over which a chunked device does two phases in one visit. A row's ends cost what the visit
 * saves with some 4,000 elements; with 8,192 it takes 0.88 (log-softmax) to 1.01 times (logsumexp)
 * as long, with 50,257 0.76 to 0.93 times, and 0.73 to 0.81 where 512 of them come from memory
 * (PoCL, AVX-512). */
#define SHORTEST_ONLINE 8192

/* Few lanes would round more often than a sum of as many elements in any order does. */
#define FEWEST_ONLINE 16

/* Rows that are held are visited once anyway. */
bool kiln__axis_is_online(const struct kiln__traits *traits, const struct kiln__group *group,
                          const struct kiln__space *space, const struct kiln__variant *variant)
{
    size_t count = space->reduced_count;
    bool vectors = variant->reduced_mapping == KILN__AXIS_VECTORS;
    bool lanes = variant->reduced_mapping == KILN__AXIS_LANES;
    struct kiln__nest nest;
    bool follows = false;
    if (group->kind != KILN__GROUP_ROWS || !(vectors || lanes) ||
        (vectors && space->dims[space->rank - 1] < SHORTEST_ONLINE) ||
        (lanes && kiln__axis_mapping_lanes(traits, group, count, variant) < FEWEST_ONLINE))
        return false;
    kiln__nest_of(group, !variant->native_math, &nest);
    for (unsigned phase = 1; phase < nest.phases; phase++)
        follows = follows || kiln__nest_is_online(group, &nest, phase);
    return follows;
}

/* ---- segments ---- */

/* A segment is long enough to hide what combining costs, and depends on nothing but the number of
 * reduced elements, so that a result has the same bits whatever is computed beside it. */
struct segments {
    size_t length, most;
    size_t few; /* up to so many are cut in half: such columns are often few, too */
};
static const struct segments segments[2][2] = {
    /* along rows, along columns */
    {{16384, 8192, 0}, {1024, 1024, 32}}, /* lanes share a row, a few of them a column */
    {{16384, 16, 0}, {1024, 16, 0}},      /* chunked: wide chunks, long runs of each row */
};

/* Running sums read what they add up twice when they are cut, so only lines are that are longer
 * than one work-group takes in the time that many take. */
static const struct segments segments_of_scans = {16384, 1024, 0};
#define FEWEST_IN_BACKGROUND 16

/* Running sums alone: what stays of a segment is one total. */
static bool can_follow_segments(const struct kiln__traits *traits, const struct kiln__group *group)
{
    unsigned sums = 0;
    for (size_t i = 0; i < group->steps.count; i++) {
        sums += group->steps.items[i].kind == KILN__STEP_SCANNED;
        if (group->steps.items[i].kind == KILN__STEP_REDUCED)
            return false;
    }
    for (size_t k = 0; k < group->stores.count; k++)
        if (!group->stores.items[k].full)
            return false;
    return !traits->chunked && group->kind == KILN__GROUP_ROWS && sums == 1;
}

/* Every segment but the last has a whole number of vectors. */
struct kiln__line_segments kiln__axis_mapping_segments(const struct kiln__plan *plan,
                                                       const struct kiln__group *group,
                                                       const struct kiln__space *space)
{
    const struct kiln__traits *traits = kiln__plan_device(plan, group)->traits;
    size_t reduced = space->reduced_count;
    const bool behind = can_follow_segments(traits, group);
    const bool columns = kiln__axis_mapping_is_of_columns(group, space);
    const struct segments *rule = behind ? &segments_of_scans : &segments[traits->chunked][columns];
    size_t count = reduced / (traits->segment ? traits->segment : rule->length);
    if (count > 1 && count <= rule->few)
        count *= 2;
    if (behind ? count < FEWEST_IN_BACKGROUND : group->kind != KILN__GROUP_REDUCE)
        return (struct kiln__line_segments){.segments = 1, .length = reduced};
    count = count > rule->most ? rule->most : count > 1 ? count : 1;
    size_t length = kiln__divide_up(reduced, count);
    if (count > 1)
        length = kiln__divide_up(length, traits->vector) * traits->vector;
    return (struct kiln__line_segments){.segments = length ? kiln__divide_up(reduced, length) : 1,
                                        .length = length};
}
