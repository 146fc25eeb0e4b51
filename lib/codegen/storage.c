/* SPDX-License-Identifier: Apache-2.0 */
/* Text of typed loads and stores: conversions between storage and compute types, vectors, packed
 * and narrow types. */
#include "codegen/storage.h"

#include <stdio.h>

#include "util/format.h"

static struct kiln__type_name wide_type(const char *type, unsigned width)
{
    struct kiln__type_name name;
    snprintf(name.text, sizeof name.text, width > 1 ? "%s%u" : "%s", type, width);
    return name;
}

struct kiln__type_name kiln__emit_type(kiln_type type, unsigned width)
{
    return wide_type(kiln__type_row(type)->device, width);
}

const char *kiln__emit_memory_type(kiln_type type)
{
    return kiln__type_row(type)->stored;
}

/* ---- between what is stored and what is computed ---- */

/* A call around a value. */
struct call {
    char before[56], after[48];
};

/* Into the type's range, which is smaller than that of its OpenCL C type. */
static struct call clamp(const struct kiln__type_row *row, unsigned width)
{
    struct call call = {.before = "clamp("};
    const struct kiln__type_name type = wide_type(row->device, width);
    kiln__format(call.after, sizeof call.after, ", (%s)(%.0f), (%s)(%.0f))", type.text, row->lowest,
                 type.text, row->highest);
    return call;
}

/* Functions of kernels/narrow.cl. */
static struct call narrow(const struct kiln__type_row *row, const char *verb, unsigned width)
{
    struct call call = {.after = ")"};
    snprintf(call.before, sizeof call.before, width > 1 ? "kiln_%s_%s%u(" : "kiln_%s_%s(",
             row->name, verb, width);
    return call;
}

static const struct call plain = {.before = ""};

/* Of an integer to one of another size, which holds it. */
static struct call convert(const char *type, unsigned width)
{
    struct call call = {.after = ")"};
    snprintf(call.before, sizeof call.before, "convert_%s(", wide_type(type, width).text);
    return call;
}

/* To what its storage holds of it: the lower bits. */
static struct call wrap(const struct kiln__type_row *row, unsigned width)
{
    struct call call = {.after = "))"};
    snprintf(call.before, sizeof call.before, "convert_%s(convert_%s(",
             wide_type(row->device, width).text, wide_type(row->stored, width).text);
    return call;
}

/* A narrower integer has every value of its OpenCL C type, one as wide (bool) perhaps not. */
static struct call on_load(kiln_type type, unsigned width)
{
    const struct kiln__type_row *row = kiln__type_row(type), *own = kiln__type_row(row->computed);
    return row == own                 ? plain
           : row->floating            ? narrow(row, "load", width)
           : row->bytes == own->bytes ? clamp(row, width)
                                      : convert(own->device, width);
}

static struct call on_store(kiln_type type, unsigned width)
{
    const struct kiln__type_row *row = kiln__type_row(type), *own = kiln__type_row(row->computed);
    return row->bytes == own->bytes ? plain
           : row->floating          ? narrow(row, "store", width)
                                    : convert(row->stored, width);
}

/* Bytes become floats by way of int: of eight that do so at once, as for running sums of columns,
 * llvmpipe's compiler (LLVM 15) crashes. The sign as arithmetic: where convert_int(char) is
 * compared with 0, it compares 8 bits, and crashes. */
static void emit_byte(struct kiln__text *text, kiln_type from, kiln_type to, unsigned width,
                      const char *value)
{
    const struct kiln__type_name wide = kiln__emit_type(KILN_I32, width);
    kiln__text_add(text, "convert_%s(", kiln__emit_type(to, width).text);
    if (from == KILN_U8)
        kiln__text_add(text, "convert_%s(%s))", wide.text, value);
    else
        kiln__text_add(text, "(convert_%s(as_%s(%s)) ^ 128) - 128)", wide.text,
                       kiln__emit_type(KILN_U8, width).text, value);
}

/* Not every driver saturates NaN to 0, as the standard advises. Integers wrap around. */
static void emit_computed(struct kiln__text *text, kiln_type from, kiln_type to, unsigned width,
                          const char *value, bool saturates)
{
    const struct kiln__type_name type = kiln__emit_type(to, width);
    const bool floating = kiln__type_row(to)->floating;
    if (from == to)
        kiln__text_add(text, "%s", value);
    else if (!floating && kiln__type_row(from)->floating)
        kiln__text_add(text, "convert_%s_sat(%s(%s != %s, (%s)(0), %s))", type.text,
                       width > 1 ? "PICK_VECTOR" : "PICK", value, value,
                       kiln__emit_type(from, width).text, value);
    else if (floating && kiln_type_size(from) == 1)
        emit_byte(text, from, to, width, value);
    else
        kiln__text_add(text, "convert_%s%s(%s)", type.text, saturates ? "_sat" : "", value);
}

