/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  The OpenCL devices of this machine. */
#ifndef KILN_DEVICE_H
#define KILN_DEVICE_H

#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What kind of hardware a device is. */
typedef enum kiln_device_type {
    KILN_DEVICE_CPU = 1,
    KILN_DEVICE_GPU = 2,
    KILN_DEVICE_ACCELERATOR = 3,
    KILN_DEVICE_OTHER = 4
} kiln_device_type;

/** What a device says of itself. Sizes are bytes. */
typedef struct kiln_device_info {
    size_t index;                  /**< the number that chooses it */
    kiln_device_type type;         /**< kind of hardware */
    char name[128];                /**< device name */
    char vendor[128];              /**< device vendor */
    char platform[128];            /**< name of the OpenCL platform */
    char platform_version[128];    /**< version of the platform */
    char driver_version[128];      /**< version of the driver */
    char opencl_c_version[64];     /**< newest OpenCL C that it compiles */
    uint32_t compute_units;        /**< cores or multiprocessors */
    uint32_t clock_mhz;            /**< highest clock, 0 if not told */
    uint64_t memory;               /**< global memory */
    uint64_t max_allocation;       /**< largest single allocation; where the driver is known to give
                                        more than it says, all memory */
    uint64_t cache;                /**< last cache level that the driver tells of */
    uint64_t local_memory;         /**< local memory of a work-group */
    size_t max_work_group;         /**< most work-items in a work-group */
    uint32_t preferred_vector_f32; /**< preferred width of float vectors */
    uint32_t base_alignment;       /**< alignment of a buffer's start, bytes */
    int shares_host_memory;        /**< nonzero: no copy is needed between host and device */
    int has_f16;                   /**< declares cl_khr_fp16 */
    int has_f64;                   /**< has double precision */
    int has_subgroups;             /**< declares sub-groups */
    int has_inline_ptx;            /**< an NVIDIA device that takes PTX in asm statements */
} kiln_device_info;

/** Count the OpenCL devices of every platform. No driver at all counts as zero devices.
 *  Threads: any. Errors: INVALID_ARGUMENT for NULL, OUT_OF_HOST_MEMORY. */
KILN_API KILN_MUST_CHECK kiln_status kiln_device_count(size_t *count);

/** Describe device `index`, 0 to count - 1: the order is platform by platform as installed.
 *  Owner: the caller's structure is filled. Threads: any.
 *  Errors: INVALID_ARGUMENT for NULL or an index beyond the last. */
KILN_API KILN_MUST_CHECK kiln_status kiln_device_describe(size_t index, kiln_device_info *info,
                                                          size_t size);
#define kiln_device_describe(...) kiln_device_describe(__VA_ARGS__, sizeof(kiln_device_info))

/** Find the device that `choice` names: NULL or "" is $KILN_DEVICE, and where that is unset too
 *  the best one (a real GPU before an accelerator before a CPU, then compute units times clock).
 *  Otherwise an index ("0"), a type ("gpu", "cpu", "accelerator") or a part of the device's or
 *  platform's name in any case ("h200", "rusticl").
 *  Threads: any. Errors: NO_DEVICE, with a sentence that lists what was found. */
KILN_API KILN_MUST_CHECK kiln_status kiln_device_find(const char *choice, size_t *index);

/** "cpu", "gpu", "accelerator" or "other". Owner: static text. Threads: any. Errors: none. */
KILN_API const char *kiln_device_type_name(kiln_device_type type);

#ifdef __cplusplus
}
#endif

#endif
