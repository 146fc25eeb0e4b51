/* SPDX-License-Identifier: Apache-2.0 */
/* The table behind kiln__traits_for(), as far as choosing a device needs it. */
#pragma once

#include "device/device.h"

/* How gladly a device is taken where none is named: more is better. */
enum kiln__rank { KILN__RANK_SIMULATED, KILN__RANK_SOFTWARE, KILN__RANK_REAL };

enum kiln__rank kiln__device_rank(const kiln_device_info *info);
