/* SPDX-License-Identifier: Apache-2.0 */
/* Foreign names in the cache's folder: names of projects, names at random, and names a letter away
 * from kiln's own, as files, links, folders and FIFOs. Programs and `kiln cache` do all that they
 * do in there, in a folder that is kiln's and in one that is not; nothing foreign may be touched,
 * and what is kiln's own and left over has to go and be counted. "long" takes minutes. */
#include <dirent.h>
#include <fcntl.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kiln/cache.h>

#include "../support/cache.h"
#include "support/missing.h"

enum { FILES = 24, OWN = 2, LONGEST_NAME = 80 };

static regex_t own_names;
static struct kiln__key key;
static char folder[512];
static uint64_t seed = 1;
static int files, touched, additions, miscounted;

static void need(bool done, const char *what)
{
    if (done)
        return;
    perror(what);
    exit(99);
}

/* By the linker's --wrap=fsync: nothing here is to outlive a power cut, and thousands of files are
 * written. */
int __wrap_fsync(int fd);

int __wrap_fsync(int fd)
{
    (void)fd;
    return 0;
}

static size_t below(size_t count)
{
    return (size_t)(fake_random(&seed) % count);
}

/* ---- names ---- */

static void make_digits(char *text, int count)
{
    for (int i = 0; i < count; i++)
        text[i] = "0123456789abcdef"[below(16)];
    text[count] = 0;
}

static void make_own_name(char name[LONGEST_NAME])
{
    static const char *const ends[] = {".bin", ".lock", ".tmp"};
    char digits[33], number[17];
    size_t kind = below(4);
    make_digits(digits, 32);
    make_digits(number, 16);
    if (kind < 2)
        snprintf(name, LONGEST_NAME, "%s%s", digits, ends[below(3)]);
    else
        snprintf(name, LONGEST_NAME, "%s-%s.tmp", kind == 2 ? digits : "CACHEDIR.TAG", number);
    if (kind == 2 && below(2))
        snprintf(name, LONGEST_NAME, "%s.bin-%s.tmp", digits, number);
}

/* One letter replaced, dropped, doubled or in another case, or something at an end. */
static void change_name(char name[LONGEST_NAME])
{
    static const char letters[] = "0aAgz.-_ ~#\n\xc3";
    char old[LONGEST_NAME];
    size_t length = strlen(name), at = below(length);
    strcpy(old, name);
    switch (below(6)) {
    case 0: name[at] = letters[below(sizeof letters - 1)]; break;
    case 1: strcpy(name + at, old + at + 1); break;
    case 2: strcpy(name + at + 1, old + at); break;
    case 3: name[at] ^= old[at] >= 'a' && old[at] <= 'z' ? 0x20 : 0; break;
    case 4: snprintf(name, LONGEST_NAME, "%.70s%c", old, letters[below(sizeof letters - 1)]); break;
    default: snprintf(name, LONGEST_NAME, "%c%.70s", letters[below(sizeof letters - 1)], old);
    }
}

static void make_name(char name[LONGEST_NAME])
{
    static const char *const known[] = {
        "Cargo.lock",    "poetry.lock", "yarn.lock",  ".#notes.lock", "draft.tmp", "a.tmp",
        "firmware.bin",  "index",       "x.lock",     ".lock",        ".tmp",      "main.c",
        "CACHEDIR.TAG2", "cache.tmp",   "core.lock~", "~.tmp",        "a b.lock",  "-rf",
    };
    if (!below(3)) {
        strcpy(name, known[below(sizeof known / sizeof *known)]);
        return;
    }
    make_own_name(name);
    for (size_t changes = 1 + below(2); changes; changes--)
        change_name(name);
}

/* Not kiln's by its name; the oracle is not the library's own code. */
static bool is_foreign(const char *name)
{
    return *name && strcmp(name, ".") && strcmp(name, "..") &&
           regexec(&own_names, name, 0, NULL, 0);
}

/* ---- files ---- */

struct file {
    char name[LONGEST_NAME];
    struct stat before;
};

static const char *const contents[] = {"", "text", "\x8bkiln\r\n\x1a", "\x8bki",
                                       "Signature: 8a477f597d28d172789f06886806bc55\n"};

static bool make_text(int at, const char *name, const char *text)
{
    int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL, 0600);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return good;
}

static bool make_file(int at, const char *name)
{
    switch (below(8)) {
    case 0: return !mkdirat(at, name, 0700);
    case 1: return !symlinkat(missing_path("entry"), at, name);
    case 2: return !mkfifoat(at, name, 0600);
    default: return make_text(at, name, contents[below(sizeof contents / sizeof *contents)]);
    }
}

