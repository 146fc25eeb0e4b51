/* SPDX-License-Identifier: Apache-2.0 */
/* Descendant processes, found through /proc: those of peers are stopped while another contestant is
 * timed. */
#define _GNU_SOURCE
#include "family.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MOST_PROCESSES 8192
#define MOST_FROZEN 256

static struct {
    struct process {
        pid_t id, parent;
        bool stopped;
    } all[MOST_PROCESSES];
    size_t count, frozen_count;
    pid_t frozen[MOST_FROZEN];
} family;

void family_adopt(void)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

/* "id (name) state parent ...", where the name may have any letters in it. */
static void note(const char *folder)
{
    char path[300], line[256];
    int parent;
    snprintf(path, sizeof path, "/proc/%s/stat", folder);
    FILE *file = fopen(path, "r");
    const char *end = file && fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    if (end && sscanf(end, ") %*c %d", &parent) == 1 && family.count < MOST_PROCESSES)
        family.all[family.count++] = (struct process){atoi(folder), parent, end[2] == 'T'};
    if (file)
        fclose(file);
}

static void look(void)
{
    DIR *all = opendir("/proc");
    const struct dirent *entry;
    family.count = 0;
    while (all && (entry = readdir(all)))
        if (isdigit((unsigned char)entry->d_name[0]))
            note(entry->d_name);
    if (all)
        closedir(all);
}

static const struct process *find(pid_t id)
{
    for (size_t i = 0; i < family.count; i++)
        if (family.all[i].id == id)
            return &family.all[i];
    return NULL;
}

/* Whether it came from this process, and not by way of `except`. */
static bool is_ours(const struct process *process, pid_t except)
{
    pid_t own = getpid();
    for (; process && process->id != own; process = find(process->parent))
        if (process->id == except)
            return false;
    return process;
}

void family_freeze(pid_t except)
{
    look();
    family.frozen_count = 0;
    for (size_t i = 0; i < family.count && family.frozen_count < MOST_FROZEN; i++) {
        const struct process *process = &family.all[i];
        if (process->id == getpid() || process->stopped || !is_ours(process, except))
            continue;
        if (!kill(process->id, SIGSTOP))
            family.frozen[family.frozen_count++] = process->id;
    }
}

void family_thaw(void)
{
    for (size_t i = 0; i < family.frozen_count; i++)
        kill(family.frozen[i], SIGCONT);
    family.frozen_count = 0;
}
