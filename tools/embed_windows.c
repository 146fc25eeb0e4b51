/* SPDX-License-Identifier: Apache-2.0 */
/* Windows of lines on their way through `kiln embed`, a thread for each part of it:
 *
 *     reads lines, cuts them into tokens -> asks the executor -> waits for vectors, writes them
 *
 * Windows go round and come out in the order of their lines. While one is computed the next ones
 * are read and the last ones are written, so that an executor that keeps up with these always has
 * lines to choose from, and no more than all windows are in memory. The first failure ends it: the
 * threads leave, and the caller waits for what was asked, whose memory is lent until then. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "embed.h"

/* One that is read, one that waits, one that is asked, one that is written. */
enum { WINDOWS = 4 };

#define GLANCE_NS 100000000 /* how often the time goes on while nothing is ready */

struct window {
    struct embed_lines lines;
    float *vectors;
    kiln_future **futures; /* in the order in which they were asked */
    size_t asked;          /* so many futures are there */
};

struct embed_windows {
    const struct embed_windows_options *options;
    struct window windows[WINDOWS];
    pthread_mutex_t lock; /* guards what follows, which says whose turn a window is, and how many of
                             its lines were asked */
    pthread_cond_t changed;
    size_t read, written; /* windows, from the first */
    bool ended;           /* none is read any more */
    bool failed;
};

/* ---- failing ---- */

