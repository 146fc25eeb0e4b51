/* SPDX-License-Identifier: Apache-2.0 */
/* Files of a model, which are found by their names: NAME-00001-of-00003.gguf is the first of three.
 * It has all keys, and says how many files and tensors there are; each other one says its number.
 * https://github.com/ggml-org/llama.cpp/tree/master/tools/gguf-split */
#include "lm/gguf_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lm/error.h"

enum { MOST_FILES = 99999 }; /* five digits */

struct kiln__gguf_file {
    void *data;
    size_t bytes;
};

static kiln_status map_file(const char *path, struct kiln__gguf_file *made)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    if (file < 0 || fstat(file, &about)) {
        const int why = errno;
        if (file >= 0)
            close(file);
        return kiln__lm_fail(KILN_IO_ERROR, "kiln_lm_load: %s: %s", path, strerror(why));
    }
    const bool fits =
        S_ISREG(about.st_mode) && about.st_size > 0 && (uintmax_t)about.st_size <= PTRDIFF_MAX;
    const size_t bytes = fits ? (size_t)about.st_size : 0;
    void *data =
        fits ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, file, 0)
             : MAP_FAILED;
    const int why = errno;
    close(file);
    if (!fits)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s is empty, or no file", path);
    if (data == MAP_FAILED)
        return kiln__lm_fail(KILN_IO_ERROR, "kiln_lm_load: %s: %s", path, strerror(why));
    *made = (struct kiln__gguf_file){data, bytes};
    return KILN_OK;
}

/* Map and read the next file. */
static kiln_status read_next(const char *path, struct kiln__gguf_files *files,
                             struct kiln__gguf *gguf)
{
    struct kiln__gguf_file *file = &files->files[files->count];
    kiln_status status = map_file(path, file);
    if (status)
        return status;
    files->count++;
    return kiln__gguf_read(path, file->data, file->bytes, gguf);
}

/* What a file says of itself; one that says nothing is 0 of 1. */
struct place {
    uint64_t number, count;
};

static kiln_status read_place(const struct kiln__gguf *gguf, struct place *place)
{
    const kiln_status status = kiln__gguf_whole(gguf, "split.count", MOST_FILES, &place->count);
    if (!place->count)
        place->count = 1;
    return status ? status : kiln__gguf_whole(gguf, "split.no", MOST_FILES, &place->number);
}

/* Where the number of files stands in the first one's path; NULL: it is not called so. */
static const char *find_end(const char *path, uint64_t count)
{
    char end[32];
    const size_t length = strlen(path);
    const size_t own = (size_t)snprintf(end, sizeof end, "-00001-of-%05u.gguf", (unsigned)count);
    return length > own && !strcmp(path + length - own, end) ? path + length - own : NULL;
}

static kiln_status add_tensors(struct kiln__gguf *all, const struct kiln__gguf *more)
{
    const size_t count = all->n_tensors + more->n_tensors;
    struct kiln__gguf_tensor *tensors = realloc(all->tensors, (count + 1) * sizeof *tensors);
    if (!tensors)
        return kiln__lm_no_memory("kiln_lm_load");
    all->tensors = tensors;
    if (more->n_tensors)
        memcpy(tensors + all->n_tensors, more->tensors, more->n_tensors * sizeof *tensors);
    all->n_tensors = count;
    return KILN_OK;
}

static kiln_status read_more(const char *path, struct place wanted, struct kiln__gguf_files *files)
{
    struct kiln__gguf gguf = {.path = path};
    struct place place = {0, 1};
    kiln_status status = read_next(path, files, &gguf);
    if (status)
        return status;
    status = read_place(&gguf, &place);
    if (!status && (place.number != wanted.number || place.count != wanted.count))
        status =
            kiln__lm_fail(KILN_INVALID_ARGUMENT, "kiln_lm_load: %s says that it is file %u of %u",
                          path, (unsigned)place.number + 1, (unsigned)place.count);
    if (!status)
        status = add_tensors(&files->gguf, &gguf);
    kiln__gguf_free(&gguf);
    return status;
}

/* All files behind the first, by their names. */
static kiln_status read_others(const char *path, uint64_t count, struct kiln__gguf_files *files)
{
    const char *end = find_end(path, count);
    if (!end)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "kiln_lm_load: %s is the first of %u files, which are found only if "
                             "its name ends with -00001-of-%05u.gguf",
                             path, (unsigned)count, (unsigned)count);
    const size_t begin = (size_t)(end - path), room = strlen(path) + 1;
    char *other = malloc(room);
    kiln_status status = other ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
    for (uint64_t i = 1; i < count && !status; i++) {
        snprintf(other, room, "%.*s-%05u-of-%05u.gguf", (int)begin, path, (unsigned)i + 1,
                 (unsigned)count);
        status = read_more(other, (struct place){i, count}, files);
    }
    free(other);
    return status;
}

/* As many as the first file says, and no name twice. */
static kiln_status check_tensors(struct kiln__gguf *gguf)
{
    uint64_t count = gguf->n_tensors;
    kiln_status status = kiln__gguf_whole(gguf, "split.tensors.count", INT32_MAX, &count);
    if (!status && count != gguf->n_tensors)
        status = kiln__lm_fail(KILN_INVALID_ARGUMENT,
                               "kiln_lm_load: %s: its files have %zu tensors, not %u as it says",
                               gguf->path, gguf->n_tensors, (unsigned)count);
    return status ? status : kiln__gguf_order(gguf);
}

static kiln_status read_all(const char *path, struct kiln__gguf_files *files)
{
    struct place place = {0, 1};
    kiln_status status = read_next(path, files, &files->gguf);
    if (!status)
        status = read_place(&files->gguf, &place);
    if (status || place.count == 1)
        return status;
    if (place.number)
        return kiln__lm_fail(KILN_INVALID_ARGUMENT,
                             "kiln_lm_load: %s is file %u of %u; name the first one", path,
                             (unsigned)place.number + 1, (unsigned)place.count);
    struct kiln__gguf_file *more = realloc(files->files, place.count * sizeof *more);
    if (!more)
        return kiln__lm_no_memory("kiln_lm_load");
    files->files = more;
    status = read_others(path, place.count, files);
    return status ? status : check_tensors(&files->gguf);
}

kiln_status kiln__gguf_open(const char *path, struct kiln__gguf_files *files)
{
    *files = (struct kiln__gguf_files){.gguf = {.path = path}};
    files->files = calloc(1, sizeof *files->files);
    const kiln_status status =
        files->files ? read_all(path, files) : kiln__lm_no_memory("kiln_lm_load");
    if (status)
        kiln__gguf_close(files);
    return status;
}

void kiln__gguf_close(struct kiln__gguf_files *files)
{
    kiln__gguf_free(&files->gguf);
    for (size_t i = 0; i < files->count; i++)
        munmap(files->files[i].data, files->files[i].bytes);
    free(files->files);
}
