/* SPDX-License-Identifier: Apache-2.0 */
/* Rows kernels of chunked devices: a work-item owns a run of rows.
 *
 *   for each row { values; for each phase { for vectors { body } fold, finish, values } stores } */
#include "codegen/rows.h"

#include <stdio.h>

static void emit_vectors(const struct kiln__rows_emit *rows, unsigned unroll)
{
    unsigned width = rows->emit->form->vector;
    kiln__text_add(rows->emit->text, "            for (; i + %u <= count; i += %u) {\n",
                   width * unroll, width * unroll);
    for (unsigned u = 0; u < unroll; u++) {
        char at[32];
        snprintf(at, sizeof at, "(i + %u)", u * width);
        kiln__text_add(rows->emit->text, "                {\n");
        kiln__rows_element(rows, "                    ", u, width, u ? at : "i");
        kiln__text_add(rows->emit->text, "                }\n");
    }
    kiln__text_add(rows->emit->text, "            }\n");
}

/* `count` elements from `r` on are one run. */
static void emit_elements(const struct kiln__rows_emit *rows)
{
    const struct kiln__emit *emit = rows->emit;
    unsigned unroll = kiln__rows_unroll(rows);
    uint32_t inner = emit->form->rank - 1u;
    kiln__rows_totals(rows, "        ");
    kiln__text_add(emit->text, "        {\n");
    kiln__rows_accumulators(rows, "        ", unroll);
    kiln__text_add(emit->text, "        for (%s r = 0; r < reduced;) {\n", emit->index);
    if (emit->form->rank - emit->form->kept > 1)
        kiln__text_add(emit->text,
                       "            const %s count = min(d%u - r %% d%u, reduced - r);\n",
                       emit->index, inner, inner);
    else
        kiln__text_add(emit->text, "            const %s count = reduced - r;\n", emit->index);
    kiln__rows_reduced_bases(rows, "            ", "r");
    kiln__text_add(emit->text, "            %s i = 0;\n", emit->index);
    if (unroll > 1)
        emit_vectors(rows, unroll);
    emit_vectors(rows, 1);
    kiln__text_add(emit->text, "            for (; i < count; i++) {\n");
    kiln__rows_element(rows, "                ", KILN__ROWS_TOTAL, 1, "i");
    kiln__text_add(emit->text, "            }\n            r += count;\n        }\n");
    kiln__rows_fold(rows, "        ", unroll);
    kiln__text_add(emit->text, "        }\n");
}

void kiln__emit_rows(const struct kiln__emit *emit)
{
    struct kiln__rows_emit rows = {.emit = emit};
    kiln__rows_of(emit->group, true, &rows.rows);
    kiln__rows_signature(&rows, "chunk");
    kiln__text_add(emit->text,
                   "    const %s first = get_global_id(0) * chunk, last = min(first + chunk, n);\n"
                   "    for (%s p = first; p < last; p++) {\n",
                   emit->index, emit->index);
    kiln__rows_bases(&rows, "        ");
    for (unsigned phase = 0; phase <= rows.rows.phases; phase++) {
        kiln__rows_turn(&rows, phase);
        kiln__rows_values(&rows, "        ");
        if (phase == rows.rows.phases)
            break;
        emit_elements(&rows);
        kiln__rows_finish(&rows, "        ");
    }
    kiln__rows_store(&rows);
    kiln__text_add(emit->text, "    }\n}\n");
}
