/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a part of an attention's keys (attention_join.cl): e sums, the largest score, the sum of
 * weights. */
#define PART_COLUMNS(e) ((e) + 2)
#define PART_PEAK(e) (e)
#define PART_TOTAL(e) ((e) + 1)
