/* SPDX-License-Identifier: Apache-2.0 */
/* Test contexts, random data, and runs that have to succeed. */
#include "context.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/context.h"
#include "util/verify.h"

kiln_context *open_context_with(const kiln_context_options *options)
{
    kiln_context *context;
    size_t devices = 0;
    if (!kiln__verifies) /* threads of an earlier context may be reading it */
        kiln__verifies = true;
    if (kiln_device_count(&devices) || !devices)
        cr_skip("no OpenCL device here");
    cr_assert_eq(kiln_context_create(options, &context), KILN_OK, "%s", kiln_last_error());
    return context;
}

kiln_context *open_context(void)
{
    return open_context_with(NULL);
}

void close_context(kiln_context *context)
{
    cr_expect_eq(atomic_load(&context->references), 1, "something still holds the context");
    kiln_context_release(context);
}

void expect_ok(kiln_status status)
{
    cr_assert_eq(status, KILN_OK, "%s: %s", kiln_status_name(status), kiln_last_error());
}

void run_batch(kiln_batch *batch)
{
    expect_ok(kiln_batch_execute(batch));
}

const char *without_call(const char *sentence)
{
    static _Thread_local char text[4200];
    snprintf(text, sizeof text, "%s", sentence);
    char *call = strstr(text, ", call ");
    size_t digits = call ? strspn(call + strlen(", call "), "0123456789") : 0;
    const char *rest = digits ? call + strlen(", call ") + digits : NULL;
    if (rest && *rest == ':')
        memmove(call, rest, strlen(rest) + 1);
    return text;
}

void expect_error(kiln_status status, kiln_status wanted, const char *sentence)
{
    const char *found = without_call(kiln_last_error());
    cr_expect_eq(status, wanted, "%s instead of %s for: %s", kiln_status_name(status),
                 kiln_status_name(wanted), sentence);
    cr_expect_str_eq(found, sentence, "\"%s\" instead of \"%s\"", found, sentence);
}

void expect_error_part(kiln_status status, kiln_status wanted, const char *part)
{
    cr_expect_eq(status, wanted, "%s instead of %s for: %s", kiln_status_name(status),
                 kiln_status_name(wanted), part);
    cr_expect(strstr(without_call(kiln_last_error()), part) != NULL, "\"%s\" is not in \"%s\"",
              part, kiln_last_error());
}

void fill(float *values, size_t count, unsigned seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)((int)(seed >> 24) % 17 - 8);
    }
}

kiln_context_stats stats_of(const kiln_context *context)
{
    kiln_context_stats stats;
    expect_ok(kiln_context_get_stats(context, &stats));
    return stats;
}

kiln_batch_cost cost_of(kiln_batch *batch)
{
    kiln_batch_cost cost;
    expect_ok(kiln_batch_get_cost(batch, &cost));
    return cost;
}

bool explains(kiln_batch *batch, const char *part)
{
    char *text;
    expect_ok(kiln_batch_explain(batch, &text));
    bool found = strstr(text, part);
    kiln_free(text);
    return found;
}

void expect_product_by(kiln_batch *batch, const char *name)
{
    char part[64];
    snprintf(part, sizeof part, ", a product by %s", name);
    cr_expect(!*name || explains(batch, part), "another implementation is launched, not %s", name);
}

kiln_buffer *make_buffer(kiln_context *context, size_t n, const float *content)
{
    kiln_buffer *buffer;
    expect_ok(kiln_buffer_create(context, KILN_F32, 1, &n, &buffer));
    if (content)
        expect_ok(kiln_buffer_write(buffer, 0, content, n * sizeof *content));
    return buffer;
}

void expect_buffer(kiln_buffer *buffer, size_t n, const float *content)
{
    float *found = malloc((n + 1) * sizeof *found);
    cr_assert(found);
    expect_ok(kiln_buffer_read(buffer, 0, found, n * sizeof *found));
    for (size_t i = 0; i < n; i++)
        cr_assert_eq(found[i], content[i], "element %zu is %g, not %g", i, found[i], content[i]);
    free(found);
}
