/* SPDX-License-Identifier: Apache-2.0 */
/* Serialisation of compile jobs, and the start of the kiln-store process that reads them from a
 * pipe. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create, posix_spawn_file_actions_addclosefrom_np */
#endif
#include "programs/compile_job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "util/clock.h"
#include "util/environment.h"
#include "util/log.h"

/* A program needs some milliseconds to begin, and more on a machine that has no time. */
#define LONGEST_START_MS 1000

/* ---- as bytes ---- */

static void write_field(const void *bytes, size_t length, struct kiln__text *text)
{
    kiln__text_add_bytes(text, &length, sizeof length);
    kiln__text_add_bytes(text, bytes, length);
    kiln__text_add_bytes(text, "", 1);
}

static bool read_field(struct kiln__span *rest, struct kiln__span *field)
{
    const char *at = rest->bytes;
    size_t length;
    if (rest->length < sizeof length)
        return false;
    memcpy(&length, at, sizeof length);
    at += sizeof length;
    rest->length -= sizeof length;
    if (length >= rest->length || at[length])
        return false;
    *field = (struct kiln__span){at, length};
    *rest = (struct kiln__span){at + length + 1, rest->length - length - 1};
    return true;
}

static bool read_value(struct kiln__span *rest, void *value, size_t size)
{
    struct kiln__span field;
    if (!read_field(rest, &field) || field.length != size)
        return false;
    memcpy(value, field.bytes, size);
    return true;
}

static bool read_string(struct kiln__span *rest, const char **string)
{
    struct kiln__span field;
    bool read = read_field(rest, &field) && strlen(field.bytes) == field.length;
    if (read)
        *string = field.bytes;
    return read;
}

void kiln__compile_job_write_head(const struct kiln__compile_job_head *head,
                                  struct kiln__text *text)
{
    write_field(head->folder, strlen(head->folder), text);
    write_field(&head->limit, sizeof head->limit, text);
    write_field(head->shared.bytes, head->shared.length, text);
    write_field(&head->hurry, sizeof head->hurry, text);
}

bool kiln__compile_job_read_head(struct kiln__span *rest, struct kiln__compile_job_head *head)
{
    return read_string(rest, &head->folder) && read_value(rest, &head->limit, sizeof head->limit) &&
           read_field(rest, &head->shared) && read_value(rest, &head->hurry, sizeof head->hurry);
}

void kiln__compile_job_write(const struct kiln__compile_job *job, struct kiln__text *text)
{
    const char *const strings[] = {job->options, job->source, job->kernel, job->variants};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        write_field(strings[i], strlen(strings[i]), text);
}

bool kiln__compile_job_read(struct kiln__span *rest, struct kiln__compile_job *job)
{
    return read_string(rest, &job->options) && read_string(rest, &job->source) &&
           read_string(rest, &job->kernel) && read_string(rest, &job->variants);
}

/* ---- starting ---- */

/* A descriptor that stands in the way of none of the process's 0, 1 and 2. */
static int above_standard(int fd)
{
    int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (fd >= 0)
        close(fd);
    return moved;
}

static int write_file(const struct kiln__text *jobs)
{
    int file = above_standard(memfd_create("kiln-store", MFD_CLOEXEC));
    size_t done = 0;
    while (file >= 0 && done < jobs->length) {
        ssize_t wrote = pwrite(file, jobs->data + done, jobs->length - done, (off_t)done);
        if (wrote > 0)
            done += (size_t)wrote;
        else if (wrote == 0 || errno != EINTR) {
            close(file);
            return -1;
        }
    }
    return file;
}

/* The program's own path; in a build folder the environment names it. */
static const char *path_of_program(void)
{
    const char *path = kiln__environment("KILN_STORE_PROGRAM");
    return path ? path : KILN_STORE_PROGRAM;
}

/* 0 or an errno. None of this process's signals, files and terminal are the other's. */
static int spawn(int file, int answers, char **environment, pid_t *child)
{
    char *const arguments[] = {(char *)"kiln-store", NULL};
    const short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSID;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    int error = posix_spawn_file_actions_init(&files);
    if (error)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (!error) {
        posix_spawnattr_setsigdefault(&attributes, &all);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setflags(&attributes, flags);
        error = posix_spawn_file_actions_adddup2(&files, file, 0);
    }
    if (!error)
        error = posix_spawn_file_actions_adddup2(&files, answers, 1);
    if (!error)
        error = posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    if (!error)
        error = posix_spawn_file_actions_addclosefrom_np(&files, 3);
    if (!error)
        error = posix_spawn(child, path_of_program(), &files, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return error;
}

int kiln__compile_job_start(const struct kiln__text *jobs, pid_t *child)
{
    int sockets[2], error = EPERM;
    if (jobs->failed || getauxval(AT_SECURE) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets))
        return -1;
    int file = write_file(jobs);
    char **environment = kiln__environment_of_child();
    sockets[1] = above_standard(sockets[1]);
    if (file >= 0 && sockets[1] >= 0 && environment)
        error = spawn(file, sockets[1], environment, child);
    free(environment);
    if (file >= 0)
        close(file);
    if (sockets[1] >= 0)
        close(sockets[1]);
    if (!error)
        return sockets[0];
    KILN__LOG(KILN__LOG_WARN, "%s cannot be started: %s", path_of_program(), strerror(error));
    close(sockets[0]);
    return -1;
}

/* ---- letting go ---- */

/* Whether it ends within LONGEST_START_MS. A program that waits for all its children may have taken
 * the end along: that is no error. */
static bool has_ended(pid_t child)
{
    const int64_t until = kiln__now() + LONGEST_START_MS * KILN__MS;
    int status;
    pid_t found;
    while (!(found = waitpid(child, &status, WNOHANG)) || (found < 0 && errno == EINTR)) {
        if (kiln__now() >= until)
            return false;
        kiln__sleep(KILN__MS);
    }
    return true;
}

bool kiln__compile_job_let_go(pid_t child)
{
    if (has_ended(child))
        return true;
    KILN__LOG(KILN__LOG_WARN, "%s does not go on by itself and is killed", path_of_program());
    kill(-child, SIGKILL); /* it leads a session */
    has_ended(child);
    return false;
}

/* ---- answers ---- */

char kiln__compile_job_listen(int answers, int seconds)
{
    struct pollfd end = {.fd = answers, .events = POLLIN};
    char answer = 0;
    int heard;
    do
        heard = poll(&end, 1, seconds * 1000);
    while (heard < 0 && errno == EINTR);
    while (heard > 0 && read(answers, &answer, 1) < 0 && errno == EINTR)
        continue;
    return answer;
}
