/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a file, so many at a time. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "embed.h"

enum {
    BUFFER = 1 << 16,
    MOST_TEXT = 1 << 24 /* bytes of a window, unless its one line has more */
};

/* ---- a file ---- */

bool embed_open_source(struct embed_source *source, const char *path)
{
    bool named = path && strcmp(path, "-") != 0;
    *source = (struct embed_source){.path = named ? path : "standard input", .wake = {-1, -1}};
    source->buffer = malloc(BUFFER);
    source->fd = named ? open(path, O_RDONLY | O_CLOEXEC) : STDIN_FILENO;
    if (source->buffer && source->fd >= 0 && !pipe2(source->wake, O_CLOEXEC))
        return true;
    fprintf(stderr, "kiln embed: %s: %s\n", source->path, strerror(errno));
    return false;
}

void embed_close_source(struct embed_source *source)
{
    if (source->fd > STDIN_FILENO)
        close(source->fd);
    for (int i = 0; source->buffer && i < 2; i++)
        if (source->wake[i] >= 0)
            close(source->wake[i]);
    free(source->buffer);
}

void embed_stop_source(struct embed_source *source)
{
    ssize_t written = write(source->wake[1], "", 1);
    (void)written;
}

/* Have something in the buffer, unless the file has ended. False: `errno` says why not; ECANCELED:
 * it was stopped. */
static bool refill(struct embed_source *source)
{
    struct pollfd either[] = {{source->fd, POLLIN, 0}, {source->wake[0], POLLIN, 0}};
    ssize_t bytes = -1;
    while (bytes < 0) {
        if (poll(either, 2, -1) < 0 && errno != EINTR)
            return false;
        if (either[1].revents) {
            errno = ECANCELED;
            return false;
        }
        bytes = read(source->fd, source->buffer, BUFFER);
        if (bytes < 0 && errno != EINTR && errno != EAGAIN)
            return false;
    }
    source->begin = 0;
    source->end = (size_t)bytes;
    source->ended = bytes == 0;
    return true;
}

/* ---- a window's lines ---- */

static bool add_text(struct embed_lines *lines, const char *text, size_t bytes)
{
    if (lines->text_capacity - lines->text_bytes < bytes) {
        size_t capacity = 2 * lines->text_capacity + bytes;
        char *grown = realloc(lines->text, capacity);
        if (!grown)
            return false;
        lines->text = grown;
        lines->text_capacity = capacity;
    }
    memcpy(lines->text + lines->text_bytes, text, bytes);
    lines->text_bytes += bytes;
    return true;
}

/* The next line, with its end, if there is one. */
static bool read_line(struct embed_source *source, struct embed_lines *lines)
{
    size_t before = lines->text_bytes;
    bool whole = false;
    while (!whole) {
        if (source->begin == source->end && !source->ended && !refill(source))
            return false;
        if (source->ended)
            break;
        const char *from = source->buffer + source->begin;
        const char *end = memchr(from, '\n', source->end - source->begin);
        size_t bytes = end ? (size_t)(end + 1 - from) : source->end - source->begin;
        if (!add_text(lines, from, bytes))
            return false;
        source->begin += bytes;
        whole = end;
    }
    if (lines->text_bytes > before)
        lines->ends[lines->count++] = lines->text_bytes;
    return true;
}

static bool make_room(struct embed_lines *lines)
{
    if (lines->ends)
        return true;
    lines->ends = calloc(EMBED_WINDOW, sizeof *lines->ends);
    lines->starts = calloc(EMBED_WINDOW + 1, sizeof *lines->starts);
    lines->order = calloc(EMBED_WINDOW, sizeof *lines->order);
    return lines->ends && lines->starts && lines->order;
}

bool embed_read_lines(struct embed_source *source, struct embed_lines *lines)
{
    lines->count = lines->text_bytes = 0;
    lines->first = source->lines;
    bool fine = make_room(lines);
    while (fine && lines->count < EMBED_WINDOW && lines->text_bytes < MOST_TEXT && !source->ended)
        fine = read_line(source, lines);
    source->lines += lines->count;
    return fine;
}

size_t embed_line_length(const struct embed_lines *lines, uint32_t line)
{
    return lines->starts[line + 1] - lines->starts[line];
}

void embed_free_lines(struct embed_lines *lines)
{
    free(lines->text);
    free(lines->ends);
    free(lines->ids);
    free(lines->starts);
    free(lines->order);
}
