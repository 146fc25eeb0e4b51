/* SPDX-License-Identifier: Apache-2.0 */
/* What `kiln tune` measures: a batch for a kind of kernel and its sizes, as kiln_batch_list_works()
 * names them, with its result in plain C. */
#pragma once

#include <stdbool.h>

#include <kiln/kiln.h>

enum { TUNE_NAME = 96, TUNE_SIZES = 8, TUNE_INPUTS = 3 };

struct tune_work {
    char name[TUNE_NAME]; /* "product 513x777x1031 nt" */
    const struct tune_family *family;
    size_t sizes[TUNE_SIZES], count;
    bool transposed[2]; /* operands of a product */
    bool columns, causal;
    int64_t window;           /* keys that a row of an attention sees at most; 0: all */
    bool costly;              /* a map with more than a few operations */
    unsigned operands;        /* of rows */
    kiln_type type;           /* that operands are stored as */
    kiln_precision precision; /* of a product */
};

/* Take `text` up to its end or a #. False: it is none that can be measured; `why` says so. */
bool tune_work_read(const char *text, struct tune_work *work, const char **why);

/* Elements of input `number`, 0 if there is none, and of the result, in f32. */
size_t tune_work_input(const struct tune_work *work, unsigned number);
size_t tune_work_results(const struct tune_work *work);

/* Element `i` of input `number`: a multiple of 1/64, which every floating type holds. */
float tune_work_value(unsigned number, size_t i);

kiln_tensor tune_work_record(kiln_batch *batch, const struct tune_work *work,
                             kiln_buffer *const inputs[TUNE_INPUTS]);

/* Element `i` of the result in double precision; *size: of what was added up for it. */
double tune_work_element(const struct tune_work *work, size_t i, double *size);
