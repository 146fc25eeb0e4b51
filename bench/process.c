/* SPDX-License-Identifier: Apache-2.0 */
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

#include "bench.h"

struct process {
    pid_t child;
    FILE *to, *from;
    const char *name;
    char file[64];
    int descriptor;
    float *memory; /* of the row: inputs, then results */
    size_t bytes, input_count, result_count;
    double seconds;
};

static bool answer(struct process *process, char text[64])
{
    if (!fgets(text, 64, process->from))
        return false;
    text[strcspn(text, "\n")] = 0;
    return true;
}

static bool says_ok(struct process *process)
{
    char text[64];
    return answer(process, text) && !strcmp(text, "ok");
}

static void exec_child(const int to[2], const int from[2], const char *const *arguments)
{
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    for (int i = 0; i < 2; i++) {
        close(to[i]);
        close(from[i]);
    }
    execvp(arguments[0], (char *const *)arguments);
    _exit(127);
}

static bool open_file(struct process *process)
{
    const char *folder = getenv("TMPDIR");
    snprintf(process->file, sizeof process->file, "%.40s/kiln-bench.XXXXXX",
             folder ? folder : "/tmp");
    process->descriptor = mkstemp(process->file);
    return process->descriptor >= 0;
}

struct process *process_start(const char *const *arguments)
{
    struct process *process = calloc(1, sizeof *process);
    int to[2], from[2];
    if (!process || pipe2(to, O_CLOEXEC) || pipe2(from, O_CLOEXEC) || !open_file(process))
        bench_fail("%s: no pipe, no temporary file or no memory", arguments[0]);
    signal(SIGPIPE, SIG_IGN);
    process->name = arguments[0];
    process->child = fork();
    if (process->child == 0)
        exec_child(to, from, arguments);
    close(to[0]);
    close(from[1]);
    process->to = fdopen(to[1], "w");
    process->from = fdopen(from[0], "r");
    if (process->child > 0 && process->to && process->from && says_ok(process))
        return process;
    process_end(process);
    return NULL;
}

static void release_row(struct process *process)
{
    if (process->memory)
        munmap(process->memory, process->bytes);
    process->memory = NULL;
}

static size_t count_of(const struct process_shape *shape)
{
    size_t count = 1;
    for (size_t d = 0; d < shape->rank; d++)
        count *= shape->dims[d];
    return count;
}

static void map_row(struct process *process, size_t input_count, const struct process_shape *shapes,
                    const float *const *inputs)
{
    size_t place = 0;
    process->bytes = (process->input_count + process->result_count) * sizeof(float);
    if (ftruncate(process->descriptor, 0) || ftruncate(process->descriptor, (off_t)process->bytes))
        bench_fail("%s: %zu bytes do not fit into %s", process->name, process->bytes,
                   process->file);
    process->memory =
        mmap(NULL, process->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, process->descriptor, 0);
    if (process->memory == MAP_FAILED)
        bench_fail("%s: %s cannot be mapped", process->name, process->file);
    for (size_t i = 0; i < input_count; i++) {
        memcpy(process->memory + place, inputs[i], count_of(&shapes[i]) * sizeof(float));
        place += count_of(&shapes[i]);
    }
}

bool process_take(struct process *process, const char *name, size_t input_count,
                  const struct process_shape *shapes, const float *const *inputs,
                  size_t result_count)
{
    release_row(process);
    process->result_count = result_count;
    process->input_count = 0;
    for (size_t i = 0; i < input_count; i++)
        process->input_count += count_of(&shapes[i]);
    map_row(process, input_count, shapes, inputs);
    fprintf(process->to, "row %s %s %zu", name, process->file, input_count);
    for (size_t i = 0; i < input_count; i++) {
        fprintf(process->to, " %zu", shapes[i].rank);
        for (size_t d = 0; d < shapes[i].rank; d++)
            fprintf(process->to, " %zu", shapes[i].dims[d]);
    }
    fprintf(process->to, " %zu\n", result_count);
    fflush(process->to);
    return says_ok(process);
}

void process_run(struct process *process)
{
    char text[64];
    fputs("run\n", process->to);
    fflush(process->to);
    if (!answer(process, text))
        bench_fail("%s ended during a run", process->name);
    process->seconds = strtod(text, NULL);
}

double process_seconds(const struct process *process)
{
    return process->seconds;
}

const float *process_result(struct process *process)
{
    fputs("result\n", process->to);
    fflush(process->to);
    if (!says_ok(process))
        bench_fail("%s gave no result", process->name);
    return process->memory + process->input_count;
}

void process_end(struct process *process)
{
    if (!process)
        return;
    release_row(process);
    if (process->to)
        fclose(process->to);
    if (process->from)
        fclose(process->from);
    if (process->child > 0)
        waitpid(process->child, NULL, 0);
    close(process->descriptor);
    unlink(process->file);
    free(process);
}
