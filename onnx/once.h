/* SPDX-License-Identifier: Apache-2.0 */
/* Loops whose body is recorded once, whatever the number of turns: as kiln_loop(). That takes a
 * body whose values keep type and shape, and which needs no content of them while it is recorded.
 * Whether it is one shows a batch beside, in which it is tried. */
#pragma once

#include "onnx/call.h"

struct kiln__onnx_once {
    const struct kiln__onnx_graph *body;
    bool counts; /* a Loop: the turn and the condition are before its operands, and the condition
                    before its results */
    size_t carried, scanned, collected;
    const struct kiln__onnx_value *carry;    /* before the first turn */
    const struct kiln__onnx_value *elements; /* gone through along their first dimensions */
    size_t turns;                            /* at most; 0: as long as the condition holds */
    struct kiln__onnx_value *most, *on; /* turns, and whether there is one, where the device alone
                                           knows that; or NULL */
    const char *why;                    /* it cannot be: a part of a sentence */
};

/* Graphs in graphs while they are recorded, and turns that are unrolled, at most. */
enum { KILN__ONNX_DEEPEST = 32, KILN__ONNX_MOST_TURNS = 4096 };

/* Record it; results[i]: what it carries, then what it collects along a new first dimension. False
 * with a reason where it has to be unrolled, and nothing is recorded then. */
bool kiln__onnx_record_once(struct kiln__onnx_call *call, struct kiln__onnx_once *once,
                            struct kiln__onnx_value *results);
