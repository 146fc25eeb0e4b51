/* SPDX-License-Identifier: Apache-2.0 */
/* One kernel to enqueue: which text, which arguments, how many work-items. */
#pragma once

#include "device/kernels.h"
#include "fuse/group.h"
#include "util/text.h"

enum kiln__argument_kind {
    KILN__ARGUMENT_MEMORY, /* the cl_mem of `slot` */
    KILN__ARGUMENT_OFFSET, /* an index: element `integer` of `slot`, counted from its cl_mem */
    KILN__ARGUMENT_INDEX,  /* `integer`, as wide as the launch's indices */
    KILN__ARGUMENT_I32,    /* `integer` */
    KILN__ARGUMENT_I64,    /* `integer` */
    KILN__ARGUMENT_F32,    /* `real` */
    KILN__ARGUMENT_TABLE   /* memory with the launch's table */
};

/* Which text declares an argument that has a name. */
enum kiln__argument_section {
    KILN__SECTION_GROUP,     /* that of the group's kernel, or a template's epilogue */
    KILN__SECTION_OPERAND_A, /* what a template reads as its operand A, */
    KILN__SECTION_OPERAND_B  /* or B; C and D have no arguments */
};

struct kiln__argument {
    enum kiln__argument_kind kind : 8;
    enum kiln__argument_section part : 8;
    kiln_type type : 8; /* MEMORY: of its elements */
    uint8_t item;       /* OFFSET: bytes of an element */
    uint32_t slot;
    /* Generated texts declare their parameters from these: */
    bool constant, restricted; /* MEMORY */
    uint16_t numbers[2];       /* that stand where the name has a '#' */
    const char *name; /* static; NULL: a parameter of a file of kernels/, which declares it */
    int64_t integer;
    float real;
};

/* Where a launch's text comes from. */
enum kiln__source {
    KILN__SOURCE_NEST,     /* generated from a map, reduce or rows group */
    KILN__SOURCE_TEMPLATE, /* a file of kernels/ with options */
    KILN__SOURCE_CLBLAST,  /* none: a CLBlast call */
    KILN__SOURCE_CUSTOM    /* the program's own (graph/custom_calls.h) */
};

/* How the elements of an access lie along the dimension that vectors run over. */
enum kiln__vector_access {
    KILN__REPEATED,   /* one element for all */
    KILN__CONTIGUOUS, /* neighbours */
    KILN__STRIDED,
    KILN__LINEAR, /* map: the element's number is its index, in all dimensions at once */
    KILN__ACROSS  /* map: neighbours along the form's dimension `across`; read in squares that are
                     turned in registers or in local memory */
};

/* Edge of a chunked device's tile, in elements. */
#define KILN__TILE 128

/* Items that exchange values without local memory, where any do. */
#define KILN__SHUFFLED 32

/* What becomes of an axis of a group's nest (loop_nest.h) on the device. */
enum kiln__axis_mapping {
    KILN__AXIS_NONE,    /* there is no such axis */
    KILN__AXIS_EACH,    /* one after the other; kept: of a chunk; reduced, inside kept VECTORS: all
                           of them for each vector */
    KILN__AXIS_VECTORS, /* runs of neighbours in vectors, and single ones after them */
    KILN__AXIS_BLOCKS,  /* reduced, inside kept VECTORS: a few rows at once for each vector */
    KILN__AXIS_TILES, /* kept: squares of two dimensions, turned block by block in registers, or by
                         a work-group in local memory */
    KILN__AXIS_ITEM,  /* kept: a vector per work-item */
    KILN__AXIS_LANES, /* kept: a power of two of work-items share one; reduced: each of these takes
                         every lanes-th vector */
    KILN__AXIS_HELD,  /* reduced: as LANES, all at once, to be kept from phase to phase */
    KILN__AXIS_PARTIALS, /* reduced: what segments have left */
    KILN__AXIS_COLUMNS   /* kept: as LANES, with neighbours beside each other in a work-group */
};

/* Whether work-items share elements of the kept axis. */
static inline bool kiln__axis_shares(uint8_t kept_mapping)
{
    return kept_mapping == KILN__AXIS_LANES || kept_mapping == KILN__AXIS_COLUMNS;
}

/* Which part of a reduction, or of running sums, a kernel does. Long ones are cut into segments of
 * fixed length, so that a result does not depend on how many there are beside it. */
enum kiln__stage {
    KILN__STAGE_WHOLE,
    KILN__STAGE_PARTIAL, /* totals of segments */
    KILN__STAGE_FINAL,   /* of a reduction: what these come to */
    KILN__STAGE_BEHIND   /* of running sums: segments, behind what those before have come to */
};

/* Whether a launch's second dimension is the number of segments. */
static inline bool kiln__stage_of_segments(uint8_t stage)
{
    return stage == KILN__STAGE_PARTIAL || stage == KILN__STAGE_BEHIND;
}

/* The operands of a file, A and B of a product, A to D of others in their order, of which generated
 * text reads the elements; whether the product's second operand is A; and which have vectors that
 * run across their lines, not along them. */
enum kiln__reads {
    KILN__READS_A = 1,
    KILN__READS_B = 2,
    KILN__READS_SWAPPED = 16,
    KILN__READS_A_ACROSS = 32,
    KILN__READS_B_ACROSS = 64
};

/* So many at most; further ones are read as they are. */
#define KILN__READABLE 4

