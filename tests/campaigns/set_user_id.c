/* SPDX-License-Identifier: Apache-2.0 */
/* A set-user-id program that uses kiln, started by somebody who chose its environment: no variable
 * of kiln's may count. The program is a copy of this one, of root's; nobody (65534) starts it with
 * variables that name files of root's. Beforehand root starts it without that bit, and there they
 * do count. Only root can run this. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_PATH, environ */
#endif
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/kiln.h>

#include "../support/cache.h"

enum { NOBODY = 65534, SKIPPED = 77, NO_MORE_RIGHTS = 78 };

/* In the folder; what kiln would do with them. */
static const struct target {
    const char *variable, *file;
    bool made; /* by kiln; else it is there, and is written to */
} targets[] = {
    {"KILN_TRACE", "trace", false},
    {"KILN_EXPLAIN", "explanation", false},
    {"KILN_CACHE_DIR", "cache", true},
};
enum { TARGETS = sizeof targets / sizeof *targets };

static const char before[] = "root's own\n";

static void need(bool done, const char *what)
{
    if (done)
        return;
    perror(what);
    exit(99);
}

static void path_of(const char *file, char path[512])
{
    snprintf(path, 512, "%s/%s", fake_folder(), file);
}

/* ---- the program ---- */

static int use_kiln(void)
{
    const float values[4] = {1, 2, 3, 4};
    float sums[4] = {0};
    kiln_context *context;
    if (kiln_context_create(NULL, &context))
        return SKIPPED;
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 1, (size_t[]){4}, values);
    kiln_read(batch, kiln_add(batch, x, x), sums, sizeof sums);
    bool good = !kiln_batch_execute(batch) && sums[3] == 8;
    kiln_batch_release(batch);
    kiln_context_release(context);
    return !good;
}

/* ---- around it ---- */

static void copy_program(const char *path)
{
    struct stat facts;
    int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    int to = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    need(from >= 0 && to >= 0 && !fstat(from, &facts), path);
    for (off_t done = 0; done < facts.st_size;)
        need(sendfile(to, from, &done, (size_t)(facts.st_size - done)) > 0, "sendfile");
    close(from);
    close(to);
}

static void set_environment(void)
{
    char path[512];
    for (int i = 0; i < TARGETS; i++) {
        path_of(targets[i].file, path);
        setenv(targets[i].variable, path, 1);
    }
    path_of("pocl", path);
    setenv("POCL_CACHE_DIR", path, 1);
}

static void lay_out(void)
{
    char path[512];
    for (int i = 0; i < TARGETS; i++) {
        path_of(targets[i].file, path);
        FILE *file = targets[i].made ? NULL : fopen(path, "w");
        need(targets[i].made || (file && fputs(before, file) >= 0 && !fclose(file)), path);
    }
}

/* By an open file: nobody may not walk through the folders that lead there. */
static void start(int program, bool as_nobody)
{
    const char *const arguments[] = {"set_user_id", "inside", NULL};
    if (as_nobody)
        need(!setgroups(0, NULL) && !setresgid(NOBODY, NOBODY, NOBODY) &&
                 !setresuid(NOBODY, NOBODY, NOBODY),
             "setresuid");
    syscall(SYS_execveat, program, "", arguments, environ, AT_EMPTY_PATH);
    _exit(98);
}

static int run(int program, bool as_nobody)
{
    int status = -1;
    lay_out();
    pid_t child = fork();
    if (child == 0)
        start(program, as_nobody);
    need(child > 0 && waitpid(child, &status, 0) == child, "waitpid");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}

static bool counted(const struct target *target)
{
    char path[512], text[sizeof before + 1] = "";
    path_of(target->file, path);
    if (target->made)
        return !access(path, F_OK);
    FILE *file = fopen(path, "r");
    need(file != NULL, path);
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    return length != strlen(before) || strcmp(text, before);
}

static int count_all(bool print)
{
    int count = 0;
    for (int i = 0; i < TARGETS; i++)
        if (counted(&targets[i])) {
            count++;
            if (print)
                printf("%s counted\n", targets[i].variable);
        }
    return count;
}

static int skip(const char *why)
{
    fake_end();
    printf("%s\n", why);
    return SKIPPED;
}

static int run_both(void)
{
    char path[512], cache[600];
    path_of("program", path);
    copy_program(path);
    int program = open(path, O_PATH | O_CLOEXEC);
    need(program >= 0, path);
    set_environment();
    int status = run(program, false);
    if (status == SKIPPED)
        return skip("no OpenCL device here");
    int usual = count_all(false);
    path_of("cache", path);
    snprintf(cache, sizeof cache, "rm -rf '%s'", path);
    need(!system(cache), cache);
    path_of("program", path);
    need(!chown(path, 0, 0) && !chmod(path, 04755), path);
    int secure_status = run(program, true);
    if (secure_status == NO_MORE_RIGHTS)
        return skip("a set-user-id program has no more rights than others here");
    int honoured = count_all(true);
    printf("%d of %d variables counted in a usual program, %d in a set-user-id program\n", usual,
           TARGETS, honoured);
    close(program);
    fake_end();
    return status || secure_status || usual != TARGETS || honoured;
}

/* As nobody, who has become root: drivers that ask access() need that for the real user, too. */
static int run_inside(void)
{
    if (getuid() && !getauxval(AT_SECURE))
        return NO_MORE_RIGHTS;
    need(!setresuid(0, 0, 0), "setresuid");
    return use_kiln();
}

int main(int argc, char **argv)
{
    if (argc > 1 && !strcmp(argv[1], "inside"))
        return run_inside();
    if (geteuid()) {
        puts("only root can make a set-user-id program of root's");
        return SKIPPED;
    }
    return run_both();
}
