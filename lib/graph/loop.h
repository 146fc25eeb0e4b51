/* SPDX-License-Identifier: Apache-2.0 */
/* What a kernel with a loop inside does to each element: a small program, run once per step.
 *
 * The kernel's inputs are states that are no constants, then elements, then what the steps share;
 * its outputs the states behind the last step, then what each step leaves, stacked. A call of such
 * a kernel (graph/custom_calls.h) is one of no text: codegen/loop_text.c writes it. */
#pragma once

#include <kiln/custom.h>

#include "ops/ops.h"

#define KILN__LOOP_STATES KILN_CUSTOM_OUTPUTS

enum kiln__loop_kind {
    KILN__LOOP_SHARED,   /* input `index`, the same in all steps */
    KILN__LOOP_ELEMENT,  /* the part of input `index` that belongs to the step */
    KILN__LOOP_STATE,    /* state `index` */
    KILN__LOOP_NUMBER,   /* of the step, i32 */
    KILN__LOOP_CONSTANT, /* number `index`, an argument: another one is the same kernel */
    KILN__LOOP_APPLY,    /* elementwise row `op` over args */
    KILN__LOOP_CAST      /* args[0] to the type; `op`: enum kiln__cast_name */
};

/* Compared as bytes, as the whole program. */
struct kiln__loop_step {
    uint8_t kind; /* enum kiln__loop_kind */
    uint8_t op, type, n_args;
    uint16_t args[3]; /* earlier ones */
    uint16_t index;
};
_Static_assert(sizeof(struct kiln__loop_step) == 12, "no padding");

/* Behind its memory the kernel takes how many steps there are, how many elements, and constants. */
#define KILN__LOOP_CONSTANTS 48

struct kiln__loop {
    uint8_t n_states, n_outputs, n_constants, reverse;
    uint16_t n_steps, until;             /* until: KILN__LOOP_NONE, or the step with the mask */
    uint16_t initial[KILN__LOOP_STATES]; /* a CONSTANT or SHARED step: the state at first */
    uint16_t next[KILN__LOOP_STATES], outputs[KILN_CUSTOM_OUTPUTS];
    uint8_t state_types[KILN__LOOP_STATES];
    /* A bit for each that has one element: of inputs, and of outputs. */
    uint32_t single_inputs, single_outputs;
    struct kiln__loop_step steps[];
};
#define KILN__LOOP_NONE 0xffff
#define KILN__LOOP_MOST_STEPS 1000

static inline size_t kiln__loop_bytes(const struct kiln__loop *loop)
{
    return loop ? sizeof *loop + loop->n_steps * sizeof *loop->steps : 0;
}
