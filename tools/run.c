/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a program as a child process for the tools: temporary files, exit status, signals. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* environ, mkostemp */
#endif
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool.h"

int kiln__tool_make_file(const char *command, const char *given, const char *prefix, char *path)
{
    const char *folder = getenv("TMPDIR");
    if (!given)
        snprintf(path, PATH_MAX, "%s/%s-XXXXXX", folder && *folder ? folder : "/tmp", prefix);
    int file = given ? open(given, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)
                     : mkostemp(path, O_CLOEXEC);
    if (file >= 0 && (!given || realpath(given, path)))
        return file;
    fprintf(stderr, "%s: %s: %s\n", command, given ? given : path, strerror(errno));
    if (file >= 0)
        close(file);
    return -1;
}

/* The status that a shell would give. */
static int status_of(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

int kiln__tool_run(const char *command, char **program, bool aside)
{
    pid_t child;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_t actions;
    sigset_t interrupts;
    sigemptyset(&interrupts);
    sigaddset(&interrupts, SIGINT);
    sigaddset(&interrupts, SIGQUIT);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &interrupts);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    /* An interrupt from the terminal is for the program; this one still has to clean up. */
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
    posix_spawn_file_actions_init(&actions);
    int failed =
        aside ? posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO) : 0;
    if (!failed)
        failed = posix_spawnp(&child, program[0], &actions, &attributes, program, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (failed) {
        errno = failed;
        int missing = errno == ENOENT;
        fprintf(stderr, "%s: %s: %s\n", command, program[0], strerror(errno));
        return missing ? KILN__EXIT_NOT_FOUND : KILN__EXIT_NOT_RUNNABLE;
    }
    int wait_status = 0;
    while (waitpid(child, &wait_status, 0) < 0 && errno == EINTR)
        continue;
    return status_of(wait_status);
}
