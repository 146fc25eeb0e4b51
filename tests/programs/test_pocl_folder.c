/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of PoCL's cache for one worker each: whose they are, what is linked between them and the
 * shared one, and the libraries that stand in for a variant. No device is needed. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/cache.h"
#include "programs/pocl_folder.h"
#include "programs/stand_in.h"

#define PROGRAM "AB/CDEF"

static struct kiln__pocl_folder folder;

static void begin(void)
{
    unsetenv("POCL_KERNEL_CACHE");
    unsetenv("POCL_WORK_GROUP_SPECIALIZATION");
    setenv("POCL_CACHE_DIR", fake_folder(), 1);
}

TestSuite(pocl_folder, .init = begin, .fini = fake_end);

/* A file and the folders above it, as another process makes them. */
static void make(const char *below, const char *name)
{
    char command[600];
    snprintf(command, sizeof command, "cd '%s' && mkdir -p \"$(dirname '%s')\" && echo >'%s'",
             below, name, name);
    cr_assert_eq(system(command), 0);
}

static bool is_there(const char *below, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", below, name);
    return !access(path, F_OK);
}

/* ---- stand-ins ---- */

Test(pocl_folder, a_stand_in_has_its_symbol_and_no_other)
{
    char path[300];
    snprintf(path, sizeof path, "%s/stand-in.so", fake_folder());
    cr_assert(kiln__stand_in_write(path, "_pocl_kernel_k_workgroup"));
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    cr_assert(library, "%s", dlerror());
    cr_expect(dlsym(library, "_pocl_kernel_k_workgroup"));
    cr_expect_not(dlsym(library, "_pocl_kernel_j_workgroup"));
    dlclose(library);
}

Test(pocl_folder, a_stand_in_takes_no_files_place_and_has_no_endless_name)
{
    char path[300], symbol[400];
    struct stat facts;
    make(fake_folder(), "k.so");
    snprintf(path, sizeof path, "%s/k.so", fake_folder());
    cr_expect_not(kiln__stand_in_write(path, "k"));
    cr_expect(!stat(path, &facts) && facts.st_size == 1);
    memset(symbol, 'k', sizeof symbol - 1);
    symbol[sizeof symbol - 1] = 0;
    snprintf(path, sizeof path, "%s/j.so", fake_folder());
    cr_expect_not(kiln__stand_in_write(path, symbol));
    cr_expect_not(is_there(fake_folder(), "j.so"));
}

/* ---- folders ---- */

Test(pocl_folder, each_has_one_and_leaves_none)
{
    struct kiln__pocl_folder other;
    cr_assert(kiln__pocl_folder_open(&folder));
    cr_expect_str_eq(getenv("POCL_CACHE_DIR"), folder.own);
    cr_expect_str_eq(folder.shared, fake_folder());
    setenv("POCL_CACHE_DIR", fake_folder(), 1);
    cr_assert(kiln__pocl_folder_open(&other));
    cr_expect_str_neq(folder.own, other.own);
    make(folder.own, PROGRAM "/k/1-1-1/k.so");
    kiln__pocl_folder_close(&folder);
    kiln__pocl_folder_close(&other);
    cr_expect_str_eq(getenv("POCL_CACHE_DIR"), fake_folder());
    cr_expect_not(is_there(folder.own, "."));
    cr_expect_not(is_there(other.own, "."));
}

/* The name of the first one in the shared cache. */
static const char *first_folder(void)
{
    static char path[PATH_MAX];
    cr_assert(kiln__pocl_folder_open(&folder));
    strcpy(path, folder.own);
    kiln__pocl_folder_close(&folder);
    setenv("POCL_CACHE_DIR", fake_folder(), 1);
    return path;
}

Test(pocl_folder, what_one_that_was_killed_left_is_removed)
{
    const char *first = first_folder();
    cr_assert_eq(mkdir(first, 0700), 0);
    make(first, "kiln-worker");
    make(first, PROGRAM "/k/0-0-0/k.so");
    cr_assert(kiln__pocl_folder_open(&folder));
    cr_expect_str_eq(folder.own, first);
    cr_expect_not(is_there(first, "AB"));
    kiln__pocl_folder_close(&folder);
}

/* One without kiln's mark, one that others may write to, one by way of a link. */
Test(pocl_folder, what_is_not_kilns_is_left_alone)
{
    for (int way = 0; way < 3; way++) {
        const char *first = first_folder();
        make(fake_folder(), "mine/AB/x");
        make(fake_folder(), "mine/kiln-worker");
        cr_assert_eq(way == 2 ? symlink("mine", first) : mkdir(first, 0700), 0);
        make(first, "AB/x");
        if (way == 1)
            make(first, "kiln-worker");
        cr_assert_eq(chmod(first, way == 1 ? 0777 : 0700), 0);
        cr_assert(kiln__pocl_folder_open(&folder));
        cr_expect_str_neq(folder.own, first, "way %d", way);
        kiln__pocl_folder_close(&folder);
        setenv("POCL_CACHE_DIR", fake_folder(), 1);
        cr_expect(is_there(first, "AB/x"), "way %d", way);
        char command[PATH_MAX + 16];
        snprintf(command, sizeof command, "rm -r '%s'", first);
        cr_assert_eq(system(command), 0);
    }
}

