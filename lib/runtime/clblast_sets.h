/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of CLBlast's kernels for products in f32, as far apart as can be of those that its own
 * database has for devices of many kinds (C. Nugteren, "CLBlast: a tuned OpenCL BLAS library",
 * 2018): what `kiln tune` chooses among. A new row is a candidate in device/tunables.c. */
#pragma once

#include <stddef.h>

enum { KILN__CLBLAST_SETS = 12, KILN__CLBLAST_MOST = 16 };

static const struct kiln__clblast_kernel {
    const char *name;
    size_t count; /* of parameters */
    const char *parameters[KILN__CLBLAST_MOST];
    size_t sets[KILN__CLBLAST_SETS][KILN__CLBLAST_MOST];
} kiln__clblast_kernels[] = {
    /* clang-format off */
    {"Xgemm", 16,
     {"GEMMK", "KREG", "KWG", "KWI", "MDIMA", "MDIMC", "MWG", "NDIMB", "NDIMC", "NWG",
      "SA", "SB", "STRM", "STRN", "VWM", "VWN"},
     {{0, 1, 32, 2,  8,  8,  32,  8,  8,  64, 0, 0, 0, 0, 4, 4},
      {0, 1, 32, 2,  8,  8,  64,  8,  8,  64, 0, 0, 0, 0, 4, 4},
      {0, 1, 16, 2,  8,  8, 128,  8,  8, 128, 1, 1, 1, 0, 1, 8},
      {0, 1, 32, 2, 16,  8, 128, 16,  8,  64, 0, 0, 1, 0, 1, 2},
      {0, 1, 32, 2, 16, 32,  32,  8,  8,  64, 0, 1, 0, 0, 1, 8},
      {0, 1, 32, 2, 16, 16,  64,  8,  8,  64, 1, 1, 0, 0, 4, 4},
      {0, 1, 16, 2,  8, 16,  64,  8,  8, 128, 1, 1, 1, 0, 4, 8},
      {0, 1, 16, 2, 32, 16, 128, 32,  8, 128, 1, 1, 1, 0, 4, 1},
      {0, 1, 32, 2, 16,  8,  64,  8,  8,  64, 1, 1, 1, 1, 4, 8},
      {0, 1, 16, 2, 32, 16,  64, 16,  8, 128, 1, 1, 0, 1, 2, 8},
      {0, 1, 32, 2,  8,  8,  32, 32, 32,  64, 1, 1, 0, 0, 4, 2},
      {1, 4,  1, 1,  8,  8,  64,  8,  8,  64, 0, 0, 0, 0, 4, 4}}},
    {"XgemmDirect", 10,
     {"KWID", "MDIMAD", "MDIMCD", "NDIMBD", "NDIMCD", "PADA", "PADB", "VWMD", "VWND", "WGD"},
     {{ 2,  8,  8,  8,  8, 1, 1, 1, 2, 16},
      { 2,  8,  8,  8,  8, 1, 1, 4, 4, 32},
      { 2,  8,  8,  8,  8, 1, 1, 4, 2, 32},
      { 2,  8,  8, 16, 16, 1, 1, 4, 2, 32},
      { 2, 16, 16,  8,  8, 1, 1, 2, 1, 32},
      { 2,  8,  8,  8,  8, 0, 0, 1, 8, 64},
      { 8,  8,  8,  8,  8, 0, 0, 8, 4, 64},
      { 2,  8,  8,  8,  8, 1, 1, 1, 1,  8},
      { 2,  8,  8, 16, 16, 1, 1, 2, 1, 16},
      {16, 16,  8, 16,  8, 1, 1, 1, 1, 32},
      { 2, 16,  8,  8,  8, 1, 1, 1, 2, 32},
      { 8, 16, 16, 16, 16, 0, 0, 1, 1, 64}}},
    /* clang-format on */
};

enum { KILN__CLBLAST_KERNELS = sizeof kiln__clblast_kernels / sizeof *kiln__clblast_kernels };
