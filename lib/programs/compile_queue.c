/* SPDX-License-Identifier: Apache-2.0 */
/* Serialisation of compile jobs into a file in memory, and reading them there. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create */
#endif
#include "programs/compile_queue.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "util/hash.h"
#include "util/open_file.h"

/* ---- texts ---- */

static void write_bytes(const void *bytes, size_t length, struct kiln__text *text)
{
    kiln__text_add_bytes(text, &length, sizeof length);
    kiln__text_add_bytes(text, bytes, length);
    kiln__text_add_bytes(text, "", 1);
}

static void write_string(const char *string, struct kiln__text *text)
{
    write_bytes(string, strlen(string), text);
}

/* Takes the next one off. */
static bool read_bytes(struct kiln__span *rest, struct kiln__span *bytes)
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
    *bytes = (struct kiln__span){at, length};
    *rest = (struct kiln__span){at + length + 1, rest->length - length - 1};
    return true;
}

static bool read_string(struct kiln__span *rest, const char **string)
{
    struct kiln__span bytes;
    bool read = read_bytes(rest, &bytes) && strlen(bytes.bytes) == bytes.length;
    if (read)
        *string = bytes.bytes;
    return read;
}

/* ---- jobs ---- */

/* `program` has no kernel yet. */
static bool is_same(const struct kiln__compile_text *text, const struct kiln__compile_text *job)
{
    const struct kiln__text *program = &job->program;
    return text->hash == job->hash && !text->program.failed && !program->failed &&
           text->program.length >= program->length &&
           !memcmp(text->program.data, program->data, program->length);
}

unsigned kiln__compile_jobs_add(struct kiln__compile_jobs *jobs,
                                const struct kiln__compile_job *job)
{
    struct kiln__compile_text text = {0};
    write_string(job->options, &text.program);
    write_string(job->source, &text.program);
    text.hash = kiln__hash64(text.program.data, text.program.length);
    for (unsigned i = 0; i < jobs->texts.count; i++)
        if (is_same(&jobs->texts.items[i], &text)) {
            kiln__text_free(&text.program);
            kiln__text_add(&jobs->texts.items[i].variants, ",%s", job->variants);
            return i;
        }
    write_string(job->kernel, &text.program);
    kiln__text_add(&text.variants, "%s", job->variants);
    struct kiln__compile_text *place = kiln__vector_push(&jobs->texts);
    if (!place) {
        jobs->failed = true;
        kiln__text_free(&text.program);
        kiln__text_free(&text.variants);
        return 0;
    }
    *place = text;
    return (unsigned)jobs->texts.count - 1;
}

void kiln__compile_jobs_free(struct kiln__compile_jobs *jobs)
{
    for (size_t i = 0; i < jobs->texts.count; i++) {
        kiln__text_free(&jobs->texts.items[i].program);
        kiln__text_free(&jobs->texts.items[i].variants);
    }
    kiln__vector_free(&jobs->texts);
}

static void write_jobs(const struct kiln__compile_jobs *jobs, struct kiln__text *text)
{
    for (size_t i = 0; i < jobs->texts.count; i++) {
        const struct kiln__compile_text *job = &jobs->texts.items[i];
        kiln__text_add_bytes(text, job->program.data, job->program.length);
        write_bytes(job->variants.data, job->variants.length, text);
        text->failed |= job->program.failed || job->variants.failed;
    }
}

/* ---- sharing ---- */

/* Written before it is mapped, so that it is an error where there is no memory, and no signal; nor
 * is there one for a file beyond the process's limit. */
static bool fill_file(int file, const struct kiln__text *text)
{
    struct rlimit most;
    size_t done = 0;
    if (getrlimit(RLIMIT_FSIZE, &most) || text->length > most.rlim_cur)
        return false;
    while (done < text->length) {
        ssize_t wrote = pwrite(file, text->data + done, text->length - done, (off_t)done);
        if (wrote == 0 || (wrote < 0 && errno != EINTR))
            return false;
        done += wrote > 0 ? (size_t)wrote : 0;
    }
    return true;
}

static int share(const struct kiln__text *text, struct kiln__compile_head **head)
{
    int file =
        text->failed ? -1 : kiln__file_above_standard(memfd_create("kiln-store", MFD_CLOEXEC));
    if (file < 0)
        return -1;
    void *bytes = MAP_FAILED;
    if (fill_file(file, text))
        bytes = mmap(NULL, text->length, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (bytes == MAP_FAILED) {
        close(file);
        return -1;
    }
    *head = bytes;
    return file;
}

int kiln__compile_jobs_share(const struct kiln__compile_jobs *jobs, const char *folder,
                             const struct kiln__text *shared, uint64_t limit, bool urgent,
                             struct kiln__compile_head **head, size_t *length)
{
    const struct kiln__compile_head begin = {
        .jobs = (unsigned)jobs->texts.count, .urgent = urgent, .limit = limit};
    struct kiln__text text = {.failed = jobs->failed};
    kiln__text_add_bytes(&text, &begin, sizeof begin);
    for (unsigned i = 0; i < begin.jobs; i++)
        kiln__text_add_bytes(&text, "", 1);
    write_string(folder, &text);
    write_bytes(shared->data, shared->length, &text);
    write_jobs(jobs, &text);
    int file = share(&text, head);
    *length = text.length;
    kiln__text_free(&text);
    return file;
}

/* ---- reading ---- */

bool kiln__compile_queue_open(void *bytes, size_t length, struct kiln__compile_queue *queue)
{
    struct kiln__compile_head *head = bytes;
    if (length < sizeof *head || head->jobs > length - sizeof *head)
        return false;
    size_t begin = sizeof *head + head->jobs;
    queue->head = head;
    queue->rest = (struct kiln__span){(const char *)bytes + begin, length - begin};
    return read_string(&queue->rest, &queue->folder) && read_bytes(&queue->rest, &queue->shared);
}

bool kiln__compile_queue_read(struct kiln__compile_queue *queue, struct kiln__compile_job *job)
{
    struct kiln__span *rest = &queue->rest;
    return read_string(rest, &job->options) && read_string(rest, &job->source) &&
           read_string(rest, &job->kernel) && read_string(rest, &job->variants);
}
