/* SPDX-License-Identifier: Apache-2.0 */
/* Which storage type pays for products on a device: measured once, then remembered by the context,
 * and by the kernel cache for other ones. */
#include <stdio.h>
#include <string.h>

#include "programs/device_note.h"
#include "session/context.h"
#include "tune/measure_products.h"
#include "util/format.h"
#include "util/log.h"

/* A narrower type has to save a tenth of the time: beyond what the same products differ by from one
 * measurement to the next. */
#define PAYS 0.9

static const char subject[] = "best precision for products";

static size_t find_best(const struct kiln__measured *measured)
{
    size_t best = 0;
    for (size_t i = 1; i < measured->count; i++)
        if (measured->shares[i] <= PAYS && measured->shares[i] < measured->shares[best])
            best = i;
    return best;
}

/* "f16: f32 1.00, f16 0.62, bf16 0.63 of the time of f32, weights of 2048 x 2048" */
static void write_note(const struct kiln__measured *measured, char *note, size_t size)
{
    size_t at = 0;
    for (size_t i = 0; i < measured->count; i++) {
        const char *type = kiln_type_name(measured->types[i]);
        int length = i ? kiln__format(note + at, size - at, ", %s %.2f", type, measured->shares[i])
                       : kiln__format(note, size, "%s: %s 1.00",
                                      kiln_type_name(measured->types[find_best(measured)]), type);
        at += (size_t)length < size - at ? (size_t)length : size - at - 1;
    }
    snprintf(note + at, size - at, " of the time of f32, weights of %zu x %zu", measured->side,
             measured->side);
}

/* The type that a note names; 0: it names none. */
static kiln_type read_note(const char *note)
{
    const size_t length = strcspn(note, ":");
#define TYPE(name, value, bytes, ctype) KILN_##name,
    static const kiln_type types[] = {KILN_TYPE_MAP(TYPE)};
#undef TYPE
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const char *name = kiln_type_name(types[i]);
        if (strlen(name) == length && !strncmp(name, note, length) &&
            kiln__type_row(types[i])->floating)
            return types[i];
    }
    return (kiln_type)0;
}

/* The mutex is held. */
static kiln_status find_precision(kiln_context *context)
{
    struct kiln__programs *programs = context->runtime.programs;
    struct kiln__measured measured;
    char note[256];
    if (kiln__device_note_get(programs, subject, note, sizeof note)) {
        context->precision.type = read_note(note);
        if (context->precision.type)
            return KILN_OK;
    }
    kiln_status status = kiln__measure_products(context, &measured);
    if (status)
        return status;
    context->precision.type = measured.types[find_best(&measured)];
    write_note(&measured, note, sizeof note);
    KILN__LOG(KILN__LOG_INFO, "%s: %s", subject, note);
    kiln__device_note_put(programs, subject, note);
    return KILN_OK;
}

kiln_status kiln_context_best_precision(kiln_context *context, kiln_type *type)
{
    if (type)
        *type = KILN_F32;
    KILN__RETURN_IF_NULL(NULL, __func__, context, type);
    kiln_status status = kiln__runtime_check_process(&context->runtime, NULL);
    if (status)
        return status;
    pthread_mutex_lock(&context->precision.mutex);
    if (!context->precision.type)
        status = find_precision(context);
    if (!status)
        *type = context->precision.type;
    pthread_mutex_unlock(&context->precision.mutex);
    if (status) {
        struct kiln__error error = {.status = status};
        snprintf(error.text, sizeof error.text, "%s", kiln_last_error());
        kiln__error_within(&error, __func__);
    }
    return status;
}