/* Somebody's file by its name, or by what is in it. */
static bool add_foreign(int at, struct file *file)
{
    static const char *const ends[] = {".lock", ".bin-0123456789abcdef.tmp"};
    if (below(8)) {
        make_name(file->name);
        if (!is_foreign(file->name) || !make_file(at, file->name))
            return false; /* or the name is taken */
    } else {
        make_digits(file->name, 32);
        strcat(file->name, ends[below(2)]);
        if (!(below(2) ? make_text(at, file->name, "not kiln's")
                       : !symlinkat("/etc/passwd", at, file->name)))
            return false;
    }
    return !fstatat(at, file->name, &file->before, AT_SYMLINK_NOFOLLOW);
}

static bool is_untouched(int at, const struct file *file)
{
    struct stat now;
    const struct stat *then = &file->before;
    return !fstatat(at, file->name, &now, AT_SYMLINK_NOFOLLOW) && now.st_ino == then->st_ino &&
           now.st_mode == then->st_mode && now.st_size == then->st_size &&
           now.st_mtim.tv_sec == then->st_mtim.tv_sec &&
           now.st_mtim.tv_nsec == then->st_mtim.tv_nsec;
}

static int count_names(int at)
{
    int count = 0;
    DIR *walk = fdopendir(openat(at, ".", O_RDONLY | O_DIRECTORY));
    need(walk != NULL, "opendir");
    while (readdir(walk))
        count++;
    closedir(walk);
    return count;
}

/* ---- rounds ---- */

static int ignore(const kiln_cache_entry *entry, void *user)
{
    (void)entry, (void)user;
    return 0;
}

/* Everything that programs and tools do with a folder. Answers what `kiln cache clear` counts. */
static uint64_t use_folder(void)
{
    const struct kiln__store_options options = {folder, 60000, KILN_CACHE_ON};
    char bundle[600];
    uint64_t removed = 0;
    kiln_cache_stats stats;
    struct kiln__loaded loaded;
    struct kiln__lock lock;
    snprintf(bundle, sizeof bundle, "%s.bundle", folder);
    kiln_status status = kiln_cache_prune(folder, UINT64_MAX, &removed);
    struct kiln__disk_store *store = kiln__store_open(&options);
    need(store != NULL, "store");
    if (kiln__store_get_or_lock(store, &key, 0, &loaded, &lock) == KILN__STORE_FOUND)
        kiln__store_unload(&loaded);
    fake_put(store, &key, 1);
    kiln__lock_release(&lock);
    kiln__store_close(store);
    status |= kiln_cache_list(folder, ignore, NULL);
    status |= kiln_cache_get_stats(folder, &stats);
    status |= kiln_cache_export(folder, bundle, NULL);
    status |= kiln_cache_prune(folder, 0, NULL);
    status |= kiln_cache_import(folder, bundle, NULL);
    status |= kiln_cache_prune(folder, 0, NULL);
    unlink(bundle);
    (void)status; /* a folder that is not kiln's is refused */
    return removed;
}

static void check(int at, const struct file *made, int count, int names, bool ours)
{
    for (int i = 0; i < count; i++)
        if (!is_untouched(at, &made[i])) {
            touched++;
            printf("touched in %s folder: \"%s\"\n", ours ? "kiln's" : "another's", made[i].name);
        }
    if (!ours && count_names(at) != names)
        additions++;
}

static void run_round(bool ours)
{
    struct file made[FILES];
    char command[600];
    int count = 0;
    uint64_t left_over = 0;
    need(!mkdir(folder, 0700), folder);
    if (ours)
        use_folder();
    int at = open(folder, O_RDONLY | O_DIRECTORY);
    need(at >= 0, folder);
    for (int i = 0; i < FILES; i++)
        count += add_foreign(at, &made[count]);
    if (ours)
        for (const char *const *end = (const char *const[]){".lock", ".bin-", NULL}; *end; end++) {
            char name[LONGEST_NAME], number[17];
            make_digits(name, 32);
            make_digits(number, 16);
            strcat(name, *end);
            if (strchr(name, '-'))
                strcat(strcat(name, number), ".tmp");
            left_over += make_text(at, name, "");
        }
    files += count;
    int names = count_names(at);
    uint64_t removed = use_folder();
    miscounted += count && removed != left_over;
    if (count)
        check(at, made, count, names, ours);
    close(at);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    need(!system(command), command);
}

int main(int argc, char **argv)
{
    const int rounds = campaign_is_long(argc, argv) ? 20000 : 150;
    need(!regcomp(
             &own_names,
             "^([0-9a-f]{32}\\.(bin|lock)|([0-9a-f]{32}\\.bin|CACHEDIR\\.TAG)-[0-9a-f]{16}\\.tmp|"
             "CACHEDIR\\.TAG)$",
             REG_EXTENDED | REG_NOSUB),
         "regcomp");
    snprintf(folder, sizeof folder, "%s/folder", fake_folder());
    fake_key(1, &key);
    for (int i = 0; i < rounds; i++)
        run_round(i % 2);
    printf("%d foreign files in %d folders: %d touched, %d folders of others written to, %d wrong "
           "counts\n",
           files, rounds, touched, additions, miscounted);
    kiln__key_free(&key);
    regfree(&own_names);
    fake_end();
    return touched || additions || miscounted || files < rounds * FILES / 2;
}
