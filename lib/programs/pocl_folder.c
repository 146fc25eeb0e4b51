/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of PoCL's cache: who has one, links between them, and what stands in for a variant. */
#include "programs/pocl_folder.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/compile_workers.h"
#include "programs/stand_in.h"
#include "store/folder.h"
#include "util/environment.h"
#include "util/format.h"

#define GENERIC "0-0-0"

/* In each folder of kiln's: what has none of that name is somebody's, and left alone. */
#define MARK "kiln-worker"

/* PROGRAM/KERNEL/VARIANT/KERNEL.so: deeper than that is nothing. */
#define MOST_DEPTH 5

/* ---- trees of files ---- */

static int open_folder(int at, const char *name)
{
    return openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool is_inside(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static void empty(int folder, int depth)
{
    DIR *walk = kiln__folder_walk(folder);
    struct dirent *entry;
    while (walk && (entry = readdir(walk))) {
        int inner = is_inside(entry) && depth ? open_folder(folder, entry->d_name) : -1;
        if (inner >= 0) {
            empty(inner, depth - 1);
            close(inner);
        }
        if (is_inside(entry))
            unlinkat(folder, entry->d_name, inner >= 0 ? AT_REMOVEDIR : 0);
    }
    if (walk)
        closedir(walk);
}

/* What is there stays. The variant for any local size is not linked: it may be a stand-in. */
static void link_all(int from, int to, int depth)
{
    DIR *walk = kiln__folder_walk(from);
    struct dirent *entry;
    while (walk && (entry = readdir(walk))) {
        if (!is_inside(entry) || !strcmp(entry->d_name, GENERIC))
            continue;
        int inner = depth ? open_folder(from, entry->d_name) : -1;
        if (inner < 0) {
            linkat(from, entry->d_name, to, entry->d_name, 0);
            continue;
        }
        mkdirat(to, entry->d_name, 0700);
        int other = open_folder(to, entry->d_name);
        if (other >= 0) {
            link_all(inner, other, depth - 1);
            close(other);
        }
        close(inner);
    }
    if (walk)
        closedir(walk);
}

/* False: the path is too long. */
static __attribute__((format(printf, 2, 3))) bool join(char path[PATH_MAX], const char *format, ...)
{
    va_list parts;
    va_start(parts, format);
    const int printed = kiln__vformat(path, PATH_MAX, format, parts);
    va_end(parts);
    return printed > 0 && printed < PATH_MAX;
}

/* With those that it is in. */
static void make_folder(const char *path)
{
    char part[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (char *end = strchr(part + 1, '/'); end; end = strchr(end + 1, '/')) {
        *end = 0;
        mkdir(part, 0700);
        *end = '/';
    }
    mkdir(part, 0700);
}

/* Nothing is made where there is nothing to link. */
static void link_folder(const char *from, const char *to)
{
    int source = open_folder(AT_FDCWD, from), target = -1;
    if (source >= 0) {
        make_folder(to);
        target = open_folder(AT_FDCWD, to);
    }
    if (target >= 0) {
        link_all(source, target, MOST_DEPTH);
        close(target);
    }
    if (source >= 0)
        close(source);
}

/* ---- whose folder it is ---- */

/* As PoCL finds it. */
static bool find_shared(char path[PATH_MAX])
{
    const char *named = kiln__environment("POCL_CACHE_DIR");
    const char *caches = kiln__environment("XDG_CACHE_HOME");
    const char *home = kiln__environment("HOME");
    return named    ? join(path, "%s", named)
           : caches ? join(path, "%s/pocl/kcache", caches)
           : home   ? join(path, "%s/.cache/pocl/kcache", home)
                    : false;
}

/* PoCL keeps everything, and launches by what is compiled for a local size. */
static bool is_usual(const char *variable)
{
    const char *value = kiln__environment(variable);
    return !value || *value == '1';
}

/* Nobody else may write there, since PoCL runs what it finds; and it has nothing, or a mark. */
static bool is_own(int folder)
{
    struct stat facts;
    if (fstat(folder, &facts) || facts.st_uid != geteuid() || facts.st_mode & (S_IRWXG | S_IRWXO))
        return false;
    if (!faccessat(folder, MARK, F_OK, AT_SYMLINK_NOFOLLOW))
        return true;
    DIR *walk = kiln__folder_walk(folder);
    struct dirent *entry = NULL;
    while (walk && (entry = readdir(walk)) && !is_inside(entry))
        ;
    if (walk)
        closedir(walk);
    return walk && !entry;
}

static bool is_named(const struct kiln__pocl_folder *folder)
{
    struct stat locked, named;
    return !fstat(folder->lock, &locked) && !stat(folder->own, &named) &&
           locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

/* Between opening and locking, its last owner may have removed it. *stops: there are no locks. */
static bool lock_folder(struct kiln__pocl_folder *folder, bool *stops)
{
    folder->lock = open_folder(AT_FDCWD, folder->own);
    if (folder->lock < 0)
        return false;
    if (!flock(folder->lock, LOCK_EX | LOCK_NB)) {
        if (is_named(folder) && is_own(folder->lock))
            return true;
    } else {
        *stops = errno != EWOULDBLOCK;
    }
    close(folder->lock);
    folder->lock = -1;
    return false;
}

static bool put_mark(const struct kiln__pocl_folder *folder)
{
    const int mark =
        openat(folder->lock, MARK, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (mark >= 0)
        close(mark);
    return mark >= 0;
}

/* The first that nobody has. One whose owner was killed has files yet. Another machine that has the
 * same files need not see this one's locks. */
static bool take_folder(struct kiln__pocl_folder *folder)
{
    char host[HOST_NAME_MAX + 1] = "";
    bool stops = gethostname(host, sizeof host - 1) || strchr(host, '/');
    for (unsigned i = 0; i < KILN__MOST_COMPILE_WORKERS && !stops; i++) {
        if (!join(folder->own, "%s/.kiln-worker-%s-%u", folder->shared, host, i))
            return false;
        const bool made = !mkdir(folder->own, 0700);
        if (lock_folder(folder, &stops)) {
            empty(folder->lock, MOST_DEPTH + 2);
            return put_mark(folder);
        }
        if (made && stops)
            rmdir(folder->own);
    }
    return false;
}

/* Whether what is compiled here can be linked to the shared cache. */
static bool try_link(const struct kiln__pocl_folder *folder)
{
    char from[PATH_MAX], to[PATH_MAX];
    if (!join(from, "%s/" MARK, folder->own) || !join(to, "%s-link", folder->own))
        return false;
    unlink(to);
    const bool linked = !link(from, to);
    unlink(to);
    return linked;
}

/* Whether the dynamic linker takes a stand-in here: PoCL ends a process where it does not. */
static bool try_stand_in(const struct kiln__pocl_folder *folder)
{
    char path[PATH_MAX];
    void *library = NULL;
    if (join(path, "%s/try.so", folder->own) && kiln__stand_in_write(path, "kiln_try"))
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const bool found = library && dlsym(library, "kiln_try");
    if (library)
        dlclose(library);
    unlink(path);
    return found;
}

bool kiln__pocl_folder_open(struct kiln__pocl_folder *folder)
{
    *folder = (struct kiln__pocl_folder){.lock = -1};
    if (!is_usual("POCL_KERNEL_CACHE") || !is_usual("POCL_WORK_GROUP_SPECIALIZATION") ||
        !find_shared(folder->shared))
        return false;
    if (take_folder(folder) && try_link(folder) && try_stand_in(folder) &&
        !setenv("POCL_CACHE_DIR", folder->own, 1))
        return true;
    kiln__pocl_folder_close(folder);
    return false;
}

void kiln__pocl_folder_close(struct kiln__pocl_folder *folder)
{
    if (folder->lock >= 0) {
        empty(folder->lock, MOST_DEPTH + 2);
        rmdir(folder->own);
        close(folder->lock);
        setenv("POCL_CACHE_DIR", folder->shared, 1);
    }
    kiln__text_free(&folder->known);
    folder->lock = -1;
}

/* ---- a program in it ---- */

static bool is_known(const struct kiln__pocl_folder *folder, const char *program)
{
    return folder->known.data && strstr(folder->known.data, program);
}

static void look_into(struct kiln__pocl_folder *folder, int at, const char *first)
{
    DIR *walk = kiln__folder_walk(at);
    struct dirent *entry;
    while (walk && (entry = readdir(walk))) {
        char program[PATH_MAX];
        if (!is_inside(entry) || !join(program, "%s/%s", first, entry->d_name) ||
            is_known(folder, program))
            continue;
        kiln__text_add(&folder->known, "%s\n", program);
        memcpy(folder->program, program, strlen(program) + 1);
    }
    if (walk)
        closedir(walk);
}

void kiln__pocl_folder_find(struct kiln__pocl_folder *folder)
{
    DIR *walk = folder->lock < 0 ? NULL : kiln__folder_walk(folder->lock);
    struct dirent *entry;
    folder->program[0] = 0;
    while (walk && (entry = readdir(walk))) {
        int inner = is_inside(entry) ? open_folder(folder->lock, entry->d_name) : -1;
        if (inner >= 0) {
            look_into(folder, inner, entry->d_name);
            close(inner);
        }
    }
    if (walk)
        closedir(walk);
}

/* What is done for a kernel, whose folders `own` and `shared` are. */
typedef bool each_kernel(const char *own, const char *shared, const char *kernel);

/* Whether it was done for all. */
static bool for_each(const struct kiln__pocl_folder *folder, const char *kernels, each_kernel *call)
{
    bool all = true;
    while (folder->program[0] && *kernels) {
        char kernel[NAME_MAX + 1], own[PATH_MAX], shared[PATH_MAX];
        const size_t length = strcspn(kernels, ";");
        const int printed = snprintf(kernel, sizeof kernel, "%.*s", (int)length, kernels);
        if (printed > 0 && printed <= NAME_MAX &&
            join(own, "%s/%s/%s", folder->own, folder->program, kernel) &&
            join(shared, "%s/%s/%s", folder->shared, folder->program, kernel))
            all = call(own, shared, kernel) && all;
        else
            all = false;
        kernels += length + (kernels[length] == ';');
    }
    return all;
}

static bool put_stand_in(const char *own, const char *shared, const char *kernel)
{
    char place[PATH_MAX], path[PATH_MAX], symbol[NAME_MAX + 32];
    link_folder(shared, own);
    if (!join(place, "%s/" GENERIC, own) || !join(path, "%s/" GENERIC "/%s.so", own, kernel))
        return false;
    make_folder(place);
    snprintf(symbol, sizeof symbol, "_pocl_kernel_%s_workgroup", kernel);
    return kiln__stand_in_write(path, symbol);
}

static bool remove_generic(const char *own, const char *shared, const char *kernel)
{
    (void)shared, (void)kernel;
    char place[PATH_MAX];
    int generic = join(place, "%s/" GENERIC, own) ? open_folder(AT_FDCWD, place) : -1;
    if (generic < 0)
        return errno == ENOENT;
    empty(generic, 0);
    close(generic);
    return !rmdir(place);
}

void kiln__pocl_folder_stand_in(struct kiln__pocl_folder *folder, const char *kernels)
{
    for_each(folder, kernels, put_stand_in);
}

bool kiln__pocl_folder_withdraw(struct kiln__pocl_folder *folder, const char *kernels)
{
    return for_each(folder, kernels, remove_generic);
}

void kiln__pocl_folder_share(struct kiln__pocl_folder *folder)
{
    char own[PATH_MAX], shared[PATH_MAX];
    if (folder->program[0] && join(own, "%s/%s", folder->own, folder->program) &&
        join(shared, "%s/%s", folder->shared, folder->program))
        link_folder(own, shared);
}
