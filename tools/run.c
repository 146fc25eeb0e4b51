/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* environ */
#endif
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tool.h"

/* The status that a shell would give. */
static int status_of(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

int kiln__tool_run(const char *command, char **program)
{
    pid_t child;
    posix_spawnattr_t attributes;
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
    errno = posix_spawnp(&child, program[0], NULL, &attributes, program, environ);
    posix_spawnattr_destroy(&attributes);
    if (errno) {
        int missing = errno == ENOENT;
        fprintf(stderr, "%s: %s: %s\n", command, program[0], strerror(errno));
        return missing ? KILN__EXIT_NOT_FOUND : KILN__EXIT_NOT_RUNNABLE;
    }
    int wait_status = 0;
    while (waitpid(child, &wait_status, 0) < 0 && errno == EINTR)
        continue;
    return status_of(wait_status);
}
