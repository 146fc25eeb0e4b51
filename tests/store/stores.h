/* SPDX-License-Identifier: Apache-2.0 */
/* A store in a folder of its own, and two keys: what tests of stores share. */
#pragma once

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>

#include "../support/cache.h"
#include "store/folder.h"

static struct kiln__disk_store *store;
static struct kiln__key key, other;

static inline void setup(void)
{
    unsetenv("KILN_CACHE");
    store = fake_open(0);
    fake_key(1, &key);
    fake_key(2, &other);
}

static inline void teardown(void)
{
    kiln__store_close(store);
    kiln__key_free(&key);
    kiln__key_free(&other);
    fake_end();
}

static inline bool found(struct kiln__disk_store *in, const struct kiln__key *of, int number)
{
    struct kiln__loaded loaded;
    if (!kiln__store_get(in, of, &loaded)) {
        cr_expect_null(loaded.file.bytes);
        return false;
    }
    cr_expect(fake_fits(&loaded, number));
    kiln__store_unload(&loaded);
    return true;
}

static inline int open_folder(void)
{
    int folder = open(fake_folder(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert(folder >= 0);
    return folder;
}

static inline struct kiln__disk_store *open_as(const char *folder, kiln_cache_mode mode)
{
    const struct kiln__store_options options = {folder, 0, mode};
    struct kiln__disk_store *opened = kiln__store_open(&options);
    cr_assert_not_null(opened);
    return opened;
}
