/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of kernels (kernels.def) as data: names, texts, what each needs of a device. What
 * each can do of a plan, and how it is launched, stands in lower/select.h. */
#pragma once

#include "device/device.h"

enum kiln__kernel_family {
    KILN__KERNEL_PRODUCT,
    KILN__KERNEL_ATTENTION,
    KILN__KERNEL_ATTENTION_GRADIENT,
    KILN__KERNEL_SORT,
    KILN__KERNEL_SCATTER,
    KILN__KERNEL_FAMILIES
};

enum kiln__kernel_trait {
    /* Of the device: chunked, or not; instructions since NVIDIA's Ampere, or of Hopper alone. */
    KILN__KERNEL_CHUNKED = 1,
    KILN__KERNEL_GROUPED = 2,
    KILN__KERNEL_AMPERE = 4,
    KILN__KERNEL_HOPPER = 8,
    /* Taken only where its self-test has found it right (debug/self_test.h). */
    KILN__KERNEL_PROVED = 16,
    /* Computes the group's steps before a product and after it. */
    KILN__KERNEL_STEPS = 32,
    /* Needs no f32 workspace when the epilogue writes every result. */
    KILN__KERNEL_NO_WORKSPACE = 64,
    /* Implicit im2col: loads operand A from the image, not from a copy. */
    KILN__KERNEL_IM2COL = 128,
    /* The order of additions depends on k alone, and all such rows of a device share it, but for
     * those with an order of their own, which are taken wherever they can be: that does not hang on
     * the number of rows. */
    KILN__KERNEL_BATCH_INVARIANT = 256,
    /* Integer sums of any depth are exact. */
    KILN__KERNEL_EXACT_INTEGERS = 512,
    /* Stores the log-sum-exp of an attention's rows, too. */
    KILN__KERNEL_LOG_SUM_EXP = 1024,
    /* Gives two results of a gradient at once. */
    KILN__KERNEL_PAIR = 2048,
    KILN__KERNEL_OWN_ORDER = 4096
};

struct kiln__kernel_row {
    enum kiln__kernel_family family;
    unsigned traits;
    const char *name, *file; /* file: of kernels/; empty: none */
    const char *purpose;
};

/* Numbers of products' rows, as traits and tuning records have them; 0: none. */
enum kiln__product_kernel {
    KILN__NO_PRODUCT_KERNEL,
#define PRODUCT(name, ...) KILN__BY_##name,
#include "device/kernels.def"
    KILN__PRODUCT_KERNELS /* one more than the last */
};

/* All rows in their order, those of a family one after the other; NULL after the last. */
const struct kiln__kernel_row *kiln__kernel(size_t number);

/* Its place among all. */
size_t kiln__kernel_number(const struct kiln__kernel_row *kernel);

/* Row `number` of a family, from 0 on; NULL after the last. */
const struct kiln__kernel_row *kiln__kernel_of(enum kiln__kernel_family family, size_t number);

/* The row of this name; NULL: there is none. */
const struct kiln__kernel_row *kiln__kernel_named(enum kiln__kernel_family family,
                                                  const char *name);

/* "a product", "an attention", "an attention's gradient", "a sort", "a scatter" */
const char *kiln__kernel_family_name(enum kiln__kernel_family family);

/* Whether the device has what it needs, but for the self-test. */
bool kiln__kernel_is_for(const struct kiln__kernel_row *kernel, const struct kiln__device *device);

/* Whether tuning tries it there: on chunked devices those that are for these alone. */
bool kiln__kernel_is_tuned_on(const struct kiln__kernel_row *kernel,
                              const struct kiln__device *device);

/* Which kernel a launch is by, and why. */
enum kiln__reason {
    KILN__REASON_ASKED,    /* by name */
    KILN__REASON_TUNED,    /* a record or a variable has its number */
    KILN__REASON_CHEAPEST, /* the first that suits */
    KILN__REASON_LAST      /* nothing else fits */
};

struct kiln__selection {
    const struct kiln__kernel_row *taken; /* NULL: nothing was to be chosen */
    /* What would be taken instead; NULL: nothing. Rows that need a self-test are left out. */
    const struct kiln__kernel_row *next;
    enum kiln__reason reason;
    bool substitute; /* for one that was asked for by name and cannot do it */
};

/* "it was asked for" */
const char *kiln__reason_text(enum kiln__reason reason);
