/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions whose kept elements are neighbours, on chunked devices:
 *
 *   for strips of a run { for each few rows { for vectors of the strip { body } } ends } */
#include "codegen/tiles.h"

/* As many totals as the nearest cache keeps, beside the rows that are read. */
#define STRIP 1024

void kiln__emit_strip_totals(const struct kiln__body *body)
{
    for (KILN__EACH_REDUCTION(i, body)) {
        kiln__text_add(body->text, "%s totals%u[%d];\n",
                       kiln__emit_type(kiln__body_type(body, i), 1).text, i, STRIP);
        if (kiln__body_row(body, i)->indexed)
            kiln__text_add(body->text, "int places%u[%d];\n", i, STRIP);
    }
}

/* The `width` elements from `i` on. */
static struct kiln__phrase elements(const char *array, unsigned i, kiln_type type, unsigned width)
{
    return width == 1 ? kiln__phrase("%s%u[i]", array, i)
                      : kiln__phrase("*(loose_%s *)(%s%u + i)", kiln__emit_type(type, width).text,
                                     array, i);
}

/* Declare the totals, as those of the strip. */
static void load_totals(const struct kiln__body *body, unsigned width)
{
    for (KILN__EACH_REDUCTION(i, body)) {
        kiln_type type = kiln__body_type(body, i);
        kiln__text_add(body->text, "%s t%u = %s;\n", kiln__emit_type(type, width).text, i,
                       elements("totals", i, type, width).text);
        if (kiln__body_row(body, i)->indexed)
            kiln__text_add(body->text, "%s j%u = %s;\n", kiln__emit_type(KILN_I32, width).text, i,
                           elements("places", i, KILN_I32, width).text);
    }
}

static void keep_totals(const struct kiln__body *body, unsigned width)
{
    for (KILN__EACH_REDUCTION(i, body)) {
        kiln__text_add(body->text, "%s = t%u;\n",
                       elements("totals", i, kiln__body_type(body, i), width).text, i);
        if (kiln__body_row(body, i)->indexed)
            kiln__text_add(body->text, "%s = j%u;\n", elements("places", i, KILN_I32, width).text,
                           i);
    }
}

/* Rows `r` to `r + rows - 1`, `width` elements of each at a time. */
static void emit_rows(const struct kiln__body *body, unsigned rows, unsigned width)
{
    kiln__text_add(body->text, "for (; i + %u <= strip; i += %u) {\n", width, width);
    load_totals(body, width);
    for (unsigned u = 0; u < rows; u++) {
        struct kiln__phrase row = kiln__phrase("(r + %u)", u);
        kiln__text_add(body->text, "{\n");
        kiln__body_reduced_bases(body, row.text);
        kiln__body_element(body, width, "(t + i)", row.text, KILN__TOTALS);
        kiln__text_add(body->text, "}\n");
    }
    keep_totals(body, width);
    kiln__text_add(body->text, "}\n");
}

/* Totals are loaded and stored once for several rows. */
static void emit_blocks(const struct kiln__body *body, unsigned rows)
{
    kiln__text_add(body->text, "for (; r + %u <= to; r += %u) {\nint i = 0;\n", rows, rows);
    emit_rows(body, rows, body->form->vector);
    emit_rows(body, rows, 1);
    kiln__text_add(body->text, "}\n");
}

static void emit_ends(struct kiln__body *body, unsigned width)
{
    kiln__text_add(body->text, "for (; i + %u <= strip; i += %u) {\n", width, width);
    kiln__body_turn(body, 0);
    load_totals(body, width);
    kiln__body_values(body, width, "(t + i)");
    kiln__body_finish(body, width);
    kiln__body_store(body, width, "p + t + i", "(t + i)");
    kiln__text_add(body->text, "}\n");
}

void kiln__emit_strips(struct kiln__body *body)
{
    kiln__text_add(body->text,
                   "for (idx t = 0; t < count; t += %d) {\n"
                   "const int strip = min((idx)%d, count - t);\n"
                   "for (int i = 0; i < strip; i++) {\n",
                   STRIP, STRIP);
    kiln__body_totals(body);
    keep_totals(body, 1);
    kiln__text_add(body->text, "}\nidx r = from;\n");
    if (body->form->rows > 1)
        emit_blocks(body, body->form->rows);
    emit_blocks(body, 1);
    kiln__text_add(body->text, "int i = 0;\n");
    emit_ends(body, body->form->vector);
    emit_ends(body, 1);
    kiln__text_add(body->text, "}\n");
}
