/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a plan's workloads, as `kiln tune` reads it from a program's run. */
#include "session/plan_workloads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lower/workload.h"
#include "util/log.h"
#include "util/open_file.h"

static struct kiln__plan_workload *workloads_find(struct kiln__plan_workloads *works, uint64_t hash)
{
    for (size_t i = 0; i < works->count; i++)
        if (works->items[i].hash == hash)
            return &works->items[i];
    return NULL;
}

static void workloads_add(struct kiln__plan_workloads *works, struct kiln__text *name)
{
    uint64_t hash = name->data ? kiln__hash64(name->data, name->length) : 0;
    struct kiln__plan_workload *work = workloads_find(works, hash);
    if (!work && name->data && (work = kiln__vector_push(works)))
        *work = (struct kiln__plan_workload){.hash = hash, .name = kiln__text_take(name)};
    if (work)
        work->count++;
}

/* Groups of which something is computed, and by themselves. */
void kiln__plan_workloads_of(const struct kiln__plan *plan, struct kiln__plan_workloads *works)
{
    bool *runs = calloc(plan->fusion.groups.count + 1, sizeof *runs);
    for (size_t i = 0; runs && i < plan->launches.count; i++)
        runs[plan->launches.items[i].group] = true;
    for (uint32_t i = 0; runs && i < plan->fusion.groups.count; i++) {
        struct kiln__text name = {0};
        if (runs[i])
            kiln__plan_work(plan, i, &name);
        workloads_add(works, &name);
        kiln__text_free(&name);
    }
    free(runs);
}

void kiln__plan_workloads_free(struct kiln__plan_workloads *works)
{
    for (size_t i = 0; i < works->count; i++)
        free(works->items[i].name);
    kiln__vector_free(works);
}

void kiln__plan_workload_write(const struct kiln__plan_workload *work, struct kiln__text *text)
{
    kiln__text_add(text, "%s # %u\n", work->name, work->count);
}

void kiln__plan_workloads_append(const char *path, const struct kiln__text *text)
{
    if (!text->length)
        return;
    int file = kiln__open_to_append(path, 0666);
    if (file < 0 || write(file, text->data, text->length) != (ssize_t)text->length)
        KILN__LOG(KILN__LOG_ERROR, "KILN_RECORD_SHAPES: %s cannot be written: %s", path,
                  strerror(errno));
    if (file >= 0)
        close(file);
}
