/* SPDX-License-Identifier: Apache-2.0 */
/* Bindings settled for runs: which share memory with others, which are misaligned, which buffers
 * they use. */
#include "runtime/bindings.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "util/index.h"

static void drop_wrapper(struct kiln__binding *binding)
{
    if (binding->host && binding->memory)
        clReleaseMemObject(binding->memory);
    if (binding->host)
        binding->memory = NULL;
}

void kiln__bindings_free(struct kiln__bindings *bindings)
{
    for (size_t i = 0; i < bindings->inputs.count; i++)
        drop_wrapper(&bindings->inputs.items[i]);
    for (size_t i = 0; i < bindings->results.count; i++)
        drop_wrapper(&bindings->results.items[i]);
    kiln__vector_free(&bindings->inputs);
    kiln__vector_free(&bindings->results);
    kiln__vector_free(&bindings->buffers);
    bindings->independent = false;
    bindings->checked = 0;
}

static int by_address(const void *a, const void *b)
{
    const struct kiln__use_of_buffer *x = a, *y = b;
    uintptr_t left = (uintptr_t)x->buffer, right = (uintptr_t)y->buffer;
    return left < right ? -1 : left > right;
}

struct kiln__use_of_buffer *kiln__bindings_find(const struct kiln__bindings *bindings,
                                                struct kiln_buffer *buffer)
{
    const struct kiln__use_of_buffer wanted = {.buffer = buffer};
    return buffer ? bsearch(&wanted, bindings->buffers.items, bindings->buffers.count,
                            sizeof wanted, by_address)
                  : NULL;
}

void kiln__bindings_move(struct kiln__bindings *bindings, struct kiln__binding *binding, void *host)
{
    if (binding->host == host)
        return;
    drop_wrapper(binding);
    binding->host = host;
    bindings->checked = 0;
}

bool kiln__bindings_overlap(const struct kiln__binding *a, const struct kiln__binding *b)
{
    if (!a->host || !b->host)
        return a->identity && a->identity == b->identity;
    const char *x = a->host, *y = b->host;
    return x < y + b->bytes && y < x + a->bytes;
}

static bool misaligned(const struct kiln__binding *binding)
{
    return binding->host && (uintptr_t)binding->host % binding->item;
}

/* ---- who shares memory with one that comes before ---- */

/* Host memory of a binding; inputs are numbered first. */
struct span {
    uintptr_t from, to;
    size_t number;
};

/* The spans by where they begin, and over them a tree that answers how far those among the first so
 * many reach which were added already (P. M. Fenwick, "A new data structure for cumulative
 * frequency tables", 1994). */
struct spans {
    struct span *by_start;
    size_t count;
    uintptr_t *reach; /* from 1 on */
};

static struct kiln__binding *binding_at(struct kiln__bindings *bindings, size_t number)
{
    return number < bindings->inputs.count
               ? &bindings->inputs.items[number]
               : &bindings->results.items[number - bindings->inputs.count];
}

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static bool make_spans(struct kiln__bindings *bindings, struct spans *spans)
{
    size_t all = bindings->inputs.count + bindings->results.count;
    spans->by_start = calloc(all + 1, sizeof *spans->by_start);
    spans->reach = calloc(all + 1, sizeof *spans->reach);
    if (!spans->by_start || !spans->reach)
        return false;
    for (size_t i = 0; i < all; i++) {
        const struct kiln__binding *binding = binding_at(bindings, i);
        uintptr_t from = (uintptr_t)binding->host;
        if (binding->host)
            spans->by_start[spans->count++] = (struct span){from, from + binding->bytes, i};
    }
    qsort(spans->by_start, spans->count, sizeof *spans->by_start, by_start);
    return true;
}

/* How many spans come before one that begins at `from` and has this number. */
static size_t rank_of(const struct spans *spans, uintptr_t from, size_t number)
{
    const struct span wanted = {.from = from, .number = number};
    size_t low = 0, high = spans->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (by_start(&spans->by_start[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void add_span(struct spans *spans, const struct span *span)
{
    size_t i = rank_of(spans, span->from, span->number) + 1;
    for (; i <= spans->count; i += i & -i)
        if (spans->reach[i] < span->to)
            spans->reach[i] = span->to;
}

/* Whether a span that was added begins before the end of this one, and ends after its beginning. */
static bool meets_earlier(const struct spans *spans, const struct span *span)
{
    size_t i = rank_of(spans, span->to, 0);
    for (; i; i -= i & -i)
        if (spans->reach[i] > span->from)
            return true;
    return false;
}

/* Inputs one after another, then results, each compared with all that come before. */
static bool find_overlaps(struct kiln__bindings *bindings, struct spans *spans,
                          struct kiln__index *buffers)
{
    size_t all = bindings->inputs.count + bindings->results.count;
    for (size_t i = 0; i < all; i++) {
        struct kiln__binding *binding = binding_at(bindings, i);
        uintptr_t from = (uintptr_t)binding->host, memory = binding->identity;
        const struct span span = {from, from + binding->bytes, i};
        size_t at = 0;
        uint32_t other;
        if (binding->host) {
            binding->overlaps = i >= bindings->inputs.count && meets_earlier(spans, &span);
            add_span(spans, &span);
            continue;
        }
        bool known = memory && kiln__index_find(buffers, memory, &at, &other);
        binding->overlaps = i >= bindings->inputs.count && known;
        if (memory && !known && !kiln__index_add(buffers, memory, (uint32_t)i))
            return false;
    }
    return true;
}

/* ---- buffers ---- */

static bool list_buffers(struct kiln__bindings *bindings)
{
    size_t all = bindings->inputs.count + bindings->results.count, kept = 0;
    bindings->buffers.count = 0;
    for (size_t i = 0; i < all; i++) {
        struct kiln_buffer *buffer = binding_at(bindings, i)->buffer;
        struct kiln__use_of_buffer *use = buffer ? kiln__vector_push(&bindings->buffers) : NULL;
        if (buffer && !use)
            return false;
        if (use)
            *use = (struct kiln__use_of_buffer){.buffer = buffer,
                                                .writes = i >= bindings->inputs.count};
    }
    struct kiln__use_of_buffer *uses = bindings->buffers.items;
    if (uses)
        qsort(uses, bindings->buffers.count, sizeof *uses, by_address);
    for (size_t i = 0; i < bindings->buffers.count; i++)
        if (kept && uses[kept - 1].buffer == uses[i].buffer)
            uses[kept - 1].writes |= uses[i].writes;
        else
            uses[kept++] = uses[i];
    bindings->buffers.count = kept;
    return true;
}

static uint64_t next_number(void)
{
    static atomic_uint_fast64_t last;
    return atomic_fetch_add(&last, 1) + 1;
}

bool kiln__bindings_check(struct kiln__bindings *bindings)
{
    struct spans spans = {0};
    struct kiln__index buffers = {0};
    size_t all = bindings->inputs.count + bindings->results.count;
    if (bindings->checked)
        return true;
    bool done = make_spans(bindings, &spans) && find_overlaps(bindings, &spans, &buffers) &&
                list_buffers(bindings);
    bindings->overlap = false;
    for (size_t i = 0; i < all && done; i++) {
        struct kiln__binding *binding = binding_at(bindings, i);
        bindings->overlap |= binding->overlaps;
        binding->needs_bounce =
            binding->overlaps || misaligned(binding) || (binding->is_part && !binding->host);
    }
    bindings->checked = done ? next_number() : 0;
    free(spans.by_start);
    free(spans.reach);
    kiln__index_clear(&buffers);
    return done;
}
