/* SPDX-License-Identifier: Apache-2.0 */
/* The least ELF file that a dynamic linker takes: one segment, without sections or code. */
#include "programs/stand_in.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LONGEST_SYMBOL 255

/* No system has larger pages that this is loaded by. */
#define PAGE 65536

enum { NAME, STRINGS, STRINGS_SIZE, SYMBOLS, SYMBOL_SIZE, END, ENTRIES };

struct image {
    ElfW(Ehdr) head;
    ElfW(Phdr) parts[3];
    ElfW(Dyn) dynamic[ENTRIES];
    ElfW(Sym) symbols[2]; /* the first one is nobody's */
    uint32_t buckets[5];  /* how many, of how many symbols; the first; what comes after each */
    char names[LONGEST_SYMBOL + 2];
};

/* What depends on the processor is as in the process's own program. */
static bool read_own_head(ElfW(Ehdr) * head)
{
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    bool read_all = file >= 0 && read(file, head, sizeof *head) == (ssize_t)sizeof *head;
    if (file >= 0)
        close(file);
    return read_all && !memcmp(head->e_ident, ELFMAG, SELFMAG);
}

static void make_head(ElfW(Ehdr) * head)
{
    head->e_type = ET_DYN;
    head->e_entry = 0;
    head->e_phoff = offsetof(struct image, parts);
    head->e_phentsize = sizeof(ElfW(Phdr));
    head->e_phnum = 3;
    head->e_shoff = head->e_shnum = head->e_shstrndx = 0;
}

/* The linker writes addresses into the table; without the last part a stack could be run. */
static void make_parts(ElfW(Phdr) * parts)
{
    const size_t table = offsetof(struct image, dynamic);
    parts[0] = (ElfW(Phdr)){.p_type = PT_LOAD,
                            .p_flags = PF_R | PF_W,
                            .p_filesz = sizeof(struct image),
                            .p_memsz = sizeof(struct image),
                            .p_align = PAGE};
    parts[1] = (ElfW(Phdr)){.p_type = PT_DYNAMIC,
                            .p_flags = PF_R | PF_W,
                            .p_offset = table,
                            .p_vaddr = table,
                            .p_paddr = table,
                            .p_filesz = sizeof(ElfW(Dyn)[ENTRIES]),
                            .p_memsz = sizeof(ElfW(Dyn)[ENTRIES]),
                            .p_align = sizeof(ElfW(Addr))};
    parts[2] = (ElfW(Phdr)){.p_type = PT_GNU_STACK, .p_flags = PF_R | PF_W, .p_align = 16};
}

static void make_tables(struct image *image, const char *symbol)
{
    ElfW(Dyn) *table = image->dynamic;
    table[NAME] = (ElfW(Dyn)){DT_HASH, {offsetof(struct image, buckets)}};
    table[STRINGS] = (ElfW(Dyn)){DT_STRTAB, {offsetof(struct image, names)}};
    table[STRINGS_SIZE] = (ElfW(Dyn)){DT_STRSZ, {sizeof image->names}};
    table[SYMBOLS] = (ElfW(Dyn)){DT_SYMTAB, {offsetof(struct image, symbols)}};
    table[SYMBOL_SIZE] = (ElfW(Dyn)){DT_SYMENT, {sizeof *image->symbols}};
    image->symbols[1].st_name = 1;
    image->symbols[1].st_info = (STB_GLOBAL << 4) | STT_OBJECT;
    image->symbols[1].st_shndx = 1; /* it is defined */
    image->symbols[1].st_value = offsetof(struct image, names);
    image->symbols[1].st_size = 1;
    image->buckets[0] = 1;
    image->buckets[1] = 2;
    image->buckets[2] = 1;
    memcpy(image->names + 1, symbol, strlen(symbol));
}

bool kiln__stand_in_write(const char *path, const char *symbol)
{
    struct image image = {0};
    if (strlen(symbol) > LONGEST_SYMBOL || !read_own_head(&image.head))
        return false;
    make_head(&image.head);
    make_parts(image.parts);
    make_tables(&image, symbol);
    FILE *file = fopen(path, "wxe");
    if (!file)
        return false;
    const bool written = fwrite(&image, sizeof image, 1, file) == 1;
    if (!fclose(file) && written)
        return true;
    unlink(path); /* part of it would be taken for a library */
    return false;
}
