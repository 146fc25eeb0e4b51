/* SPDX-License-Identifier: Apache-2.0 */
#include "digits_saved.h"

#include <stdio.h>
#include <stdlib.h>

enum { OWN = 4, MOST = 64 };

/* Everything under its name. What lies in host memory has a buffer while it is saved or loaded. */
struct all {
    size_t n;
    const char *names[MOST];
    kiln_buffer *buffers[MOST];
    char words[MOST][40];
    const char **state; /* names of the optimiser's */
    struct {
        void *data;
        kiln_buffer *buffer;
    } own[OWN];
};

static void add(struct all *all, const char *name, kiln_buffer *buffer)
{
    all->names[all->n] = name;
    all->buffers[all->n++] = buffer;
}

static kiln_status add_own(struct all *all, kiln_context *context, size_t i, const char *name,
                           kiln_type type, size_t count, void *data)
{
    all->own[i].data = data;
    kiln_status status = kiln_buffer_create(context, type, 1, &count, &all->own[i].buffer);
    add(all, name, all->own[i].buffer);
    return status;
}

static kiln_status collect(struct all *all, kiln_context *context, size_t n,
                           kiln_buffer *const *parameters, const kiln_optimizer *optimizer,
                           const struct progress *progress)
{
    size_t count;
    kiln_buffer *const *state = kiln_optimizer_state(optimizer, &count);
    *all = (struct all){0};
    if (n + count + OWN > MOST)
        return KILN_TOO_LARGE;
    for (size_t i = 0; i < n; i++) {
        snprintf(all->words[i], sizeof all->words[i], "parameter.%zu", i);
        add(all, all->words[i], parameters[i]);
    }
    kiln_status status = kiln_optimizer_state_names(optimizer, all->names, &all->state);
    for (size_t i = 0; i < count && !status; i++)
        add(all, all->state[i], state[i]);
    if (!status)
        status = add_own(all, context, 0, "epochs", KILN_I32, 1, progress->epochs);
    if (!status) /* 64 bits that are no number are two words */
        status = add_own(all, context, 1, "random", KILN_I32, 2, progress->random);
    if (!status)
        status = add_own(all, context, 2, "order", KILN_I32, progress->rows, progress->order);
    if (!status)
        status = add_own(all, context, 3, "losses", KILN_F32, progress->places, progress->losses);
    return status;
}

static kiln_status let_go(struct all *all, kiln_status status)
{
    kiln_free(all->state);
    for (size_t i = 0; i < OWN; i++)
        kiln_buffer_release(all->own[i].buffer);
    return status;
}

kiln_status digits_save(const char *path, kiln_context *context, size_t n,
                        kiln_buffer *const *parameters, const kiln_optimizer *optimizer,
                        const struct progress *progress)
{
    struct all all;
    kiln_status status = collect(&all, context, n, parameters, optimizer, progress);
    for (size_t i = 0; i < OWN && !status; i++)
        status = kiln_buffer_write(all.own[i].buffer, 0, all.own[i].data,
                                   kiln_buffer_bytes(all.own[i].buffer));
    if (!status)
        status = kiln_save(path, all.n, all.names, all.buffers);
    return let_go(&all, status);
}

kiln_status digits_resume(const char *path, kiln_context *context, size_t n,
                          kiln_buffer *const *parameters, const kiln_optimizer *optimizer,
                          const struct progress *progress)
{
    struct all all;
    kiln_status status = collect(&all, context, n, parameters, optimizer, progress);
    if (!status)
        status = kiln_load_into(path, all.n, all.names, all.buffers);
    for (size_t i = 0; i < OWN && !status; i++)
        status = kiln_buffer_read(all.own[i].buffer, 0, all.own[i].data,
                                  kiln_buffer_bytes(all.own[i].buffer));
    return let_go(&all, status);
}
