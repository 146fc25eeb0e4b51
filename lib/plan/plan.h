/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: what one run of a batch does, step by step. It depends on the structure of the batch and
 * on the device, not on data, pointers or buffers: those are bound when it runs. */
#pragma once

#include "device/device.h"
#include "device/tunables.h"
#include "fuse/group.h"
#include "plan/launch.h"
#include "util/hash.h"

/* Where a value lives while the plan runs. */
enum kiln__storage {
    KILN__STORAGE_ARENA,     /* in the memory that the plan's intermediates share */
    KILN__STORAGE_INPUT,     /* in what input `binding` is bound to */
    KILN__STORAGE_RESULT,    /* in what result `binding` is bound to */
    KILN__STORAGE_PREPACKED, /* in memory of its own, that may stay: made of its `sources` alone */
    KILN__STORAGE_COUNTERS   /* in KILN__COUNTERS ints of the stream, 0 before and after each launch
                              */
};
#define KILN__COUNTERS 16384

/* Inputs that go into what is kept. */
#define KILN__MOST_SOURCES 12

struct kiln__slot {
    uint32_t node; /* KILN__SCRATCH: working memory of one launch */
    enum kiln__storage storage;
    uint32_t binding;
    bool in_place; /* a result in the buffer that an input is read from */
    size_t bytes;
    size_t offset;        /* of an arena slot, in bytes */
    uint32_t first, last; /* steps between which its content matters */
    /* Of a slot that launches make of buffers which stay as they are (frozen.c): */
    struct kiln__hash128 key;             /* names what is made of the sources, in all plans */
    uint32_t sources[KILN__MOST_SOURCES]; /* inputs, each once */
    uint32_t n_sources;                   /* of a kept slot: 1 at least */
    bool wanted;                          /* of any slot: a step that no run leaves out names it */
    bool frozen; /* of a node: a buffer that the batch does not replace, or made of such alone by
                    groups that only bring them into another form (frozen.c) */
};
#define KILN__SCRATCH UINT32_MAX

/* Steps of a plan. (KILN__STEP_LOAD and its like are those of a group: fuse/group.h.) */
enum kiln__plan_step_kind {
    KILN__STEP_UPLOAD,   /* input `binding` to `slot` */
    KILN__STEP_LAUNCH,   /* launch `launch` */
    KILN__STEP_DOWNLOAD, /* `slot` to result `binding`, host memory */
    KILN__STEP_COPY      /* `slot` to result `binding`, a buffer */
};

struct kiln__plan_step {
    enum kiln__plan_step_kind kind;
    uint32_t slot;
    uint32_t launch;
    uint32_t binding;
    uint32_t first_dependency, dependencies; /* into the plan's: so many, from there on */
};

/* A self-test that a kernel has to pass on the device before plans use it: a product's or an
 * attention's, by what tells its programs apart. `passes` may take as long as a compilation; any
 * thread may call it. */
struct kiln__self_test {
    const struct kiln__kernel_row *kernel;
    kiln_type type; /* of the operands */
    uint8_t transpose_a, transpose_b;
    uint8_t parts;  /* of each operand */
    uint16_t tile;  /* columns of one */
    kiln_type mask; /* of an attention, as the kernel reads it; 0: none */
    uint8_t
        form; /* of backward nodes: enum kiln__attention_backward_result; of an attention: whether
                 rows' log-sum-exp is stored, too; of a product: whether tiles are handed over */
};

struct kiln__self_tester {
    bool (*passes)(struct kiln__self_tester *self_tester, const struct kiln__self_test *self_test);
};

/* Whether runs of short launches become one (codegen/one_launch.c). */
enum kiln__one_launch {
    KILN__ONE_LAUNCH_OFF,
    KILN__ONE_LAUNCH_AUTO, /* where that pays; a batch runs without until it has paid to compile the
                              kernel of all (session/background.h) */
    KILN__ONE_LAUNCH_ON    /* wherever it can be done, from the first run on */
};

struct kiln__plan_options {
    const struct kiln__device *device;
    bool shared;        /* uploads and reads use the caller's memory in place */
    const char *matmul; /* implementation that is to be used where it can be; NULL: heuristic */
    bool no_clblast;    /* which compiles kernels by itself */
    struct kiln__self_tester *self_tester; /* NULL: kernels that need one are not used */
    const struct kiln__tuning *tuning;     /* values of single works, or NULL (device/tunables.h) */
    const bool *generic; /* per group: it is computed by the generic kernel (generic.h); NULL: none.
                            While the plan is made */
    enum kiln__one_launch one_launch;
    bool all_generic; /* all are that can be: for tests */
    uint64_t limit;   /* most bytes that a run may need, if values that are computed again
                         (rematerialise.c) can bring it there; 0: none */
};

/* A device with the tuned values of one workload. */
struct kiln__tuned_device {
    struct kiln__device device;
    struct kiln__traits traits;
};