/* To a narrow floating type. Integers that floats do not hold all of round once. */
static void emit_rounded(struct kiln__text *text, kiln_type from, const struct kiln__type_row *row,
                         unsigned width, const char *value)
{
    const struct call call = narrow(row, from == KILN_I32 ? "whole" : "round", width);
    kiln__text_add(text, "%s", call.before);
    if (from == KILN_I32)
        kiln__text_add(text, "%s", value);
    else if (from == KILN_I64)
        kiln__text_add(text, "kiln_odd_%s(%s)", kiln__emit_type(from, width).text, value);
    else
        emit_computed(text, from, row->computed, width, value, false);
    kiln__text_add(text, "%s", call.after);
}

void kiln__emit_convert(struct kiln__text *text, kiln_type from, kiln_type to, unsigned width,
                        const char *value, bool saturates)
{
    const struct kiln__type_row *row = kiln__type_row(to), *own = kiln__type_row(row->computed);
    const kiln_type given = kiln__type_row(from)->computed;
    /* A truth is no number's lower bits. */
    const bool clamps =
        row != own && (saturates || row->bytes == own->bytes || kiln__type_row(given)->floating);
    if (row != own && row->floating) {
        emit_rounded(text, given, row, width, value);
        return;
    }
    const struct call call = row == own ? plain : clamps ? clamp(row, width) : wrap(row, width);
    kiln__text_add(text, "%s", call.before);
    emit_computed(text, given, row->computed, width, value, saturates || clamps);
    kiln__text_add(text, "%s", call.after);
}

/* ---- memory ---- */

/* The element at an offset, and so much behind it. */
static void emit_element(struct kiln__text *text, const struct kiln__elements *elements,
                         const char *more)
{
    kiln__text_add(text, elements->checked ? "(*KILN_AT(%s, %s%s, 1))" : "%s[%s%s]",
                   elements->pointer.text, elements->offset.text, more);
}

/* How far behind the first one element `lane` of strided ones is. */
static struct kiln__phrase more_of(const struct kiln__elements *elements, unsigned lane)
{
    return elements->width > 1
               ? kiln__phrase(" + (%s + %u) * %s", elements->at, lane, elements->stride.text)
               : kiln__phrase(" + (%s) * %s", elements->at, elements->stride.text);
}

static void emit_lane(struct kiln__text *text, const struct kiln__elements *elements, unsigned lane)
{
    emit_element(text, elements, more_of(elements, lane).text);
}

/* Where a vector begins. */
static void emit_place(struct kiln__text *text, const struct kiln__elements *elements)
{
    if (elements->checked)
        kiln__text_add(text, "KILN_AT(%s, %s, %u)", elements->pointer.text, elements->offset.text,
                       elements->width);
    else
        kiln__text_add(text, "%s + %s", elements->pointer.text, elements->offset.text);
}

static void emit_vector(struct kiln__text *text, const struct kiln__elements *elements,
                        const char *constant)
{
    kiln__text_add(text, "*(global %s%s%s *)(", constant,
                   elements->fit == KILN__FIT_ALIGNED ? "" : "loose_",
                   wide_type(kiln__emit_memory_type(elements->type), elements->width).text);
    emit_place(text, elements);
    kiln__text_add(text, ")");
}

static void emit_stored(struct kiln__text *text, const struct kiln__elements *elements)
{
    if (elements->fit != KILN__FIT_STRIDED) {
        if (elements->width == 1)
            emit_element(text, elements, "");
        else
            emit_vector(text, elements, "const ");
        return;
    }
    if (elements->width > 1)
        kiln__text_add(text, "(%s)(",
                       wide_type(kiln__emit_memory_type(elements->type), elements->width).text);
    for (unsigned lane = 0; lane < elements->width; lane++) {
        kiln__text_add(text, lane ? ", " : "");
        emit_lane(text, elements, lane);
    }
    kiln__text_add(text, elements->width > 1 ? ")" : "");
}

/* ---- blocks: functions of kernels/blocks.cl ---- */

