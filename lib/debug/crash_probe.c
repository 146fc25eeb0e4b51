/* SPDX-License-Identifier: Apache-2.0 */
/* The note of an attempt is written before the attempt, so that a later process sees a crash and
 * avoids the kernel. */
#include "debug/crash_probe.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "programs/device_note.h"
#include "util/clock.h"
#include "util/format.h"
#include "util/log.h"

#define RIGHT "right"
#define WRONG "wrong: "
#define TRIED "tried since "
#define PUT_OFF "not yet tried: "

static bool note_begins(const char *note, const char *word)
{
    return !strncmp(note, word, strlen(word));
}

/* Of a clock that other processes read, too, and that goes on over a restart. */
static double crash_probe_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static enum kiln__probe_outcome note_as_wrong(struct kiln__programs *programs,
                                              const struct kiln__crash_probe *probe,
                                              const char *why)
{
    char note[KILN__PROBE_WHY + sizeof WRONG];
    snprintf(note, sizeof note, WRONG "%s", why);
    kiln__device_note_put(programs, probe->subject, note);
    KILN__LOG(KILN__LOG_WARN, "%s: not used on this device and driver: %s", probe->subject, why);
    return KILN__PROBE_WRONG;
}

static enum kiln__probe_outcome crash_probe_try(struct kiln__programs *programs,
                                                const struct kiln__crash_probe *probe,
                                                kiln__probe_function trier, void *user)
{
    char note[KILN__PROBE_WHY + sizeof PUT_OFF], why[KILN__PROBE_WHY] = "";
    kiln__format(note, sizeof note, TRIED "%.0f", crash_probe_now());
    kiln__device_note_put(programs, probe->subject, note);
    enum kiln__probe_outcome end = trier(user, why);
    if (end == KILN__PROBE_WRONG)
        return note_as_wrong(programs, probe, why);
    if (end == KILN__PROBE_RIGHT)
        snprintf(note, sizeof note, RIGHT);
    else
        snprintf(note, sizeof note, PUT_OFF "%s", why);
    kiln__device_note_put(programs, probe->subject, note);
    KILN__LOG(KILN__LOG_INFO, "%s: %s", probe->subject, note);
    return end;
}

/* A time that is not of the past is a clock's mistake. */
static bool is_dead(const struct kiln__crash_probe *probe, const char *note)
{
    double age = crash_probe_now() - kiln__parse_double(note + strlen(TRIED), NULL);
    return age > probe->life || age < -probe->life;
}

enum kiln__probe_outcome kiln__crash_probe(struct kiln__programs *programs,
                                           const struct kiln__crash_probe *probe,
                                           kiln__probe_function trier, void *user)
{
    const double begin = crash_probe_now();
    char note[KILN__PROBE_WHY + sizeof WRONG];
    while (kiln__device_note_get(programs, probe->subject, note, sizeof note)) {
        if (note_begins(note, RIGHT))
            return KILN__PROBE_RIGHT;
        if (note_begins(note, WRONG)) {
            KILN__LOG(KILN__LOG_INFO, "%s: not used: %s", probe->subject, note);
            return KILN__PROBE_WRONG;
        }
        if (!note_begins(note, TRIED))
            break;
        if (is_dead(probe, note))
            return note_as_wrong(programs, probe, "a process ended while it tried");
        if (crash_probe_now() - begin > probe->patience)
            return KILN__PROBE_BUSY;
        kiln__sleep(20 * KILN__MS);
    }
    return trier ? crash_probe_try(programs, probe, trier, user) : KILN__PROBE_BUSY;
}
