/* SPDX-License-Identifier: Apache-2.0 */
#include "codegen/storage.h"

#include <stdio.h>

struct kiln__type_name kiln__emit_type(kiln_type type, unsigned width)
{
    struct kiln__type_name name;
    if (width > 1)
        snprintf(name.text, sizeof name.text, "%s%u", kiln__type_row(type)->device, width);
    else
        snprintf(name.text, sizeof name.text, "%s", kiln__type_row(type)->device);
    return name;
}

const char *kiln__stored_type(kiln_type type)
{
    return kiln__type_row(type)->device;
}

/* Element `lane` of strided ones. */
static void emit_lane(struct kiln__text *text, const struct kiln__elements *elements, unsigned lane)
{
    kiln__text_add(text, "%s[%s + (%s", elements->pointer, elements->offset, elements->at);
    if (elements->width > 1)
        kiln__text_add(text, " + %u", lane);
    kiln__text_add(text, ") * %s]", elements->stride);
}

/* What a vector's pointer is cast to. */
static void emit_vector_type(struct kiln__text *text, const struct kiln__elements *elements,
                             const char *constant)
{
    kiln__text_add(text, "*(global %s%s%s *)", constant,
                   elements->fit == KILN__FIT_ALIGNED ? "" : "loose_",
                   kiln__emit_type(elements->type, elements->width).text);
}

void kiln__emit_load(struct kiln__text *text, const struct kiln__elements *elements)
{
    if (elements->fit != KILN__FIT_STRIDED) {
        if (elements->width == 1) {
            kiln__text_add(text, "%s[%s]", elements->pointer, elements->offset);
            return;
        }
        emit_vector_type(text, elements, "const ");
        kiln__text_add(text, "(%s + %s)", elements->pointer, elements->offset);
        return;
    }
    if (elements->width > 1)
        kiln__text_add(text, "(%s)(", kiln__emit_type(elements->type, elements->width).text);
    for (unsigned lane = 0; lane < elements->width; lane++) {
        kiln__text_add(text, lane ? ", " : "");
        emit_lane(text, elements, lane);
    }
    kiln__text_add(text, elements->width > 1 ? ")" : "");
}

void kiln__emit_store(struct kiln__text *text, const struct kiln__elements *elements,
                      const char *value, bool stream)
{
    const char *pointer = elements->pointer, *offset = elements->offset;
    unsigned width = elements->width;
    if (stream && width > 1)
        kiln__text_add(text,
                       "if (stream)\n"
                       "__builtin_nontemporal_store(%s, (global %s *)(%s + %s));\n"
                       "else\n",
                       value, kiln__emit_type(elements->type, width).text, pointer, offset);
    if (elements->fit == KILN__FIT_STRIDED) {
        for (unsigned lane = 0; lane < width; lane++) {
            emit_lane(text, elements, lane);
            kiln__text_add(text, width > 1 ? " = %s.s%x;\n" : " = %s;\n", value, lane);
        }
    } else if (width == 1) {
        kiln__text_add(text, "%s[%s] = %s;\n", pointer, offset, value);
    } else if (elements->fit == KILN__FIT_SPREAD) {
        kiln__text_add(text, "vstore%u(%s, 0, %s + %s);\n", width, value, pointer, offset);
    } else {
        emit_vector_type(text, elements, "");
        kiln__text_add(text, "(%s + %s) = %s;\n", pointer, offset, value);
    }
}
