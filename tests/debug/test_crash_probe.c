/* SPDX-License-Identifier: Apache-2.0 */
/* What is tried once for each device and driver, and noted. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../support/fill.h"
#include "debug/crash_probe.h"
#include "programs/device_note.h"

static void begin(void)
{
    fill_folder();
}

TestSuite(trial, .init = begin, .fini = fill_end, .timeout = 300);

static const struct kiln__crash_probe trial = {"a new kernel", .patience = 0.1, .life = 1000};

static struct fill here;
static int tries;

static void start_here(kiln_cache_mode mode)
{
    if (!fill_start(&here, mode))
        cr_skip("no OpenCL device here");
}

static enum kiln__probe_outcome is_right(void *user, char why[KILN__PROBE_WHY])
{
    (void)user, (void)why;
    tries++;
    return KILN__PROBE_RIGHT;
}

static enum kiln__probe_outcome is_wrong(void *user, char why[KILN__PROBE_WHY])
{
    (void)user;
    tries++;
    snprintf(why, KILN__PROBE_WHY, "its result is wrong");
    return KILN__PROBE_WRONG;
}

static enum kiln__probe_outcome has_no_room(void *user, char why[KILN__PROBE_WHY])
{
    (void)user;
    tries++;
    snprintf(why, KILN__PROBE_WHY, "no memory");
    return KILN__PROBE_BUSY;
}

/* It sees that the mark is there before anything can happen. */
static enum kiln__probe_outcome sees_mark(void *user, char why[KILN__PROBE_WHY])
{
    char note[64];
    (void)user, (void)why;
    bool marked = kiln__device_note_get(here.programs, trial.subject, note, sizeof note) &&
                  !strncmp(note, "tried since ", 12);
    return marked ? KILN__PROBE_RIGHT : KILN__PROBE_WRONG;
}

static void expect(kiln__probe_function trier, enum kiln__probe_outcome end, int wanted)
{
    cr_expect_eq(kiln__crash_probe(here.programs, &trial, trier, NULL), end);
    cr_expect_eq(tries, wanted);
}

static void expect_note(const char *wanted)
{
    char note[256] = "";
    kiln__device_note_get(here.programs, trial.subject, note, sizeof note);
    cr_expect_str_eq(note, wanted);
}

Test(trial, is_made_once_where_it_is_right)
{
    start_here(KILN_CACHE_ON);
    expect(is_right, KILN__PROBE_RIGHT, 1);
    expect(is_wrong, KILN__PROBE_RIGHT, 1);
    expect_note("right");
    fill_stop(&here);
}

Test(trial, is_made_once_where_it_is_wrong)
{
    start_here(KILN_CACHE_ON);
    expect(is_wrong, KILN__PROBE_WRONG, 1);
    expect(is_right, KILN__PROBE_WRONG, 1);
    expect_note("wrong: its result is wrong");
    fill_stop(&here);
}

Test(trial, is_marked_while_it_is_made)
{
    start_here(KILN_CACHE_ON);
    expect(sees_mark, KILN__PROBE_RIGHT, 0);
    fill_stop(&here);
}

/* What such a process leaves: the mark alone. */
Test(trial, that_ended_a_process_is_not_made_again)
{
    start_here(KILN_CACHE_ON);
    kiln__device_note_put(here.programs, trial.subject, "tried since 1000");
    expect(is_right, KILN__PROBE_WRONG, 0);
    expect_note("wrong: a process ended while it tried");
    fill_stop(&here);
}

Test(trial, that_another_process_is_at_is_left_to_it_for_now)
{
    char mark[64];
    start_here(KILN_CACHE_ON);
    snprintf(mark, sizeof mark, "tried since %lld", (long long)time(NULL));
    kiln__device_note_put(here.programs, trial.subject, mark);
    expect(is_right, KILN__PROBE_BUSY, 0);
    expect_note(mark);
    kiln__device_note_put(here.programs, trial.subject, "right");
    expect(is_right, KILN__PROBE_RIGHT, 0);
    fill_stop(&here);
}

Test(trial, is_made_again_where_it_could_not_be_made)
{
    start_here(KILN_CACHE_ON);
    expect(has_no_room, KILN__PROBE_BUSY, 1);
    expect_note("not yet tried: no memory");
    expect(is_right, KILN__PROBE_RIGHT, 2);
    fill_stop(&here);
}

Test(trial, is_not_made_where_nothing_may_be_compiled)
{
    start_here(KILN_CACHE_ON);
    expect(NULL, KILN__PROBE_BUSY, 0);
    expect_note("");
    expect(is_right, KILN__PROBE_RIGHT, 1);
    expect(NULL, KILN__PROBE_RIGHT, 1);
    fill_stop(&here);
}

Test(trial, is_made_each_time_where_nothing_can_be_noted)
{
    start_here(KILN_CACHE_OFF);
    expect(is_right, KILN__PROBE_RIGHT, 1);
    expect(is_wrong, KILN__PROBE_WRONG, 2);
    expect_note("");
    fill_stop(&here);
}
