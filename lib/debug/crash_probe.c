/* SPDX-License-Identifier: Apache-2.0 */
/* The note of an attempt is written before the attempt, so that a later process sees a crash and
 * avoids the kernel. */
#include "debug/crash_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "programs/device_note.h"
#include "util/format.h"
#include "util/log.h"

#define RIGHT "right"
#define WRONG "wrong: "
#define TRIED "tried since "
#define PUT_OFF "not yet tried: "

static bool begins(const char *note, const char *word)
{
    return !strncmp(note, word, strlen(word));
}

/* Of a clock that other processes read, too, and that goes on over a restart. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static enum kiln__trial_end condemn(struct kiln__programs *programs,
                                    const struct kiln__trial *trial, const char *why)
{
    char note[KILN__TRIAL_WHY + sizeof WRONG];
    snprintf(note, sizeof note, WRONG "%s", why);
    kiln__note_put(programs, trial->subject, note);
    KILN__LOG(KILN__LOG_WARN, "%s: not used on this device and driver: %s", trial->subject, why);
    return KILN__TRIAL_WRONG;
}

static enum kiln__trial_end try(struct kiln__programs *programs, const struct kiln__trial *trial,
                                kiln__trier trier, void *user)
{
    char note[KILN__TRIAL_WHY + sizeof PUT_OFF], why[KILN__TRIAL_WHY] = "";
    kiln__format(note, sizeof note, TRIED "%.0f", now());
    kiln__note_put(programs, trial->subject, note);
    enum kiln__trial_end end = trier(user, why);
    if (end == KILN__TRIAL_WRONG)
        return condemn(programs, trial, why);
    if (end == KILN__TRIAL_RIGHT)
        snprintf(note, sizeof note, RIGHT);
    else
        snprintf(note, sizeof note, PUT_OFF "%s", why);
    kiln__note_put(programs, trial->subject, note);
    KILN__LOG(KILN__LOG_INFO, "%s: %s", trial->subject, note);
    return end;
}

/* A time that is not of the past is a clock's mistake. */
static bool is_dead(const struct kiln__trial *trial, const char *note)
{
    double age = now() - kiln__parse_double(note + strlen(TRIED), NULL);
    return age > trial->life || age < -trial->life;
}

enum kiln__trial_end kiln__trial(struct kiln__programs *programs, const struct kiln__trial *trial,
                                 kiln__trier trier, void *user)
{
    const struct timespec nap = {.tv_nsec = 20000000};
    const double begin = now();
    char note[KILN__TRIAL_WHY + sizeof WRONG];
    while (kiln__note_get(programs, trial->subject, note, sizeof note)) {
        if (begins(note, RIGHT))
            return KILN__TRIAL_RIGHT;
        if (begins(note, WRONG)) {
            KILN__LOG(KILN__LOG_INFO, "%s: not used: %s", trial->subject, note);
            return KILN__TRIAL_WRONG;
        }
        if (!begins(note, TRIED))
            break;
        if (is_dead(trial, note))
            return condemn(programs, trial, "a process ended while it tried");
        if (now() - begin > trial->patience)
            return KILN__TRIAL_BUSY;
        nanosleep(&nap, NULL);
    }
    return trier ? try(programs, trial, trier, user) : KILN__TRIAL_BUSY;
}
