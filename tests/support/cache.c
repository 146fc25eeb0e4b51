/* SPDX-License-Identifier: Apache-2.0 */
/* Test store: temporary cache folders, fake entries, and scripts in place of kiln-store. */
#include "cache.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONGEST = 65536 };

static char folder[256];

bool campaign_is_long(int argc, char **argv)
{
    return argc > 1 && !strcmp(argv[1], "long");
}

const char *fake_folder(void)
{
    const char *below = getenv("TMPDIR");
    if (*folder)
        return folder;
    snprintf(folder, sizeof folder, "%s/kiln-cache.XXXXXX", below && *below ? below : "/tmp");
    if (!mkdtemp(folder)) {
        perror(folder);
        exit(99);
    }
    return folder;
}

void fake_end(void)
{
    char command[300];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command))
        fprintf(stderr, "%s is left over\n", folder);
}

void fake_store_program(const char *script)
{
    char path[300];
    snprintf(path, sizeof path, "%s/store-program", fake_folder());
    FILE *file = fopen(path, "w");
    if (!file ||
        fprintf(
            file,
            "#!/bin/sh\nstay() { for i in $(seq 300); do [ ! -d '%s' ] || sleep 1; done; }\n%s\n",
            fake_folder(), script) < 0 ||
        fclose(file) || chmod(path, 0700)) {
        perror(path);
        exit(99);
    }
    setenv("KILN_STORE_PROGRAM", path, 1);
}

void fake_store_held(const char *then)
{
    char script[800];
    const char *store = then ? then : getenv("KILN_STORE_PROGRAM");
    snprintf(script, sizeof script, "%s/go", fake_folder());
    remove(script);
    snprintf(script, sizeof script,
             "trap '' PIPE\n" /* the asker may have gone */
             "exec 3<&0\n"
             "{\n"
             "  printf r\n"
             "  until [ -e '%s/go' ] || [ ! -d '%s' ]; do sleep 0.05; done\n"
             "  exec '%s' <&3\n"
             "} &",
             fake_folder(), fake_folder(), store && *store ? store : "kiln-store");
    fake_store_program(script);
}

void fake_store_let_go(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/go", fake_folder());
    FILE *file = fopen(path, "w");
    if (!file || fclose(file)) {
        perror(path);
        exit(99);
    }
}

struct kiln__disk_store *fake_open(uint64_t limit)
{
    const struct kiln__store_options options = {fake_folder(), limit, KILN_CACHE_ON};
    struct kiln__disk_store *store = kiln__store_open(&options);
    if (!store)
        exit(99);
    return store;
}

void fake_key(int number, struct kiln__key *key)
{
    static const char device[] = "an imagined device and its driver\n";
    char source[80];
    struct kiln__text shared = {0};
    kiln__text_add(&shared, "%s", device);
    snprintf(source, sizeof source, "__kernel void number_%d() {}", number);
    if (!kiln__key_make(&shared, "-cl-std=CL1.2", source, key))
        exit(99);
    kiln__text_free(&shared);
}

uint64_t fake_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Its length differs from number to number as well. */
static size_t make_payload(int number, unsigned char payload[LONGEST])
{
    uint64_t state = (uint64_t)number;
    size_t length = 256 + fake_random(&state) % (LONGEST - 256);
    for (size_t i = 0; i < length; i++)
        payload[i] = (unsigned char)fake_random(&state);
    return length;
}

bool fake_put(struct kiln__disk_store *store, const struct kiln__key *key, int number)
{
    unsigned char payload[LONGEST];
    struct kiln__entry entry = {{
        [KILN__ENTRY_KEY] = {key->bytes, key->length},
        [KILN__ENTRY_DEVICE] = {"device", 7},
        [KILN__ENTRY_DRIVER] = {"driver", 7},
        [KILN__ENTRY_KERNEL] = {"kernel", 7},
        [KILN__ENTRY_PAYLOAD] = {payload, make_payload(number, payload)},
    }};
    return kiln__store_put(store, &entry);
}

bool fake_fits(const struct kiln__loaded *loaded, int number)
{
    unsigned char payload[LONGEST];
    const struct kiln__span *found = &loaded->entry.sections[KILN__ENTRY_PAYLOAD];
    size_t length = make_payload(number, payload);
    return found->length == length && !memcmp(found->bytes, payload, length);
}

void fake_path(const struct kiln__key *key, char *path, size_t size)
{
    snprintf(path, size, "%s/%s.bin", fake_folder(), key->name);
}

int fake_leftovers(void)
{
    int count = 0;
    DIR *walk = opendir(fake_folder());
    for (struct dirent *found; walk && (found = readdir(walk));) {
        const char *end = strrchr(found->d_name, '.');
        count += end && (!strcmp(end, ".tmp") || !strcmp(end, ".lock"));
    }
    if (walk)
        closedir(walk);
    return count;
}
