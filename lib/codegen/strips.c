/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions whose kept elements are neighbours, on chunked devices:
 *
 *   for strips of a run { for each few rows { for vectors of the strip { body } } ends } */
#include "codegen/tiles.h"

/* As many totals as the nearest cache keeps, beside the rows that are read. */
#define STRIP 1024

void kiln__emit_strip_totals(const struct kiln__body *body)
{
    kiln__body_totals(body, 1, kiln__phrase("$ strip_@[%d];\n", STRIP).text);
}

static void load_totals(const struct kiln__body *body, unsigned width)
{
    kiln__body_totals(body, width,
                      width > 1 ? "$ @ = *(loose_$ *)(strip_@ + i);\n" : "$ @ = strip_@[i];\n");
}

static void keep_totals(const struct kiln__body *body, unsigned width)
{
    kiln__body_totals(body, width,
                      width > 1 ? "*(loose_$ *)(strip_@ + i) = @;\n" : "strip_@[i] = @;\n");
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
    kiln__body_totals(body, 1, KILN__START);
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
