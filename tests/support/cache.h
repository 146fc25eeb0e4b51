/* SPDX-License-Identifier: Apache-2.0 */
/* What tests and campaigns of the cache share: a folder of their own, keys by number, payloads that
 * can be told from any other's, programs in kiln-store's place. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "store/store.h"

/* True if the argument "long" is given. */
bool campaign_is_long(int argc, char **argv);

/* A fresh folder (mode 0700) below $TMPDIR; fake_end() removes it. Ends the program if it
 * cannot be had. */
const char *fake_folder(void);
void fake_end(void);

struct kiln__disk_store *fake_open(uint64_t limit);

/* Key `number` of an imagined device and driver. */
void fake_key(int number, struct kiln__key *key);

/* Put what belongs to a key; whether what was loaded is what belongs there. */
bool fake_put(struct kiln__disk_store *store, const struct kiln__key *key, int number);
bool fake_fits(const struct kiln__loaded *loaded, int number);

/* The entry's file within the folder, and its path. */
void fake_path(const struct kiln__key *key, char *path, size_t size);

/* A shell script in the folder, which is started in the place of kiln-store from now on; its `stay`
 * lasts until fake_end(), five minutes at most. Ends the program if it cannot be written. */
void fake_store_program(const char *script);

/* The same as kiln-store, or `then`, that says at once that it is ready, and begins when it is let
 * go: however busy a machine is, no kernel is there before, and none is given up. */
void fake_store_held(const char *then);
void fake_store_let_go(void);

/* Numbers that look random; the same for the same state. */
uint64_t fake_random(uint64_t *state);

/* Files in the folder that are no entry. */
int fake_leftovers(void);
