/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of this machine: finding them, choosing one, what it can do. */
#pragma once

#include <kiln/device.h>

#include "device/opencl.h"
#include "util/error.h"

/* What lets a work-group see what others of its launch wrote before they counted themselves
 * (kernels/matmul_gpu.cl, TOGETHER); no device's OpenCL 1.2 promises it. */
enum kiln__fence {
    KILN__FENCE_NONE,
    KILN__FENCE_OPENCL, /* mem_fence(), as on CPUs */
    KILN__FENCE_PTX     /* NVIDIA's instruction */
};

/* How kernels for a device are shaped. Data, so that no code asks for a device's name. */
struct kiln__traits {
    const char *name;          /* of the row, for `kiln info` and `kiln explain` */
    bool chunked;              /* local size 1, one long chunk per work-item (CPUs), instead of
                                  work-groups whose neighbours touch neighbouring elements */
    unsigned vector;           /* elements of a vector in generated loops */
    unsigned chunks;           /* chunked: work-items to aim for in one launch */
    unsigned min_chunk;        /* chunked: fewest elements worth a work-item */
    unsigned long_run;         /* chunked: log2 of the elements from which a row's sum is read at
                                  several places at once */
    unsigned work_group;       /* not chunked: work-items in a work-group, */
    unsigned long_work_group;  /* and in one for a long row that is read twice; 0: as many */
    bool small_maps;           /* of maps half as many: gelu took an H200 0.975 times as long, a
                                  gather 0.98, with twice as many 1.02 and 1.04 */
    bool shuffles;             /* 32 items exchange values by kernels/lanes.cl */
    bool live_host_pointers;   /* CL_MEM_USE_HOST_PTR memory is the caller's memory at any time,
                                  with no map and unmap around the host's accesses */
    bool apart;                /* another machine's, through PoCL-Remote */
    bool nontemporal_stores;   /* compiles __builtin_nontemporal_store */
    bool one_launch;           /* launches become one (codegen/one_launch.c); chunked: a work-group
                                  that runs goes on while another one waits for it in a loop */
    bool late_binary;          /* the binary is complete only after the first launch */
    bool serial_compiler;      /* compiles in one thread of a process at a time, */
    bool threaded_compiler;    /* or in many; of others it is not known that many are safe */
    const char *quick_options; /* compile a kernel in a fourth of the time, to a slower one with
                                  the same bits; NULL: none do */
    const char *bare_option;   /* has a program begin without OpenCL C's functions, which
                                  kernels/builtins.cl declares sooner; NULL: none does */
    bool fast_math_functions;  /* the device's own exp, tanh, ... are fast; else kiln's are used */
    bool emulates_fma;         /* fma() is slow and kiln's functions do without */
    bool no_generic_kernel; /* its compiler loses cases of that kernel's long switch (Mesa 22.3) */
    bool lazy_memory;       /* clCreateBuffer promises any amount */
    bool idle_release;      /* clReleaseMemObject() may wait for ever beside other threads' calls */
    bool dear_events;       /* a command that has one takes some 3 us longer, and one that fails
                               takes the context with it */
    bool dear_arguments;    /* each argument costs who enqueues some time (plan/packing.h) */
    bool starts_unflushed;  /* a command begins without clFlush(), which takes some 1 us */
    enum kiln__fence fence; /* work-groups of a launch can hand each other results */
    bool clblast;           /* CLBlast is the faster one for large products */
    const char *build_options; /* for every program */
    /* What is tuned (tunables.c), most of it for single shapes; 0: the kernel's own rule. */
    unsigned segment; /* elements of a segment of a long reduction */
    unsigned lanes;   /* work-items that share a row */
    unsigned held;    /* vectors of a row that a lane keeps at most */
    unsigned carried; /* elements of a running sum that a lane adds up by itself */
    unsigned rows;    /* chunked: rows that a reduction of columns reads at once */
    unsigned edge;    /* of a tile that is turned in local memory */
    unsigned stream;  /* chunked: stores past the caches 1: never, 2: always */
    unsigned product; /* 1 + the implementation's number (lower/matmul.h) */
    unsigned tile;    /* 1 + the number of the tile in the implementation's table */
    unsigned splits;  /* of a product's depth */
    unsigned share;   /* chunked: work-items of a product for each unit */
    unsigned depth;   /* chunked: of a product's blocks */
    /* CLBlast's parameters, 1 + the number of a set of runtime/clblast_sets.h; 0: its own. */
    unsigned gemm;        /* of large products */
    unsigned gemm_direct; /* of small ones */
};

/* The ptx_level whose instructions wgmma and the copy engine are that level's alone. */
#define KILN__HOPPER 90
/* The first ptx_level with copies to local memory in the background, and bf16. */
#define KILN__AMPERE 80

struct kiln__device {
    cl_platform_id platform;
    cl_device_id id;
    kiln_device_info info;
    const struct kiln__traits *traits;
    unsigned ptx_level; /* of a device that takes PTX: 90 is compute capability 9.0; else 0 */
};

/* Find and describe the device that `choice` names, as kiln_device_find() does.
 * Errors: NO_DEVICE, OUT_OF_HOST_MEMORY. */
kiln_status kiln__device_choose(const char *choice, struct kiln__device *device,
                                struct kiln__error *error);

/* Errors: FORKED in a child of a process that has looked for devices: drivers start threads then,
 * which the child does not have, and its first command would wait for ever. */
kiln_status kiln__device_check_process(struct kiln__error *error);

/* Describe a device that the caller has; its index is SIZE_MAX if no platform lists it.
 * Errors: INVALID_ARGUMENT, DEVICE_ERROR. */
kiln_status kiln__device_from_cl(cl_device_id id, struct kiln__device *device,
                                 struct kiln__error *error);

/* The traits for a described device: the first row of the table that fits. Never NULL. */
const struct kiln__traits *kiln__traits_for(const kiln_device_info *info);