/* The element at an offset, and so much behind it. Checked is the place of its block. */
static void emit_of_block(struct kiln__text *text, const struct kiln__elements *elements,
                          const char *more)
{
    const struct kiln__type_row *row = kiln__type_row(elements->type);
    const char *pointer = elements->pointer.text, *offset = elements->offset.text;
    if (elements->checked)
        kiln__text_add(text, "kiln_%s_load(KILN_AT(%s, (%s%s) / %d * %d, %d), (%s%s) %% %d)",
                       row->name, pointer, offset, more, row->block, row->bytes, row->bytes, offset,
                       more, row->block);
    else
        kiln__text_add(text, "kiln_%s_load(%s, %s%s)", row->name, pointer, offset, more);
}

/* Neighbours: those at a multiple of their number are in one block. */
static void emit_run_of_blocks(struct kiln__text *text, const struct kiln__elements *elements)
{
    const struct kiln__type_row *row = kiln__type_row(elements->type);
    const char *pointer = elements->pointer.text, *offset = elements->offset.text;
    if (elements->fit == KILN__FIT_ALIGNED)
        kiln__text_add(text, "kiln_%s_inside%u(%s + (%s) / %d * %d, (%s) %% %d)", row->name,
                       elements->width, pointer, offset, row->block, row->bytes, offset,
                       row->block);
    else
        kiln__text_add(text, "kiln_%s_load%u(%s, %s)", row->name, elements->width, pointer, offset);
}

static void emit_blocks(struct kiln__text *text, const struct kiln__elements *elements)
{
    const bool strided = elements->fit == KILN__FIT_STRIDED;
    if (elements->width > 1 && !strided && !elements->checked) {
        emit_run_of_blocks(text, elements);
        return;
    }
    if (elements->width > 1)
        kiln__text_add(text, "(%s)(", kiln__emit_type(elements->type, elements->width).text);
    for (unsigned lane = 0; lane < elements->width; lane++) {
        kiln__text_add(text, lane ? ", " : "");
        emit_of_block(text, elements,
                      strided               ? more_of(elements, lane).text
                      : elements->width > 1 ? kiln__phrase(" + %u", lane).text
                                            : "");
    }
    kiln__text_add(text, elements->width > 1 ? ")" : "");
}

void kiln__emit_load(struct kiln__text *text, const struct kiln__elements *elements)
{
    if (kiln__type_is_block(elements->type)) {
        emit_blocks(text, elements);
        return;
    }
    const struct call call = on_load(elements->type, elements->width);
    kiln__text_add(text, "%s", call.before);
    emit_stored(text, elements);
    kiln__text_add(text, "%s", call.after);
}

static void emit_strided(struct kiln__code *code, const struct kiln__elements *elements,
                         const char *value)
{
    const struct call call = on_store(elements->type, 1);
    for (unsigned lane = 0; lane < elements->width; lane++) {
        struct kiln__text *text = kiln__code_add(code, "%s", "");
        emit_lane(text, elements, lane);
        kiln__text_add(text, " = %s%s", call.before, value);
        if (elements->width > 1)
            kiln__text_add(text, ".s%x", lane);
        kiln__text_add(text, "%s", call.after);
    }
}

/* Where the kernel's variable `stream` is set: past the caches. */
static void emit_streaming(struct kiln__code *code, const struct kiln__elements *elements,
                           const char *stored)
{
    kiln__code_single(code, KILN__IF, "stream");
    struct kiln__text *text =
        kiln__code_add(code, "__builtin_nontemporal_store(%s, (global %s *)(", stored,
                       wide_type(kiln__emit_memory_type(elements->type), elements->width).text);
    emit_place(text, elements);
    kiln__text_add(text, "))");
    kiln__code_single(code, KILN__ELSE, "%s", "");
}

void kiln__emit_store(struct kiln__code *code, const struct kiln__elements *elements,
                      const char *value, bool stream)
{
    unsigned width = elements->width;
    const struct call call = on_store(elements->type, width);
    const struct kiln__phrase stored = kiln__phrase("%s%s%s", call.before, value, call.after);
    if (stream && width > 1)
        emit_streaming(code, elements, stored.text);
    if (elements->fit == KILN__FIT_STRIDED) {
        emit_strided(code, elements, value);
        return;
    }
    struct kiln__text *text = kiln__code_add(code, "%s", "");
    if (width > 1 && elements->fit == KILN__FIT_SPREAD) {
        kiln__text_add(text, "vstore%u(%s, 0, ", width, stored.text);
        emit_place(text, elements);
        kiln__text_add(text, ")");
        return;
    }
    if (width == 1)
        emit_element(text, elements, "");
    else
        emit_vector(text, elements, "");
    kiln__text_add(text, " = %s", stored.text);
}
