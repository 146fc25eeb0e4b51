/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign entries and folders: what others may have put in the cache's place. The bytes are those
 * of a valid entry each time, so that only the trick can be the reason to refuse them. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/cache.h"
#include "store/store_file.h"
#include "support/missing.h"

enum { MINE = 1, OTHER = 2 };

static struct kiln__key mine, other;
static char path[512], other_path[512], aside[512];
static int tried, reached, not_repaired, skipped;

static uid_t another_user(void)
{
    return geteuid() == 65534 ? 65533 : 65534;
}

static void need(bool done, const char *what)
{
    if (done)
        return;
    perror(what);
    exit(99);
}

static bool found(struct kiln__disk_store *store, const struct kiln__key *key)
{
    struct kiln__loaded loaded;
    bool there = kiln__store_get(store, key, &loaded);
    if (there)
        kiln__store_unload(&loaded);
    return there;
}

static void note(const char *trick, bool accepted, bool repaired)
{
    tried++;
    reached += accepted;
    not_repaired += !repaired;
    if (accepted || !repaired)
        printf("%s: %s%s\n", trick, accepted ? "reached the driver " : "",
               repaired ? "" : "was not repaired");
}

/* ---- in an entry's place ---- */

static bool by_name_of_another(void)
{
    return !rename(other_path, path);
}

static bool by_symbolic_link(void)
{
    return !rename(path, aside) && !symlink(aside, path);
}

static bool by_hard_link(void)
{
    return !link(path, aside);
}

static bool by_fifo(void)
{
    return !unlink(path) && !mkfifo(path, 0600);
}

static bool by_folder(void)
{
    return !unlink(path) && !mkdir(path, 0700);
}

static bool by_world_writable(void)
{
    return !chmod(path, 0602);
}

static bool by_group_writable(void)
{
    return !chmod(path, 0620);
}

static bool by_unreadable(void)
{
    return !chmod(path, 0200) && geteuid();
}

static bool by_other_owner(void)
{
    return !chown(path, another_user(), (gid_t)-1);
}

static bool by_dangling_link(void)
{
    return !unlink(path) && !symlink(missing_path("entry"), path);
}

static bool by_link_to_device(void)
{
    return !unlink(path) && !symlink("/dev/zero", path);
}

static bool by_device(void)
{
    return !unlink(path) && !mknod(path, S_IFCHR | 0600, (dev_t)(1 << 8 | 5)); /* /dev/zero */
}

static const struct trick {
    const char *name;
    bool (*play)(void); /* false: cannot be played here, for want of rights */
} tricks[] = {
    {"an entry under the name of another", by_name_of_another},
    {"a symbolic link", by_symbolic_link},
    {"a hard link", by_hard_link},
    {"a FIFO", by_fifo},
    {"a folder", by_folder},
    {"a file that all may write to", by_world_writable},
    {"a file that its group may write to", by_group_writable},
    {"a file that cannot be read", by_unreadable},
    {"a file of another user", by_other_owner},
    {"a dangling link", by_dangling_link},
    {"a link to a device", by_link_to_device},
    {"a device", by_device},
};

static void play(struct kiln__disk_store *store, const struct trick *trick)
{
    unlink(aside);
    need(fake_put(store, &mine, MINE) && fake_put(store, &other, OTHER), "put");
    need(found(store, &mine), "get");
    uint64_t failures = kiln__store_failures(store);
    if (!trick->play()) {
        skipped++;
        return;
    }
    bool accepted = found(store, &mine);
    bool counted = kiln__store_failures(store) > failures;
    bool repaired = fake_put(store, &mine, MINE) && found(store, &mine);
    note(trick->name, accepted, repaired && counted);
}

/* ---- other devices, drivers and settings ---- */

static void describe(struct kiln__device *device)
{
    memset(device, 0, sizeof *device);
    kiln_device_info *info = &device->info;
    info->type = KILN_DEVICE_CPU;
    strcpy(info->platform, "platform");
    strcpy(info->platform_version, "OpenCL 3.0 platform 1");
    strcpy(info->name, "device");
    strcpy(info->vendor, "vendor");
    strcpy(info->driver_version, "1.0");
    strcpy(info->opencl_c_version, "OpenCL C 1.2");
}

static void key_of(const struct kiln__device *device, const char *options, struct kiln__key *key)
{
    struct kiln__text shared = {0};
    kiln__key_begin(device, &shared);
    need(kiln__key_make(&shared, options, "__kernel void same() {}", key), "key");
    kiln__text_free(&shared);
}

