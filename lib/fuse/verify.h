/* SPDX-License-Identifier: Apache-2.0 */
/* What the verifier checks of a kind of group alone (verify.c). */
#ifndef KILN_FUSE_VERIFY_H
#define KILN_FUSE_VERIFY_H

struct kiln__group_verifier;
typedef const char *kiln__group_check(const struct kiln__group_verifier *verifier);

kiln__group_check kiln__group_check_reduce, kiln__group_check_rows, kiln__group_check_product,
    kiln__group_check_whole;

#endif
