/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a key about the host: processor, driver libraries' build ids, environment variables
 * of drivers. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* dl_iterate_phdr, environ */
#endif
#include "store/host_identity.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "util/vector.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

struct lines {
    KILN__VECTOR(char *) texts;
    bool failed;
};

static void add_line(struct lines *lines, struct kiln__text *line)
{
    char *text = kiln__text_take(line);
    if (text && kiln__vector_add(&lines->texts, text))
        return;
    free(text);
    lines->failed = true;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In one order, however the environment or the loader had them. */
static void flush_lines(struct lines *lines, struct kiln__text *text)
{
    if (lines->texts.count)
        qsort(lines->texts.items, lines->texts.count, sizeof *lines->texts.items, by_text);
    for (size_t i = 0; i < lines->texts.count; i++) {
        kiln__text_add(text, "%s\n", lines->texts.items[i]);
        free(lines->texts.items[i]);
    }
    kiln__vector_free(&lines->texts);
    text->failed |= lines->failed;
}

/* ---- the environment ---- */

/* Settings that begin like this shape code, ... */
static const char *const shaping[] = {"POCL_",    "LP_", "GALLIVM_", "GALLIUM_OVERRIDE_",
                                      "RUSTICL_", "IGC_"};

/* ... but for these. An unknown one counts as shaping: a needless miss costs a compilation, a wrong
 * hit costs a wrong result. */
static const char *const harmless[] = {
    "POCL_AFFINITY=",
    "POCL_CACHE_DIR=",
    "POCL_DEBUG",
    "POCL_KERNEL_CACHE=",
    "POCL_LEAVE_KERNEL_COMPILER_TEMP_FILES=",
    "POCL_MAX_PTHREAD_COUNT=",
    "POCL_MEMORY_LIMIT=",
    "POCL_SIG",
    "POCL_STARTUP_DELAY=",
    "POCL_TRACING",
    "POCL_VECTORIZER_REMARKS=",
    "LP_NUM_THREADS=",
    "RUSTICL_ENABLE=",
};

static bool starts_as(const char *text, const char *const *starts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!strncmp(text, starts[i], strlen(starts[i])))
            return true;
    return false;
}

static void describe_environment(struct kiln__text *text)
{
    struct lines lines = {0};
    for (char **setting = environ; setting && *setting; setting++) {
        struct kiln__text line = {0};
        if (!starts_as(*setting, shaping, COUNT(shaping)) ||
            starts_as(*setting, harmless, COUNT(harmless)))
            continue;
        kiln__text_add(&line, "set %zu:%s", strlen(*setting), *setting);
        add_line(&lines, &line);
    }
    flush_lines(&lines, text);
}

/* ---- the libraries ---- */

/* A distribution that rebuilds a driver, or the compiler inside it, changes no version that the
 * driver tells; each build of a library has an identity of its own, though. */
static const char *const compilers[] = {"libpocl", "libLLVM",   "libclang-cpp",     "libRusticl",
                                        "libigc",  "libamdocl", "libnvidia-opencl", "liboclgrind"};

static void add_build_id(struct kiln__text *line, const unsigned char *at, size_t length)
{
    while (length >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) note;
        memcpy(&note, at, sizeof note);
        size_t name = ((size_t)note.n_namesz + 3) & ~(size_t)3;
        size_t content = ((size_t)note.n_descsz + 3) & ~(size_t)3;
        if (name + content > length - sizeof note)
            return;
        const unsigned char *bytes = at + sizeof note + name;
        bool is_id = note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
                     !memcmp(at + sizeof note, "GNU", 4);
        for (size_t i = 0; is_id && i < note.n_descsz; i++)
            kiln__text_add(line, "%02x", bytes[i]);
        at += sizeof note + name + content;
        length -= sizeof note + name + content;
    }
}

static int add_library(struct dl_phdr_info *info, size_t size, void *user)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    struct kiln__text line = {0};
    (void)size;
    if (!starts_as(name, compilers, COUNT(compilers)))
        return 0;
    kiln__text_add(&line, "library %s ", name);
    for (size_t i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_NOTE)
            add_build_id(&line,
                         (const unsigned char *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
                         info->dlpi_phdr[i].p_memsz);
    add_line(user, &line);
    return 0;
}

static void describe_libraries(struct kiln__text *text)
{
    struct lines lines = {0};
    dl_iterate_phdr(add_library, &lines);
    flush_lines(&lines, text);
}

/* ---- the processor ---- */

/* What tells processors apart in /proc/cpuinfo on x86, Arm, RISC-V and POWER. */
static const char *const cpu_facts[] = {"vendor_id", "cpu family",  "model\t",  "flags", "Features",
                                        "CPU impl",  "CPU variant", "CPU part", "isa",   "cpu\t"};

static void describe_cpu(struct kiln__text *text)
{
    static const char file[] = "/proc/cpuinfo";
    char facts[16384]; /* the first core is enough, and on large machines it is quicker */
    size_t length = 0;
    ssize_t got = 1;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && got > 0 && length < sizeof facts - 1) {
        got = read(fd, facts + length, sizeof facts - 1 - length);
        length += got > 0 ? (size_t)got : 0;
    }
    if (fd >= 0)
        close(fd);
    facts[length] = 0;
    char *end = strstr(facts, "\n\n"), *place = NULL;
    if (end)
        *end = 0;
    for (char *line = strtok_r(facts, "\n", &place); line; line = strtok_r(NULL, "\n", &place))
        if (starts_as(line, cpu_facts, COUNT(cpu_facts)))
            kiln__text_add(text, "%s\n", line);
}

void kiln__host_describe(bool cpu, struct kiln__text *text)
{
    describe_libraries(text);
    describe_environment(text);
    if (cpu)
        describe_cpu(text);
}
