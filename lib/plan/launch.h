/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel to enqueue: which text, which arguments, how many work-items. */
#ifndef KILN_PLAN_LAUNCH_H
#define KILN_PLAN_LAUNCH_H

#include "fuse/group.h"

enum kiln__argument_kind {
    KILN__ARGUMENT_MEMORY, /* the cl_mem of `slot` */
    KILN__ARGUMENT_OFFSET, /* an index: element `integer` of `slot`, counted from its cl_mem */
    KILN__ARGUMENT_INDEX,  /* `integer`, as wide as the launch's indices */
    KILN__ARGUMENT_I32,    /* `integer` */
    KILN__ARGUMENT_F32     /* `real` */
};

struct kiln__argument {
    uint8_t kind; /* enum kiln__argument_kind */
    uint8_t item; /* OFFSET: bytes of an element */
    uint32_t slot;
    int64_t integer;
    float real;
};

/* Where a launch's text comes from. */
enum kiln__source {
    KILN__SOURCE_MAP,      /* generated from a map group */
    KILN__SOURCE_REDUCE,   /* generated from a reduce group */
    KILN__SOURCE_ROWS,     /* generated from a rows group */
    KILN__SOURCE_TEMPLATE, /* a file of kernels/ with options */
    KILN__SOURCE_CLBLAST   /* none: a CLBlast call */
};

/* How the elements of an access lie along the dimension that vectors run over. */
enum kiln__along {
    KILN__REPEATED,   /* one element for all */
    KILN__CONTIGUOUS, /* neighbours */
    KILN__STRIDED,
    KILN__LINEAR, /* map: the element's number is its index, in all dimensions at once */
    KILN__ACROSS  /* map: neighbours along the form's dimension `across`; read in square blocks
                     that are turned in registers */
};

/* Maps with such an access go tile by tile: edge of a tile, in elements. */
#define KILN__TILE 128

/* How a reduction's vectors run. */
enum kiln__direction { KILN__ALONG_ROWS, KILN__ALONG_COLUMNS };

/* Which part of a reduction a kernel does. Long ones are cut into segments of fixed length, so that
 * a result does not depend on how many there are beside it. */
enum kiln__stage { KILN__STAGE_WHOLE, KILN__STAGE_PARTIAL, KILN__STAGE_FINAL };

/* All that shapes a generated kernel's text beside the group's steps. */
struct kiln__form {
    uint8_t chunked;     /* one long chunk per work-item */
    uint8_t vector;      /* elements of a vector */
    uint8_t aligned;     /* contiguous vectors lie at multiples of their size */
    uint8_t wide;        /* indices have 64 bits */
    uint8_t streams;     /* has a switch for non-temporal stores */
    uint8_t work_group;  /* not chunked: log2 of the work-items in a work-group */
    uint8_t native_math; /* uses the device's own exp, tanh, ... */
    uint8_t no_fma;      /* and kiln's without fma() */
    uint8_t rank, kept;  /* dimensions after merging */
    uint8_t across;      /* map: 1 + the dimension that ACROSS accesses lie along; 0: none does */
    uint8_t placed;      /* map: enum kiln__along of the store, if it has strides; else 0 */
    uint8_t direction;   /* reduce: enum kiln__direction */
    uint8_t stage;       /* reduce: enum kiln__stage */
    uint8_t held;        /* rows, not chunked: vectors of a row that a lane has; 0: any number */
    uint8_t value_type;  /* reduce: kiln_type of the values */
    uint8_t epilogue;    /* template: the group's steps after its product are put into the file */
    uint8_t result;      /* template: 1 + the store that the file writes itself; 0: none of them */
    uint8_t along[KILN__MOST_ACCESSES];   /* per access: enum kiln__along */
    uint8_t updates[KILN__MOST_ACCESSES]; /* per access: 1 + the store that overwrites what it
                                             reads; 0: none */
};

/* Named as bytes (codegen.c). */
_Static_assert(sizeof(struct kiln__form) == 18 + 2 * KILN__MOST_ACCESSES, "no padding");

struct kiln__launch {
    uint8_t source; /* enum kiln__source */
    uint32_t group;
    struct kiln__form form; /* generated texts */
    const char *file;       /* template: name in kernels/, static */
    char options[256];      /* template: build options */
    const char *kernel;     /* name of the kernel, static */
    const char *matmul;     /* of a matrix product: the implementation, static; else NULL */
    bool substitute;        /* another implementation was wanted, which cannot do this product */
    KILN__VECTOR(struct kiln__argument) arguments;
    uint32_t dimensions;
    size_t global[3], local[3];
    uint64_t bytes; /* memory traffic at least */
};

/* Append an argument; false without memory. */
bool kiln__launch_memory(struct kiln__launch *launch, uint32_t slot);
bool kiln__launch_offset(struct kiln__launch *launch, uint32_t slot, int64_t elements, size_t item);
bool kiln__launch_index(struct kiln__launch *launch, int64_t value);
bool kiln__launch_i32(struct kiln__launch *launch, int64_t value);
bool kiln__launch_f32(struct kiln__launch *launch, float value);

/* A scalar of a group in the type that kernels take it in. */
bool kiln__launch_scalar(struct kiln__launch *launch, kiln_type type, double value);

/* Memory that a checked kernel notes a wrong index in (codegen/codegen.h). */
#define KILN__WRONG_BYTES 512

#endif