/* An error that does not say that there is none. */
Test(pocl_folder, a_stand_in_that_cannot_be_looked_for_counts_as_left)
{
    cr_assert(kiln__pocl_folder_open(&folder));
    make(folder.own, PROGRAM "/program.bc");
    kiln__pocl_folder_find(&folder);
    cr_expect(kiln__pocl_folder_withdraw(&folder, "k"), "there is none");
    make(folder.own, PROGRAM "/k/0-0-0");
    cr_expect_not(kiln__pocl_folder_withdraw(&folder, "k"), "no folder");
    kiln__pocl_folder_close(&folder);
}

/* Then PoCL keeps nothing, launches another variant, or there is no folder to put one in. */
Test(pocl_folder, there_is_none_where_pocl_works_in_another_way)
{
    setenv("POCL_KERNEL_CACHE", "0", 1);
    cr_expect_not(kiln__pocl_folder_open(&folder));
    setenv("POCL_KERNEL_CACHE", "1", 1);
    setenv("POCL_WORK_GROUP_SPECIALIZATION", "0", 1);
    cr_expect_not(kiln__pocl_folder_open(&folder));
    unsetenv("POCL_WORK_GROUP_SPECIALIZATION");
    setenv("POCL_CACHE_DIR", "/proc/kiln", 1);
    cr_expect_not(kiln__pocl_folder_open(&folder));
    cr_expect_str_eq(getenv("POCL_CACHE_DIR"), "/proc/kiln");
    cr_expect_lt(folder.lock, 0);
    kiln__pocl_folder_find(&folder);
    cr_expect_str_empty(folder.program);
}

/* Where a variable names the test's folder, and nothing else says where the cache is. */
static void expect_shared(const char *variable, const char *below)
{
    char expected[400], file[100];
    snprintf(expected, sizeof expected, "%s/%s", fake_folder(), below);
    snprintf(file, sizeof file, "%s/x", below);
    unsetenv("POCL_CACHE_DIR");
    setenv(variable, fake_folder(), 1);
    make(fake_folder(), file);
    cr_assert(kiln__pocl_folder_open(&folder));
    cr_expect_str_eq(folder.shared, expected);
    kiln__pocl_folder_close(&folder);
}

Test(pocl_folder, the_shared_cache_is_where_pocl_has_it)
{
    expect_shared("XDG_CACHE_HOME", "pocl/kcache");
    unsetenv("XDG_CACHE_HOME");
    expect_shared("HOME", ".cache/pocl/kcache");
}

/* ---- programs ---- */

Test(pocl_folder, a_program_is_new_once)
{
    cr_assert(kiln__pocl_folder_open(&folder));
    kiln__pocl_folder_find(&folder);
    cr_expect_str_empty(folder.program);
    make(folder.own, PROGRAM "/program.bc");
    make(folder.own, "tempfile_x");
    kiln__pocl_folder_find(&folder);
    cr_expect_str_eq(folder.program, PROGRAM);
    make(folder.own, "AB/GHIJ/program.bc");
    kiln__pocl_folder_find(&folder);
    cr_expect_str_eq(folder.program, "AB/GHIJ");
    kiln__pocl_folder_find(&folder);
    cr_expect_str_empty(folder.program);
    kiln__pocl_folder_close(&folder);
}

/* Each kernel's, beside the variants that the shared cache has. */
Test(pocl_folder, stand_ins_come_and_go)
{
    make(fake_folder(), PROGRAM "/k/1-1-1/k.so");
    make(fake_folder(), PROGRAM "/k/0-0-0/k.so");
    cr_assert(kiln__pocl_folder_open(&folder));
    make(folder.own, PROGRAM "/program.bc");
    kiln__pocl_folder_find(&folder);
    kiln__pocl_folder_stand_in(&folder, "k;other");
    cr_expect(is_there(folder.own, PROGRAM "/k/1-1-1/k.so"));
    cr_expect(is_there(folder.own, PROGRAM "/k/0-0-0/k.so"));
    cr_expect(is_there(folder.own, PROGRAM "/other/0-0-0/other.so"));
    cr_expect(kiln__pocl_folder_withdraw(&folder, "k;other"));
    cr_expect(is_there(folder.own, PROGRAM "/k/1-1-1/k.so"));
    cr_expect_not(is_there(folder.own, PROGRAM "/k/0-0-0"));
    cr_expect_not(is_there(folder.own, PROGRAM "/other/0-0-0"));
    cr_expect(is_there(fake_folder(), PROGRAM "/k/0-0-0/k.so"));
    kiln__pocl_folder_close(&folder);
}

Test(pocl_folder, what_is_shared_has_no_stand_in)
{
    cr_assert(kiln__pocl_folder_open(&folder));
    make(folder.own, PROGRAM "/program.bc");
    make(folder.own, PROGRAM "/k/1-1-1/k.so");
    kiln__pocl_folder_find(&folder);
    kiln__pocl_folder_stand_in(&folder, "k");
    kiln__pocl_folder_share(&folder);
    kiln__pocl_folder_close(&folder);
    cr_expect(is_there(fake_folder(), PROGRAM "/program.bc"));
    cr_expect(is_there(fake_folder(), PROGRAM "/k/1-1-1/k.so"));
    cr_expect_not(is_there(fake_folder(), PROGRAM "/k/0-0-0"));
}
