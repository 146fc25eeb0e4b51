/* SPDX-License-Identifier: Apache-2.0 */
/* Map kernels.
 *
 * Chunked, a work-item walks a long run of elements row by row:
 *   for each row of [first, last) { bases; for vectors { body } for the rest { body } }
 * Otherwise a work-item does one vector:
 *   bases; if it is whole { body } else for the rest { body } */
#include "codegen/emit.h"

#include <stdio.h>

/* A cache line, to which non-temporal stores must be aligned with 16-wide vectors. */
#define LINE 64

static void emit_signature(const struct kiln__emit *emit)
{
    if (emit->form->chunked)
        kiln__text_add(emit->text, "kernel __attribute__((reqd_work_group_size(1, 1, 1)))\n");
    else
        kiln__text_add(emit->text, "kernel ");
    kiln__text_add(emit->text, "void kiln_map(const %s n", emit->index);
    if (emit->form->chunked)
        kiln__text_add(emit->text, ", const %s chunk", emit->index);
    if (emit->form->streams)
        kiln__text_add(emit->text, ", const int stream");
    for (uint32_t d = 1; d < emit->form->rank; d++)
        kiln__text_add(emit->text, ", const %s d%u", emit->index, d);
    kiln__emit_accesses(emit);
    kiln__emit_stores(emit);
    kiln__emit_scalars(emit);
    kiln__text_add(emit->text, ")\n{\n");
}

/* Where element p is, for each access and store. */
static void emit_bases(const struct kiln__emit *emit, const char *indent)
{
    bool strides = false;
    for (size_t k = 0; k < emit->group->accesses.count; k++)
        strides = strides || emit->form->along[k] != KILN__LINEAR;
    if (strides)
        kiln__emit_coordinates(emit, indent, "p", 0, emit->form->rank);
    for (size_t k = 0; k < emit->group->accesses.count; k++) {
        kiln__text_add(emit->text, "%sconst %s b%zu = o%zu", indent, emit->index, k, k);
        if (emit->form->along[k] == KILN__LINEAR)
            kiln__text_add(emit->text, " + p");
        else
            kiln__emit_dot(emit, k, 0, emit->form->rank);
        kiln__text_add(emit->text, ";\n");
    }
}

static void emit_nontemporal(const struct kiln__emit *emit, const char *indent,
                             struct kiln__type_name vector, const char *place, const char *value)
{
    kiln__text_add(emit->text,
                   "%sif (stream)\n"
                   "%s    __builtin_nontemporal_store(%s, (global %s *)(%s));\n"
                   "%selse\n    ",
                   indent, indent, value, vector.text, place, indent);
}

static void emit_body(const struct kiln__emit *emit, const char *indent, unsigned width,
                      const char *at)
{
    const struct kiln__group *group = emit->group;
    kiln__emit_steps(emit, indent, 0, (unsigned)group->steps.count, width, "b", at);
    for (size_t k = 0; k < group->stores.count; k++) {
        char place[64], value[16];
        kiln_type type = (kiln_type)group->steps.items[group->stores.items[k].step].type;
        snprintf(place, sizeof place, "y%zu + q%zu + p + %s", k, k, at);
        snprintf(value, sizeof value, "v%u", group->stores.items[k].step);
        if (emit->form->streams && width > 1)
            emit_nontemporal(emit, indent, kiln__emit_type(type, width), place, value);
        kiln__emit_store(emit, indent, type, width, place, value);
    }
}

/* Vectors, and single elements after them; before them too where a streaming store needs them to
 * start at a cache line. */
static void emit_run(const struct kiln__emit *emit)
{
    const char *index = emit->index;
    unsigned width = emit->form->vector;
    if (emit->form->streams)
        kiln__text_add(emit->text,
                       "        const %s head = stream ? (%d - ((size_t)(y0 + q0 + p) & %d)) / "
                       "(int)sizeof *y0 %% (%d / (int)sizeof *y0) : 0;\n",
                       index, LINE, LINE - 1, LINE);
    kiln__text_add(emit->text, "        %s i = 0, stop = %s;\n", index,
                   emit->form->streams ? "min(head, count)" : "0");
    kiln__text_add(emit->text, "        for (;;) {\n            for (; i < stop; i++) {\n");
    emit_body(emit, "                ", 1, "i");
    kiln__text_add(emit->text,
                   "            }\n"
                   "            if (i == count)\n"
                   "                break;\n"
                   "            for (; i + %u <= count; i += %u) {\n",
                   width, width);
    emit_body(emit, "                ", width, "i");
    kiln__text_add(emit->text,
                   "            }\n"
                   "            stop = count;\n"
                   "        }\n");
}

static void emit_chunked(const struct kiln__emit *emit)
{
    uint32_t rank = emit->form->rank;
    kiln__text_add(emit->text,
                   "    const %s first = get_global_id(0) * chunk, last = min(first + chunk, n);\n"
                   "    for (%s p = first; p < last;) {\n",
                   emit->index, emit->index);
    if (rank > 1)
        kiln__text_add(emit->text, "        const %s count = min(d%u - p %% d%u, last - p);\n",
                       emit->index, rank - 1, rank - 1);
    else
        kiln__text_add(emit->text, "        const %s count = last - p;\n", emit->index);
    emit_bases(emit, "        ");
    emit_run(emit);
    kiln__text_add(emit->text, "        p += count;\n    }\n}\n");
}

static void emit_grouped(const struct kiln__emit *emit)
{
    unsigned width = emit->form->vector;
    kiln__text_add(emit->text,
                   "    const %s p = (%s)get_global_id(0) * %u;\n"
                   "    if (p >= n)\n"
                   "        return;\n",
                   emit->index, emit->index, width);
    emit_bases(emit, "    ");
    if (width > 1) {
        kiln__text_add(emit->text, "    if (p + %u <= n) {\n", width);
        emit_body(emit, "        ", width, "0");
        kiln__text_add(emit->text, "        return;\n    }\n");
    }
    kiln__text_add(emit->text, "    for (%s i = 0; i < min((%s)%u, n - p); i++) {\n", emit->index,
                   emit->index, width);
    emit_body(emit, "        ", 1, "i");
    kiln__text_add(emit->text, "    }\n}\n");
}

void kiln__emit_map(const struct kiln__emit *emit)
{
    emit_signature(emit);
    if (emit->form->chunked)
        emit_chunked(emit);
    else
        emit_grouped(emit);
}
