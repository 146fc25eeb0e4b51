/* SPDX-License-Identifier: Apache-2.0 */
/* The table of devices: the first row that fits a device gives its traits and its rank among
 * devices. */
#include "device/traits.h"

#include <string.h>

#define ANY ((kiln_device_type)0)
#define REAL KILN__RANK_REAL
#define SOFTWARE KILN__RANK_SOFTWARE
#define SIMULATED KILN__RANK_SIMULATED

#define POCL "Portable Computing Language"

/* FP_CONTRACT OFF in the kernels decides about a * b + c; the options leave arithmetic alone. */
#define CL12 "-cl-std=CL1.2 -w" /* some compilers print warnings instead of keeping them */

/* Where rsqrt() differs between vectors of one width and another, and a value's bits would hang on
 * how many are computed beside it. Square roots and quotients do not. */
#define EVEN_RSQRT CL12 " -Drsqrt(x)=(1/sqrt(x))"

/* On a CPU: a work-item owns a long chunk and walks it in vectors as wide as a register. Memory is
 * read faster at several places at once than in one run from 2^run elements on: as many as a page
 * or more, which is how far prefetching goes. */
#define CPU(row, width, run)                                                                       \
    .name = row, .chunked = true, .vector = width, .chunks = 16, .min_chunk = 1024,                \
    .work_group = 1, .long_run = run

/* On a GPU: neighbouring work-items touch neighbouring elements. */
#define GPU(row, width, group)                                                                     \
    .name = row, .vector = width, .chunks = 1, .min_chunk = 1, .work_group = group,                \
    .build_options = CL12

#define POCL_CPU                                                                                   \
    .build_options = CL12, .live_host_pointers = true, .nontemporal_stores = true,                 \
    .one_launch = true, .late_binary = true, .serial_compiler = true,                              \
    .quick_options = "-cl-opt-disable", .bare_option = "-D_OPENCL_H_"

/* On another machine, by its own driver. Vectors of half the registers' width made a product of
 * 1024 25 times as slow as those of all of it. */
#define APART .build_options = CL12, .apart = true

/* Intel's runtime vectorises by itself and so prefers scalars, even with AVX-512; vectors of 16 are
 * up to fifteen times as fast as those.
 *
 * llvmpipe would be as fast with scalars; it is shaped like a GPU so that those paths run where
 * there is none.
 *
 * Rows' sums of 16 million floats by two threads of a Zen 4 through PoCL, each row in one run and
 * in four parts: rows of 4,096 took 1.3 ms and 2.3, of 8,192 1.2 and 1.5, of 16,384 1.7 and 1.5, of
 * a million 1.35 and 1.2. On Intel's, parts are the faster from 4,096 on.
 *
 * The first row that fits a device is its own. A row names part of the platform's name, part of the
 * device's name, the type and the least preferred vector width; NULL, ANY and 0 fit all. One of
 * devices apart fits those with memory of their own alone. */
static const struct row {
    const char *platform, *device;
    kiln_device_type type;
    uint32_t min_width;
    enum kiln__rank rank;
    struct kiln__traits traits;
} rows[] = {
    /* clang-format off */
    {POCL,       NULL,       KILN_DEVICE_CPU, 16, REAL,      {CPU("pocl-remote-16", 16, 12), APART}},
    {POCL,       NULL,       KILN_DEVICE_CPU, 8,  REAL,      {CPU("pocl-remote-8", 8, 12), APART}},
    {POCL,       NULL,       KILN_DEVICE_CPU, 0,  REAL,      {CPU("pocl-remote-4", 4, 12), APART}},
    {POCL,       "AMD",      KILN_DEVICE_CPU, 16, REAL,      {CPU("pocl-amd-16", 16, 14), POCL_CPU}},
    {POCL,       NULL,       KILN_DEVICE_CPU, 16, REAL,      {CPU("pocl-cpu-16", 16, 12), POCL_CPU}},
    {POCL,       NULL,       KILN_DEVICE_CPU, 8,  REAL,      {CPU("pocl-cpu-8", 8, 12), POCL_CPU}},
    {POCL,       NULL,       KILN_DEVICE_CPU, 0,  REAL,      {CPU("pocl-cpu-4", 4, 12), POCL_CPU}},
    {"Intel(R)", NULL,       KILN_DEVICE_CPU, 0,  REAL,      {CPU("intel-cpu", 16, 12),
                                                              .build_options = EVEN_RSQRT}},
    {"NVIDIA",   NULL,       KILN_DEVICE_GPU, 0,  REAL,      {GPU("nvidia-gpu", 4, 256),
                                                              .serial_compiler = true,
                                                              .long_work_group = 1024,
                                                              .small_maps = true,
                                                              .shuffles = true,
                                                              .one_launch = true,
                                                              .fast_math_functions = true,
                                                              .lazy_memory = true,
                                                              .idle_release = true,
                                                              .fence = KILN__FENCE_PTX,
                                                              .dear_events = true,
                                                              .dear_arguments = true,
                                                              .starts_unflushed = true}},
    {"Oclgrind", NULL,       ANY,             0,  SIMULATED, {GPU("oclgrind", 1, 16)}},
    {NULL,       "llvmpipe", ANY,             0,  SOFTWARE,  {GPU("llvmpipe", 4, 64),
                                                              .live_host_pointers = true,
                                                              .threaded_compiler = true,
                                                              .emulates_fma = true,
                                                              .dear_arguments = true,
                                                              .no_generic_kernel = true}},
    {NULL,       "softpipe", ANY,             0,  SIMULATED, {GPU("softpipe", 1, 16)}},
    {NULL,       NULL,       KILN_DEVICE_CPU, 0,  REAL,      {CPU("cpu", 8, 12),
                                                              .build_options = CL12}},
    {NULL,       NULL,       ANY,             0,  REAL,      {GPU("gpu", 4, 256),
                                                              .clblast = true}},
    /* clang-format on */
};

static bool traits_fits(const struct row *row, const kiln_device_info *info)
{
    return (!row->platform || strstr(info->platform, row->platform)) &&
           (!row->device || strstr(info->name, row->device)) &&
           (row->type == ANY || row->type == info->type) &&
           !(row->traits.apart && info->shares_host_memory) &&
           info->preferred_vector_f32 >= row->min_width;
}

/* The last row fits all. */
static const struct row *row_of(const kiln_device_info *info)
{
    const struct row *row = rows;
    while (!traits_fits(row, info))
        row++;
    return row;
}

const struct kiln__traits *kiln__traits_for(const kiln_device_info *info)
{
    return &row_of(info)->traits;
}

enum kiln__rank kiln__device_rank(const kiln_device_info *info)
{
    return row_of(info)->rank;
}
