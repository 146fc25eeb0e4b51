/* SPDX-License-Identifier: Apache-2.0 */
/* Batches without a device: recorded, passed, cut into kernels and planned for a device that exists
 * only here, so that texts are the same on every machine (support/golden.h). */
#pragma once

#include <kiln/kiln.h>

#include "plan/plan.h"
#include "record/batch.h"

/* A context whose batches can be recorded but not run: of a CPU (16-wide vectors, long chunks) or
 * of a GPU. It allocates at most IMAGINED_LARGEST bytes at once. Static, nothing is to be freed. */
#define IMAGINED_LARGEST ((size_t)1 << 30)
kiln_context *imagined_cpu(void);
kiln_context *imagined_gpu(void);

/* That GPU as one that plans may be made for, with the tensor cores of NVIDIA's Hopper. */
struct kiln__device imagined_hopper(void);

/* An empty batch of imagined_cpu(). */
kiln_batch *imagined_batch(void);

/* Uploads of f32 whose content does not matter, because the batch never runs. */
kiln_tensor imagine(kiln_batch *batch, size_t rank, const size_t *dims);
kiln_tensor imagine_vector(kiln_batch *batch, size_t n);
kiln_tensor imagine_matrix(kiln_batch *batch, size_t m, size_t n);

/* A matrix in a buffer, which lasts until sixteen more are imagined. */
kiln_tensor imagine_weights(kiln_batch *batch, size_t m, size_t n);

/* For a batch's takes_attention_backward: as if its device had the kernels. */
bool take_attention_backward(const kiln_batch *batch, kiln_type type, double scale, size_t d,
                             size_t e);

/* Ask for a result whose place does not matter. */
void ask(kiln_batch *batch, kiln_tensor tensor);

/* Take an amount from a buffer of its shape, in place. One of a kind in a batch. */
void imagine_update(kiln_batch *batch, kiln_tensor amount);

/* A copy of what was recorded. */
struct kiln__graph graph_of(const kiln_batch *batch);

/* What the passes say, and the graph that they leave. */
void passes_text(const kiln_batch *batch, struct kiln__text *text);

/* After the passes: which values go to memory, and the groups. */
struct kiln__fusion fusion_of(const kiln_batch *batch);
void fusion_text(const kiln_batch *batch, struct kiln__text *text);

/* A plan for the batch's context, uploads and reads `shared` or as transfers. */
struct kiln__plan plan_of(const kiln_batch *batch, bool shared);