/* All that shapes a generated kernel's text beside the group's steps. */
struct kiln__variant {
    uint8_t chunked;     /* one long chunk per work-item */
    uint8_t vector;      /* elements of a vector */
    uint8_t aligned;     /* contiguous vectors lie at multiples of their size */
    uint8_t wide;        /* indices have 64 bits */
    uint8_t streams;     /* has a switch for non-temporal stores */
    uint8_t work_group;  /* not chunked: log2 of the work-items in a work-group */
    uint8_t native_math; /* uses the device's own exp, tanh, ... */
    uint8_t no_fma;      /* and kiln's without fma() */
    uint8_t rank, kept;  /* dimensions after merging */
    enum kiln__axis_mapping kept_mapping : 8, reduced_mapping : 8;
    uint8_t across; /* TILES: 1 + the dimension that ACROSS accesses lie along */
    enum kiln__vector_access placed : 8; /* of stores that have strides; else 0 */
    uint8_t pairs; /* map, VECTORS: two vectors step by step beside each other; ITEM: an item has
                      two, a work-group apart */
    enum kiln__stage stage : 8;
    uint8_t partials; /* reduced VECTORS: log2 of a run's elements from which several at once come
                         from parts of it; 0: never */
    uint8_t rows;     /* BLOCKS: how many at once */
    uint8_t held;     /* HELD: vectors of a row that a lane has */
    uint8_t carried;  /* lanes: elements that each takes of a piece along which sums are carried */
    uint8_t shuffles; /* kept LANES: items exchange totals by kernels/lanes.cl; 1 + log2 of how many
                         share a row, a number that other kernels are told */
    uint8_t tile;     /* TILES, not chunked: edge of a work-group's, in elements */
    uint8_t online;   /* a phase that follows another (loop_nest.h) is done in one visit with it */
    uint8_t epilogue; /* template: the group's steps after its product are put into the file */
    uint8_t result;   /* template: 1 + the store that the file writes itself; 0: none of them */
    uint8_t operands; /* template: KILN__READS_..., of operands that a generated text reads */
    uint8_t generic;  /* template: kernels/generic.cl, behind all operations there are */
    uint8_t level_80; /* PTX has the larger and the smaller of two floats, NaN handed on, and two
                         floats to bf16 */
    uint8_t along[KILN__MOST_ACCESSES];   /* per access: enum kiln__vector_access */
    uint8_t updates[KILN__MOST_ACCESSES]; /* per access: 1 + the store that overwrites what it
                                             reads; 0: none */
};

/* Named as bytes (codegen.c). */
_Static_assert(sizeof(struct kiln__variant) == 28 + 2 * KILN__MOST_ACCESSES, "no padding");

struct kiln__launch {
    enum kiln__source source;
    uint32_t group;
    struct kiln__variant variant;  /* generated texts */
    const char *file;              /* template: name in kernels/, static */
    char options[256];             /* template: build options */
    const char *kernel;            /* name of the kernel, static */
    struct kiln__selection choice; /* of the catalogue */
    bool self_tested; /* by what no driver promises, as instructions that OpenCL C has not: it
                         was tried before, and its program may be refused even so */
    enum kiln__argument_section part; /* of arguments that are appended from now on */
    bool failed;       /* without memory for an argument; further ones make no difference */
    uint32_t joined;   /* 1 + the plan's joined launch that does it as a phase; 0: none */
    uint32_t covers;   /* 1 + the group that its group has absorbed (implicit_im2col.c); 0: none */
    uint32_t prepacks; /* 1 + the slot that it makes of buffers that stay (frozen.c); 0: none */
    KILN__VECTOR(struct kiln__argument) arguments;
    KILN__VECTOR(uint32_t) phases; /* of a joined one: launches of the plan, in their order */
    KILN__VECTOR(int32_t) table;   /* see lower/generic.h; most have none */
    uint32_t dimensions;
    size_t global[3], local[3];
    uint64_t bytes; /* memory traffic at least */
};

/* Whether it has a text of its own, before a file of kernels/ or instead of one. */
static inline bool kiln__launch_has_text(const struct kiln__launch *launch)
{
    return launch->source == KILN__SOURCE_NEST || launch->source == KILN__SOURCE_CUSTOM ||
           launch->variant.epilogue || launch->variant.operands || launch->variant.generic ||
           launch->phases.count;
}

/* Whether it is by a kernel of this family, of the catalogue. */
static inline bool kiln__launch_is_by(const struct kiln__launch *launch,
                                      enum kiln__kernel_family family)
{
    return launch->choice.taken && launch->choice.taken->family == family;
}

/* Whether memory that it takes is that of `slot`. */
bool kiln__launch_names(const struct kiln__launch *launch, uint32_t slot);

/* Append an argument of a file of kernels/. */
void kiln__launch_memory(struct kiln__launch *launch, uint32_t slot);
void kiln__launch_offset(struct kiln__launch *launch, uint32_t slot, int64_t elements, size_t item);
void kiln__launch_index(struct kiln__launch *launch, int64_t value);
void kiln__launch_i32(struct kiln__launch *launch, int64_t value);
void kiln__launch_f32(struct kiln__launch *launch, float value);
void kiln__launch_table(struct kiln__launch *launch);

/* A number's bits as an integer; a float's are the lower half. */
int64_t kiln__argument_bits(const struct kiln__argument *argument);

/* Append an argument that a generated text declares under a name, which is static: "s#_#" with the
 * numbers in the places of '#'. It is put together only where a text is written. */
void kiln__launch_add(struct kiln__launch *launch, struct kiln__argument argument, const char *name,
                      size_t first, size_t second);
struct kiln__phrase kiln__argument_name(const struct kiln__argument *argument);

/* Memory that a checked kernel notes a wrong index in (codegen/codegen.h). */
#define KILN__WRONG_BYTES 512
