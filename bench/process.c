/* SPDX-License-Identifier: Apache-2.0 */
/* Peers as child processes: a line protocol on pipes, arrays in shared memory. */
#define _GNU_SOURCE
#include "process.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kiln/kiln.h>

#include "bench.h"
#include "family.h"

#define LINE 256

struct process {
    pid_t child; /* a process group of its own */
    FILE *to, *from;
    const char *name;
    char modes[LINE];
    const char *mode[PROCESS_MODES + 1];
};

static struct share {
    char file[64];
    int descriptor;
    float *memory; /* inputs, then results */
    size_t bytes, input_count;
} share = {.descriptor = -1};

/* ---- data ---- */

size_t process_count(const struct process_shape *shape)
{
    size_t count = 1;
    for (size_t d = 0; d < shape->rank; d++)
        count *= shape->dims[d];
    return count;
}

static void release_share(void)
{
    if (share.memory)
        munmap(share.memory, share.bytes);
    if (share.descriptor >= 0) {
        close(share.descriptor);
        unlink(share.file);
    }
    share = (struct share){.descriptor = -1};
}

static void open_share(void)
{
    const char *folder = getenv("TMPDIR");
    if (!folder)
        folder = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    snprintf(share.file, sizeof share.file, "%.40s/kiln-bench.XXXXXX", folder);
    share.descriptor = mkostemp(share.file, O_CLOEXEC);
    if (share.descriptor < 0 || ftruncate(share.descriptor, (off_t)share.bytes))
        bench_fail("%s: no file of %zu bytes", share.file, share.bytes);
    share.memory = mmap(NULL, share.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, share.descriptor, 0);
    if (share.memory == MAP_FAILED)
        bench_fail("%s cannot be mapped", share.file);
}

float *process_share(size_t input_count, size_t result_count)
{
    release_share();
    share.input_count = input_count;
    share.bytes = (input_count + result_count) * sizeof(float);
    if (share.bytes)
        open_share();
    return share.memory;
}

float *process_results(void)
{
    return share.memory + share.input_count;
}

/* ---- stopped and going ---- */

static void stop(const struct process *process)
{
    int status;
    kill(-process->child, SIGSTOP);
    while (waitpid(process->child, &status, WUNTRACED) == process->child && !WIFSTOPPED(status))
        bench_fail("%s ended", process->name);
}

static void wake(const struct process *process)
{
    kill(-process->child, SIGCONT);
}

/* ---- all others ---- */

void process_freeze_others(const struct process *process)
{
    family_freeze(process ? process->child : 0);
}

void process_thaw_others(void)
{
    family_thaw();
}

/* ---- lines ---- */

static bool read_answer(struct process *process, char text[LINE])
{
    if (!fgets(text, LINE, process->from))
        return false;
    text[strcspn(text, "\n")] = 0;
    return true;
}

/* Sends the line and takes its answer; the peer goes meanwhile. */
static const char *ask(struct process *process, const char *line)
{
    static char text[LINE];
    wake(process);
    fprintf(process->to, "%s\n", line);
    fflush(process->to);
    if (!read_answer(process, text))
        bench_fail("%s ended at \"%s\"", process->name, line);
    stop(process);
    return text;
}

/* ---- start and end ---- */

/* A peer has the thread policy that it has where nobody sets one: not this program's. */
static void exec_child(const int to[2], const int from[2], const char *const *arguments)
{
    setpgid(0, 0);
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

struct process *process_start(const char *const *arguments)
{
    struct process *process = calloc(1, sizeof *process);
    char text[LINE];
    int to[2], from[2];
    if (!process || pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC))
        bench_fail("%s: no pipe or no memory", arguments[0]);
    signal(SIGPIPE, SIG_IGN);
    family_adopt();
    process->name = arguments[1] ? arguments[2] : arguments[0];
    fflush(NULL);
    process->child = fork();
    if (process->child == 0)
        exec_child(to, from, arguments);
    setpgid(process->child, process->child);
    close(to[0]);
    close(from[1]);
    process->to = fdopen(to[1], "w");
    process->from = fdopen(from[0], "r");
    if (process->child > 0 && process->to && process->from && read_answer(process, text) &&
        !strcmp(text, "ok")) {
        stop(process);
        return process;
    }
    process_end(process);
    return NULL;
}

void process_end(struct process *process)
{
    if (!process)
        return;
    if (process->child > 0) {
        kill(-process->child, SIGKILL);
        waitpid(process->child, NULL, 0);
    }
    if (process->to)
        fclose(process->to);
    if (process->from)
        fclose(process->from);
    free(process);
}

/* ---- a row ---- */

static void split_modes(struct process *process, const char *answer)
{
    size_t count = 0;
    snprintf(process->modes, sizeof process->modes, "%s", answer);
    strtok(process->modes, " "); /* "ok" */
    while (count < PROCESS_MODES && (process->mode[count] = strtok(NULL, " ")))
        count++;
    process->mode[count] = NULL;
}

void process_describe(size_t input_count, const struct process_shape *shapes, char *text,
                      size_t size)
{
    size_t used = (size_t)snprintf(text, size, " %zu", input_count);
    for (size_t i = 0; i < input_count && used < size; i++) {
        used += (size_t)snprintf(text + used, size - used, " %s %zu",
                                 kiln_type_name(shapes[i].type ? shapes[i].type : KILN_F32),
                                 shapes[i].rank);
        for (size_t d = 0; d < shapes[i].rank && used < size; d++)
            used += (size_t)snprintf(text + used, size - used, " %zu", shapes[i].dims[d]);
    }
    if (used >= size)
        bench_fail("a row's shapes are too long to be told");
}

bool process_take(struct process *process, const char *name, size_t input_count,
                  const struct process_shape *shapes, size_t result_count)
{
    char described[1024], line[1280];
    process_describe(input_count, shapes, described, sizeof described);
    snprintf(line, sizeof line, "row %s %s%s %zu", name, share.file, described, result_count);
    split_modes(process, ask(process, line));
    return process->mode[0];
}

const char *process_mode(const struct process *process, size_t mode)
{
    return process->mode[mode];
}

static const char *ask_of(struct process *process, const char *verb, size_t mode)
{
    char line[LINE];
    snprintf(line, sizeof line, "%s %s", verb, process->mode[mode]);
    return ask(process, line);
}

double process_run(struct process *process, size_t mode)
{
    return strtod(ask_of(process, "run", mode), NULL);
}

void process_result(struct process *process, size_t mode)
{
    if (strcmp(ask_of(process, "result", mode), "ok"))
        bench_fail("%s gave no result", process->name);
}

const char *process_check(struct process *process, double tolerance, bool *known)
{
    char line[LINE];
    snprintf(line, sizeof line, "check %g", tolerance);
    const char *answer = ask(process, line);
    *known = strcmp(answer, "no");
    return !*known || !strcmp(answer, "ok") ? NULL : answer;
}
