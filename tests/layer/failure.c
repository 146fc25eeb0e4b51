/* SPDX-License-Identifier: Apache-2.0 */
/* Decides which OpenCL call the layer makes fail: the n-th, of one name, or by chance. */
#include "failure.h"

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "counts.h"

/* Guarded by `lock`; n = 0 is disarmed. */
static struct plan {
    unsigned long n, seen;
    enum layer__call call;
    cl_int code;
    enum kiln_layer_mode mode;
    enum kiln_layer_where where;
} plan;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static atomic_bool armed; /* spares unarmed calls the lock */
static bool after_context;

void layer__arm(unsigned long n, enum layer__call call, cl_int code, enum kiln_layer_mode mode,
                enum kiln_layer_where where)
{
    pthread_mutex_lock(&lock);
    plan = (struct plan){n, 0, call, code, mode, where};
    armed = n > 0;
    pthread_mutex_unlock(&lock);
}

static bool too_early(void)
{
    return after_context && !layer__saw_context();
}

/* Caller holds `lock`. */
static bool meant(enum layer__call call, enum layer__chance chance)
{
    if (plan.where == KILN_LAYER_EVENT && chance != LAYER__EVENT)
        return false;
    return plan.call == LAYER__CALLS ? chance != LAYER__NAMED : plan.call == call;
}

/* Caller holds `lock`. */
static bool due(void)
{
    plan.seen++;
    return plan.mode == KILN_LAYER_ONCE ? plan.seen == plan.n : plan.seen >= plan.n;
}

struct layer__verdict layer__judge(enum layer__call call, enum layer__chance chance)
{
    struct layer__verdict verdict = {0};
    bool early = too_early();
    layer__called(call);
    layer__tallied(LAYER__TALLY_eligible, chance != LAYER__NAMED && !early);
    layer__tallied(LAYER__TALLY_eligible_event, chance == LAYER__EVENT && !early);
    if (!armed || early)
        return verdict;

    pthread_mutex_lock(&lock);
    if (plan.n && meant(call, chance) && due()) {
        verdict = (struct layer__verdict){plan.where, plan.code};
        layer__failed(call);
    }
    pthread_mutex_unlock(&lock);
    return verdict;
}

/* The place of the variable's value among the choices, the first if it is not set, -1 if the value
 * is none of them. */
static int choice(const char *variable, const char *const *choices)
{
    const char *value = getenv(variable);
    for (int i = 0; choices[i]; i++)
        if (!value || !strcmp(value, choices[i]))
            return i;
    return -1;
}

static bool read_number(const char *text, long least, long most, long *number)
{
    char *end;
    *number = strtol(text, &end, 10);
    return end != text && !*end && *number >= least && *number <= most;
}

/* "N", "name" or "name:N". */
static bool read_target(const char *text, long *n, enum layer__call *call)
{
    size_t length = strcspn(text, ":");
    *n = 1;
    *call = LAYER__CALLS;
    if (read_number(text, 1, LONG_MAX, n))
        return true;
    *n = 1;
    *call = layer__call_named(text, length);
    return *call != LAYER__CALLS &&
           (!text[length] || read_number(text + length + 1, 1, LONG_MAX, n));
}

const char *layer__arm_from_environment(void)
{
    static const char *const modes[] = {"once", "forever", NULL};
    static const char *const wheres[] = {"call", "after", "event", NULL};
    static const char *const switches[] = {"0", "1", NULL};
    const char *target = getenv("KILN_LAYER_FAIL"), *code_text = getenv("KILN_LAYER_FAIL_CODE");
    int mode = choice("KILN_LAYER_FAIL_MODE", modes);
    int where = choice("KILN_LAYER_FAIL_WHERE", wheres);
    int late = choice("KILN_LAYER_FAIL_AFTER_CONTEXT", switches);
    long n = 0, code = CL_OUT_OF_RESOURCES;
    enum layer__call call = LAYER__CALLS;

    if (target && !read_target(target, &n, &call))
        return "KILN_LAYER_FAIL";
    if (code_text && !read_number(code_text, INT_MIN, -1, &code))
        return "KILN_LAYER_FAIL_CODE";
    if (mode < 0)
        return "KILN_LAYER_FAIL_MODE";
    if (where < 0)
        return "KILN_LAYER_FAIL_WHERE";
    if (late < 0)
        return "KILN_LAYER_FAIL_AFTER_CONTEXT";
    after_context = late;
    layer__arm((unsigned long)n, call, (cl_int)code, (enum kiln_layer_mode)mode,
               (enum kiln_layer_where)(where + KILN_LAYER_CALL));
    return NULL;
}
