/* SPDX-License-Identifier: Apache-2.0 */
/** @mainpage kiln
 *  Record operations in a batch; kiln fuses them, compiles OpenCL kernels once into a disk cache,
 *  runs them in order and brings back only the results that were asked for. */
/** @file
 *  Everything but the OpenCL interoperation of kiln/opencl.h. */
#ifndef KILN_KILN_H
#define KILN_KILN_H

#include <kiln/attention.h>
#include <kiln/batch.h>
#include <kiln/buffer.h>
#include <kiln/cache.h>
#include <kiln/context.h>
#include <kiln/convolution.h>
#include <kiln/custom.h>
#include <kiln/device.h>
#include <kiln/elementwise.h>
#include <kiln/executor.h>
#include <kiln/files.h>
#include <kiln/gradient.h>
#include <kiln/interpolation.h>
#include <kiln/loop.h>
#include <kiln/models.h>
#include <kiln/movement.h>
#include <kiln/normalization.h>
#include <kiln/now.h>
#include <kiln/operations.h>
#include <kiln/parallel.h>
#include <kiln/product.h>
#include <kiln/random.h>
#include <kiln/recurrent.h>
#include <kiln/reductions.h>
#include <kiln/resize.h>
#include <kiln/shape.h>
#include <kiln/signal.h>
#include <kiln/status.h>
#include <kiln/training.h>
#include <kiln/types.h>
#include <kiln/version.h>

#endif
