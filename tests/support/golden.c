/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of texts with golden files and golden hashes, or their rewriting (`make golden`). */
#include "support/golden.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/hash.h"

/* ---- files ---- */

static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "r");
    char *content = calloc(1, 1 << 20);
    cr_assert(content);
    if (file) {
        content[fread(content, 1, (1 << 20) - 1, file)] = 0;
        fclose(file);
    }
    return content;
}

static void write_text(const char *path, const char *mode, const char *content)
{
    FILE *file = fopen(path, mode);
    cr_assert(file, "%s", path);
    fputs(content, file);
    cr_assert_eq(fclose(file), 0);
}

static void golden_path(char path[512], const char *name)
{
    const char *folder = getenv("srcdir");
    snprintf(path, 512, "%s/tests/golden/%s", folder ? folder : ".", name);
}

/* ---- whole texts ---- */

void expect_golden(const char *name, struct kiln__text *text)
{
    char path[512], file[128];
    const char *folder = getenv("KILN_GOLDEN");
    cr_assert_not(text->failed);
    snprintf(file, sizeof file, "%s.txt", name);
    if (folder) {
        snprintf(path, sizeof path, "%s/%s", folder, file);
        write_text(path, "w", text->data);
    } else {
        golden_path(path, file);
        char *golden = read_whole(path);
        cr_expect_str_eq(text->data, golden, "not as in %s, but:\n%s", path, text->data);
        free(golden);
    }
    kiln__text_free(text);
}

/* ---- hashes ---- */

/* A row is appended at once, since tests are processes beside each other. */
static void write_hashed(const char *folder, const char *name, const char *device, const char *row,
                         const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/hashed", folder);
    cr_assert(mkdir(path, 0777) == 0 || errno == EEXIST, "%s", path);
    snprintf(path, sizeof path, "%s/hashed/%s.%s.txt", folder, name, device);
    write_text(path, "w", text);
    snprintf(path, sizeof path, "%s/hashed/hashes", folder);
    write_text(path, "a", row);
}

void expect_golden_hash(const char *name, const char *device, struct kiln__text *text)
{
    char hash[33], row[192], path[512];
    const char *folder = getenv("KILN_GOLDEN");
    cr_assert_not(text->failed);
    kiln__hash128_name(kiln__hash128(text->data, strlen(text->data)), hash);
    snprintf(row, sizeof row, "%s %s %s\n", name, device, hash);
    if (folder) {
        write_hashed(folder, name, device, row, text->data);
    } else {
        golden_path(path, "hashes");
        char *hashes = read_whole(path);
        cr_expect(strstr(hashes, row),
                  "%s for the %s is not what tests/golden/hashes knows, but %s: see "
                  "`make golden-diff`; it is\n%s",
                  name, device, hash, text->data);
        free(hashes);
    }
    kiln__text_free(text);
}
