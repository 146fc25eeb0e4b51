/* SPDX-License-Identifier: Apache-2.0 */
/* Batches of a model that are kept, by the shapes of their inputs. */
#pragma once

#include "onnx/model.h"

/* Release all that are kept. */
void kiln__onnx_free_cached(kiln_onnx_model *model);