/* The entry of one, filed under the name of the other: nobody else's key fits. */
static void try_key(struct kiln__disk_store *store, const char *trick,
                    const struct kiln__device *device, const char *options)
{
    struct kiln__device usual;
    struct kiln__key ours, theirs;
    char from[512], to[512];
    describe(&usual);
    key_of(&usual, "", &ours);
    key_of(device, options, &theirs);
    bool accepted = !strcmp(ours.name, theirs.name);
    need(fake_put(store, &theirs, OTHER), "put");
    accepted = accepted || found(store, &ours);
    fake_path(&theirs, from, sizeof from);
    fake_path(&ours, to, sizeof to);
    need(!rename(from, to), "rename");
    accepted = accepted || found(store, &ours);
    note(trick, accepted, fake_put(store, &ours, MINE) && found(store, &ours));
    unlink(to);
    kiln__key_free(&ours);
    kiln__key_free(&theirs);
}

static void try_keys(struct kiln__disk_store *store)
{
    struct kiln__device device;
    char *const fields[] = {device.info.platform,       device.info.platform_version,
                            device.info.name,           device.info.vendor,
                            device.info.driver_version, device.info.opencl_c_version};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        describe(&device);
        strcat(fields[i], "2");
        try_key(store, fields[i], &device, "");
    }
    /* The same letters, in other fields. */
    describe(&device);
    strcpy(device.info.name, "devicevendor");
    strcpy(device.info.vendor, "");
    try_key(store, "letters that moved", &device, "");
    describe(&device);
    device.info.type = KILN_DEVICE_GPU; /* the host's processor does not count */
    try_key(store, "another kind of device", &device, "");
    describe(&device);
    try_key(store, "other options", &device, "-cl-fast-relaxed-math");
}

/* ---- folders ---- */

static bool used(const char *folder, kiln_cache_mode mode)
{
    const struct kiln__store_options options = {folder, 0, mode};
    struct kiln__disk_store *store = kiln__store_open(&options);
    need(store != NULL, "store");
    bool there = found(store, &mine) || fake_put(store, &mine, MINE);
    kiln__store_close(store);
    return there;
}

static void try_folders(struct kiln__disk_store *store)
{
    char link_path[300];
    const char *folder = fake_folder();
    snprintf(link_path, sizeof link_path, "%s.link", folder);
    need(fake_put(store, &mine, MINE), "put");
    need(used(folder, KILN_CACHE_ON), "use");
    need(!chmod(folder, 0707), "chmod");
    note("a folder that all may write to", used(folder, KILN_CACHE_ON), true);
    need(!chmod(folder, 0770), "chmod");
    note("a folder that its group may write to", used(folder, KILN_CACHE_ON), true);
    note("the same, only read", used(folder, KILN_CACHE_READ_ONLY), true);
    need(!chmod(folder, 0700), "chmod");
    need(!symlink(folder, link_path), "symlink");
    note("a folder by a symbolic link", used(link_path, KILN_CACHE_ON), true);
    strcat(link_path, "/");
    note("the same with a slash", used(link_path, KILN_CACHE_ON), true);
    link_path[strlen(link_path) - 1] = 0;
    unlink(link_path);
    note("a file in the folder's place", used(path, KILN_CACHE_ON), true);
    if (!chown(folder, another_user(), (gid_t)-1)) {
        note("a folder of another user", used(folder, KILN_CACHE_ON), true);
        need(!chown(folder, geteuid(), (gid_t)-1), "chown");
    } else
        skipped++;
    note("a folder that is as it should be", false, used(folder, KILN_CACHE_ON));
}

/* Without a home nothing is written anywhere, least of all in a folder that others know of. */
static void try_homes(void)
{
    unsetenv("KILN_CACHE_DIR");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    note("no home", used(NULL, KILN_CACHE_ON), true);
    setenv("HOME", "relative", 1);
    setenv("XDG_CACHE_HOME", "relative", 1);
    note("a home that depends on where one is", used(NULL, KILN_CACHE_ON),
         access("relative", F_OK));
}

int main(void)
{
    umask(0);
    struct kiln__disk_store *store = fake_open(0);
    snprintf(aside, sizeof aside, "%s/aside", fake_folder());
    fake_key(MINE, &mine);
    fake_key(OTHER, &other);
    fake_path(&mine, path, sizeof path);
    fake_path(&other, other_path, sizeof other_path);
    for (size_t i = 0; i < sizeof tricks / sizeof *tricks; i++)
        play(store, &tricks[i]);
    try_keys(store);
    try_folders(store);
    try_homes();
    printf("%d foreign entries and folders: %d reached the driver, %d not repaired (%d cannot be "
           "tried here)\n",
           tried, reached, not_repaired, skipped);
    kiln__store_close(store);
    kiln__key_free(&mine);
    kiln__key_free(&other);
    fake_end();
    return reached || not_repaired || tried < 25;
}
