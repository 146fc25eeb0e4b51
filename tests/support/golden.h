/* SPDX-License-Identifier: Apache-2.0 */
/* Texts as they were, in tests/golden: some whole, as examples to read, the others as hashes in
 * tests/golden/hashes. With KILN_GOLDEN=FOLDER texts are written there instead of being compared,
 * whole ones as FOLDER/NAME.txt, the others as FOLDER/hashed/NAME.DEVICE.txt and
 * FOLDER/hashed/hashes: `make golden` puts them into tests/golden, `make golden-diff BASE=BUILD`
 * compares those of two builds. */
#pragma once

#include "util/text.h"

/* Compare with tests/golden/NAME.txt. Frees the text. */
void expect_golden(const char *name, struct kiln__text *text);

/* Compare with the row of a name and device in tests/golden/hashes. Frees the text. */
void expect_golden_hash(const char *name, const char *device, struct kiln__text *text);