struct kiln__plan {
    struct kiln__fusion fusion;
    struct kiln__plan_options options;
    KILN__VECTOR(struct kiln__slot) slots;
    KILN__VECTOR(struct kiln__launch) launches;
    KILN__VECTOR(struct kiln__launch)
    joined; /* each does several of `launches`, at the step of the first, as its phases
               (codegen/one_launch.c) */
    KILN__VECTOR(uint32_t) functions; /* of each kernel that these do a launch that has it */
    KILN__VECTOR(struct kiln__plan_step) steps;
    /* Of each step, ascending: earlier ones that wrote what it reads or writes over, or that read
     * what it writes over, unless that follows from others. Steps may run in any order, and at
     * the same time, as long as these have ended. */
    KILN__VECTOR(uint32_t) dependencies;
    uint32_t *slot_of; /* per node: its slot, or KILN__NO_SLOT */
    bool *absorbed;    /* per group: absorbed, has no launch; its readers compute its values as they
                          load them (implicit_im2col.c) */
    size_t arena_bytes;
    size_t prepacked_bytes;            /* of prepacked slots */
    struct kiln__tuned_device **tuned; /* while it is made, per group: where a record has values for
                                          workloads (lower/workload.h); or NULL */
    bool failed; /* without memory while it is made: what is added then makes no difference */
    uint64_t unshared_bytes; /* what the arena would take if nothing shared memory */
    char *packed;            /* the one piece that holds it; NULL: each vector has its own */
};
#define KILN__NO_SLOT UINT32_MAX

/* Both kinds of launches are numbered as one list, the joined ones behind the others. */
static inline size_t kiln__plan_launches(const struct kiln__plan *plan)
{
    return plan->launches.count + plan->joined.count;
}

static inline const struct kiln__launch *kiln__plan_launch_at(const struct kiln__plan *plan,
                                                              size_t index)
{
    return index < plan->launches.count ? &plan->launches.items[index]
                                        : &plan->joined.items[index - plan->launches.count];
}

/* Launches that are not joined ones which a launch, of either kind, does: so many, and part `k`. */
static inline size_t kiln__plan_phases(const struct kiln__plan *plan, uint32_t launch)
{
    const size_t phases = kiln__plan_launch_at(plan, launch)->phases.count;
    return phases ? phases : 1;
}

static inline uint32_t kiln__plan_phase(const struct kiln__plan *plan, uint32_t launch, size_t k)
{
    const struct kiln__launch *of = kiln__plan_launch_at(plan, launch);
    return of->phases.count ? of->phases.items[k] : launch;
}

/* Whether joined ones are used by later runs only. */
static inline bool kiln__plan_joins_later(const struct kiln__plan *plan)
{
    return plan->joined.count && plan->options.one_launch == KILN__ONE_LAUNCH_AUTO;
}

/* How many are enqueued, where joined ones are used. */
size_t kiln__plan_enqueued(const struct kiln__plan *plan);

/* Device memory that a run may need at once: what is kept, too, since it may have to be made again.
 */
static inline uint64_t kiln__plan_peak(const struct kiln__plan *plan)
{
    return (uint64_t)plan->arena_bytes + plan->prepacked_bytes;
}

void kiln__plan_free(struct kiln__plan *plan);

/* The device that the group is lowered for: with its traits as tuned for the group's workload. */
const struct kiln__device *kiln__plan_device(const struct kiln__plan *plan,
                                             const struct kiln__group *group);

/* Free the tuned values, once all groups are lowered. */
void kiln__plan_forget_tuned(struct kiln__plan *plan);

/* Move all of it into one piece of memory, now that it is complete, if there is as much; the bytes
 * of the host that it takes. */
size_t kiln__plan_pack(struct kiln__plan *plan);

/* A copy of one that is complete, packed or not, which may be changed. False without memory. */
bool kiln__plan_copy(const struct kiln__plan *plan, struct kiln__plan *copy);

/* Check what running it relies on (verify_plan.c). Errors: WRONG_STATE, with what is wrong in
 * `text`; OUT_OF_HOST_MEMORY. */
kiln_status kiln__plan_verify(const struct kiln__plan *plan, char text[KILN__WRONG]);

/* The same of what steps depend on (verify_dependencies.c), of a plan that is else right. */
kiln_status kiln__plan_verify_dependencies(const struct kiln__plan *plan, char text[KILN__WRONG]);

/* A slot that a step names: memory that it reads or writes. */
struct kiln__named {
    uint32_t slot;
    bool written; /* working memory counts as written: what reads it is behind what wrote it */
    size_t next;  /* 0 before the first one */
};

/* The next one of the step; false after the last. */
bool kiln__plan_next_named(const struct kiln__plan *plan, const struct kiln__plan_step *step,
                           struct kiln__named *named);

/* The group's first launch from launch `from` on; launches.count: none. And whether one of its
 * launches before launch `before` takes the slot's memory. */
size_t kiln__plan_next_launch(const struct kiln__plan *plan, uint32_t group, size_t from);
bool kiln__plan_group_names(const struct kiln__plan *plan, uint32_t group, size_t before,
                            uint32_t slot);

/* The call of an own kernel that a launch is of. */
const struct kiln__custom *kiln__launch_custom(const struct kiln__plan *plan,
                                               const struct kiln__launch *launch);

/* Elements of a block of what an offset's argument counts in its slot; 1: they lie apart. And the
 * index of the slot's first element, counted from the beginning of its cl_mem. */
size_t kiln__plan_block(const struct kiln__plan *plan, const struct kiln__argument *argument);
int64_t kiln__plan_first_element(const struct kiln__plan *plan,
                                 const struct kiln__argument *argument);

/* Append a slot; KILN__NO_SLOT without memory. */
uint32_t kiln__plan_add_slot(struct kiln__plan *plan, struct kiln__slot slot);

/* The slot of working memory for one launch; KILN__NO_SLOT without memory. */
uint32_t kiln__plan_scratch(struct kiln__plan *plan, size_t bytes);

/* The plan's slot of counters; KILN__NO_SLOT without memory. */
uint32_t kiln__plan_counters(struct kiln__plan *plan);

/* Append a step. */
void kiln__plan_add(struct kiln__plan *plan, struct kiln__plan_step step);