/* The first failure is said. */
static void fail(struct embed_windows *all, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void fail(struct embed_windows *all, const char *format, ...)
{
    va_list arguments;
    pthread_mutex_lock(&all->lock);
    bool first = !all->failed;
    all->failed = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    if (!first)
        return;
    va_start(arguments, format);
    fputs("kiln embed: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
}

static size_t line_number(const struct window *window, uint32_t line)
{
    return window->lines.first + line + 1;
}

/* ---- turns ---- */

static struct window *window_at(struct embed_windows *all, size_t number)
{
    return &all->windows[number % WINDOWS];
}

static bool is_read(const struct embed_windows *all, size_t number)
{
    return number < all->read;
}

/* Whether there is memory for it. */
static bool has_place(const struct embed_windows *all, size_t number)
{
    return number < all->written + WINDOWS;
}

/* Wait until that is so; false: it never will be. */
static bool wait_for_turn(struct embed_windows *all, size_t number,
                          bool (*is_so)(const struct embed_windows *, size_t))
{
    pthread_mutex_lock(&all->lock);
    while (!all->failed && !all->ended && !is_so(all, number))
        pthread_cond_wait(&all->changed, &all->lock);
    bool turn = !all->failed && is_so(all, number);
    pthread_mutex_unlock(&all->lock);
    return turn;
}

static void count(struct embed_windows *all, size_t *windows)
{
    pthread_mutex_lock(&all->lock);
    ++*windows;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
}

/* ---- reading ---- */

static bool read_window(struct embed_windows *all, size_t number)
{
    const struct embed_windows_options *options = all->options;
    struct window *window = window_at(all, number);
    if (!embed_read_lines(options->source, &window->lines)) {
        fail(all, "%s: %s", options->source->path, strerror(errno));
        return false;
    }
    if (!embed_cut_lines(options->cutters, options->max_length, &window->lines)) {
        fail(all, "out of memory");
        return false;
    }
    if (window->lines.count)
        count(all, &all->read);
    return window->lines.count;
}

static void *read_all(void *user)
{
    struct embed_windows *all = user;
    size_t number = 1;
    while (wait_for_turn(all, number, has_place) && read_window(all, number))
        number++;
    pthread_mutex_lock(&all->lock);
    all->ended = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* ---- asking ---- */

static bool has_failed(struct embed_windows *all)
{
    pthread_mutex_lock(&all->lock);
    bool failed = all->failed;
    pthread_mutex_unlock(&all->lock);
    return failed;
}

static bool ask_line(struct embed_windows *all, struct window *window, uint32_t line)
{
    const struct embed_lines *lines = &window->lines;
    const struct embed_model *model = all->options->model;
    size_t length = embed_line_length(lines, line), width = model->width;
    const kiln_input input = {lines->ids + lines->starts[line], length * sizeof(int32_t), KILN_I32};
    const kiln_output output = {window->vectors + line * width, width * sizeof(float), KILN_F32};
    kiln_request_options options = KILN_REQUEST_OPTIONS_INIT;
    options.length = length;
    if (kiln_executor_submit(model->executor, &input, &output, 1, &options,
                             &window->futures[window->asked])) {
        fail(all, "line %zu: %s", line_number(window, line), kiln_last_error());
        return false;
    }
    pthread_mutex_lock(&all->lock);
    window->asked++;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    return true;
}

static bool ask_window(struct embed_windows *all, struct window *window)
{
    if (!window->vectors) {
        window->vectors = calloc(EMBED_WINDOW * all->options->model->width, sizeof(float));
        window->futures = calloc(EMBED_WINDOW, sizeof(kiln_future *));
    }
    if (!window->vectors || !window->futures) {
        fail(all, "out of memory");
        return false;
    }
    bool fine = true;
    for (size_t i = 0; i < window->lines.count && fine; i++)
        fine = !has_failed(all) && ask_line(all, window, window->lines.order[i]);
    return fine;
}

static void *ask_all(void *user)
{
    struct embed_windows *all = user;
    size_t number = 0;
    while (wait_for_turn(all, number, is_read) && ask_window(all, window_at(all, number)))
        number++;
    return NULL;
}

/* ---- writing ---- */

static void glance(struct embed_windows *all)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += GLANCE_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&all->changed, &all->lock, &until);
}

/* Wait until more than `known` lines of the window were asked; how many. */
static size_t wait_until_asked(struct embed_windows *all, const struct window *window, size_t known)
{
    const struct embed_windows_options *options = all->options;
    pthread_mutex_lock(&all->lock);
    while (!all->failed && window->asked == known) {
        glance(all);
        pthread_mutex_unlock(&all->lock);
        options->goes_on(options->user, 0, 0);
        pthread_mutex_lock(&all->lock);
    }
    known = all->failed ? 0 : window->asked;
    pthread_mutex_unlock(&all->lock);
    return known;
}

static bool await_window(struct embed_windows *all, struct window *window)
{
    const struct embed_windows_options *options = all->options;
    const struct embed_lines *lines = &window->lines;
    size_t known = 0;
    for (size_t i = 0; i < lines->count; i++) {
        if (i == known)
            known = wait_until_asked(all, window, known);
        if (i >= known)
            return false;
        if (kiln_future_wait(window->futures[i])) {
            fail(all, "line %zu: %s", line_number(window, lines->order[i]), kiln_last_error());
            return false;
        }
        options->goes_on(options->user, 1, embed_line_length(lines, lines->order[i]));
    }
    return true;
}

/* Futures of a window in which nothing is under way any more, or is waited for here. */
static void release_futures(struct window *window)
{
    for (size_t i = 0; i < window->asked; i++) {
        kiln_status ignored = kiln_future_wait(window->futures[i]);
        (void)ignored;
        kiln_future_release(window->futures[i]);
    }
    window->asked = 0;
}

static bool write_window(struct embed_windows *all, struct window *window)
{
    if (!await_window(all, window))
        return false;
    release_futures(window);
    if (embed_write(all->options->output, window->vectors, window->lines.count)) {
        count(all, &all->written);
        return true;
    }
    pthread_mutex_lock(&all->lock); /* which was said */
    all->failed = true;
    pthread_cond_broadcast(&all->changed);
    pthread_mutex_unlock(&all->lock);
    return false;
}

/* ---- all of it ---- */

struct embed_windows *embed_begin_windows(const struct embed_windows_options *options,
                                          const struct embed_lines **first)
{
    struct embed_windows *all = calloc(1, sizeof *all);
    if (!all) {
        fputs("kiln embed: out of memory\n", stderr);
        return NULL;
    }
    all->options = options;
    pthread_mutex_init(&all->lock, NULL);
    pthread_cond_init(&all->changed, NULL);
    (void)read_window(all, 0);
    *first = &all->windows[0].lines;
    if (!all->failed)
        return all;
    embed_end_windows(all);
    return NULL;
}

bool embed_run_windows(struct embed_windows *all)
{
    pthread_t reads, asks;
    bool reading = !pthread_create(&reads, NULL, read_all, all);
    bool asking = reading && !pthread_create(&asks, NULL, ask_all, all);
    if (!asking)
        fail(all, "there can be no further thread");
    size_t number = 0;
    while (wait_for_turn(all, number, is_read) && write_window(all, window_at(all, number)))
        number++;
    if (has_failed(all))
        embed_stop_source(all->options->source);
    if (reading)
        pthread_join(reads, NULL);
    if (asking)
        pthread_join(asks, NULL);
    return !all->failed;
}

void embed_end_windows(struct embed_windows *all)
{
    for (size_t i = 0; all && i < WINDOWS; i++) {
        struct window *window = &all->windows[i];
        release_futures(window);
        embed_free_lines(&window->lines);
        free(window->vectors);
        free(window->futures);
    }
    if (all) {
        pthread_mutex_destroy(&all->lock);
        pthread_cond_destroy(&all->changed);
    }
    free(all);
}
