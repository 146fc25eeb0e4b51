/* SPDX-License-Identifier: Apache-2.0 */
/* Models in several files: the tiny one, cut as llama.cpp's gguf-split does it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../support/context.h"
#include "../support/device.h"
#include "known.h"
#include "lm/model.h"
#include "tiny.h"

enum { FILES = 3, ALIGNMENT = 32 };

static char folder[] = "/tmp/kiln-files-XXXXXX";

static void open_folder(void)
{
    open_device();
    cr_assert(mkdtemp(folder));
}

static const char *path_of(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static const char *name_of(unsigned number)
{
    static char name[64];
    snprintf(name, sizeof name, "tiny-%05u-of-%05d.gguf", number + 1, FILES);
    return name;
}

static void close_folder(void)
{
    for (unsigned i = 0; i < FILES; i++)
        (void)!unlink(path_of(name_of(i)));
    cr_expect(!rmdir(folder));
    close_device();
}

TestSuite(gguf_files, .init = open_folder, .fini = close_folder);

/* ---- writing ---- */

static void put(FILE *file, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        fputc((int)(value >> 8 * i & 255), file);
}

static void put_text(FILE *file, const char *text, size_t length)
{
    put(file, length, 8);
    fwrite(text, 1, length, file);
}

static void put_key(FILE *file, const char *name, enum kiln__gguf_type type, uint64_t value)
{
    put_text(file, name, strlen(name));
    put(file, type, 4);
    put(file, value, type == KILN__GGUF_U16 ? 2 : 4);
}

static size_t pad(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Up to where something may begin. */
static void put_zeros(FILE *file, size_t bytes)
{
    for (size_t i = bytes; i < pad(bytes); i++)
        fputc(0, file);
}

/* The model, and what its files say. */
struct cut {
    uint8_t *bytes;
    size_t count;
    struct kiln__gguf gguf;
    unsigned numbers[FILES]; /* what each says */
    size_t tensors;          /* in all */
    const char *added;       /* a tensor that the last one has, too; NULL: none */
};

static bool has(const struct cut *cut, unsigned file, size_t tensor)
{
    const struct kiln__gguf_text name = cut->gguf.tensors[tensor].name;
    return tensor * FILES / cut->gguf.n_tensors == file ||
           (cut->added && file == FILES - 1 && kiln__gguf_text_is(name, cut->added));
}

/* The keys are between the head and the first tensor's description. */
static size_t end_of_keys(const struct cut *cut)
{
    size_t end = cut->count;
    for (size_t i = 0; i < cut->gguf.n_tensors; i++) {
        const size_t at = (size_t)((const uint8_t *)cut->gguf.tensors[i].name.bytes - cut->bytes);
        end = at - 8 < end ? at - 8 : end;
    }
    return end;
}

static void put_head(const struct cut *cut, unsigned number, FILE *file)
{
    size_t tensors = 0;
    for (size_t i = 0; i < cut->gguf.n_tensors; i++)
        tensors += has(cut, number, i);
    fwrite("GGUF", 1, 4, file);
    put(file, 3, 4);
    put(file, tensors, 8);
    put(file, 3 + (number ? 0 : cut->gguf.n_keys), 8);
    if (!number)
        fwrite(cut->bytes + 24, 1, end_of_keys(cut) - 24, file);
    put_key(file, "split.no", KILN__GGUF_U16, cut->numbers[number]);
    put_key(file, "split.count", KILN__GGUF_U16, FILES);
    put_key(file, "split.tensors.count", KILN__GGUF_I32, cut->tensors);
}

static void put_tensors(const struct cut *cut, unsigned number, FILE *file)
{
    size_t offset = 0;
    for (size_t i = 0; i < cut->gguf.n_tensors; i++) {
        const struct kiln__gguf_tensor *tensor = &cut->gguf.tensors[i];
        if (!has(cut, number, i))
            continue;
        put_text(file, tensor->name.bytes, tensor->name.length);
        put(file, tensor->rank, 4);
        for (size_t d = 0; d < tensor->rank; d++)
            put(file, tensor->dims[d], 8);
        put(file, tensor->format->number, 4);
        put(file, offset, 8);
        offset += pad(tensor->bytes);
    }
    put_zeros(file, (size_t)ftell(file));
    for (size_t i = 0; i < cut->gguf.n_tensors; i++) {
        const struct kiln__gguf_tensor *tensor = &cut->gguf.tensors[i];
        if (!has(cut, number, i))
            continue;
        fwrite(tensor->blocks, 1, tensor->bytes, file);
        put_zeros(file, tensor->bytes);
    }
}

static void write_files(const struct cut *cut)
{
    for (unsigned i = 0; i < FILES; i++) {
        FILE *file = fopen(path_of(name_of(i)), "wb");
        cr_assert(file);
        put_head(cut, i, file);
        put_tensors(cut, i, file);
        cr_assert(!fclose(file));
    }
}

static struct cut begin(void)
{
    struct cut cut = {.numbers = {0, 1, 2}};
    cut.bytes = tiny_bytes(&cut.count);
    expect_ok(kiln__gguf_read("a file", cut.bytes, cut.count, &cut.gguf));
    cut.tensors = cut.gguf.n_tensors;
    write_files(&cut);
    return cut;
}

static void end(struct cut *cut)
{
    kiln__gguf_free(&cut->gguf);
    free(cut->bytes);
}

/* ---- reading ---- */

static void read_logits(const char *path, float *logits)
{
    kiln_lm *lm;
    kiln_lm_session *session;
    expect_ok(kiln_lm_load(context, path, NULL, &lm));
    expect_ok(kiln_lm_session_create(lm, NULL, &session));
    expect_ok(kiln_lm_feed(session, prompt, PROMPT_COUNT));
    expect_ok(kiln_lm_logits(session, logits, WORDS));
    kiln_lm_session_release(session);
    kiln_lm_release(lm);
}

Test(gguf_files, are_one_model)
{
    struct cut cut = begin();
    float whole[WORDS], parts[WORDS];
    read_logits(tiny_path(), whole);
    read_logits(path_of(name_of(0)), parts);
    cr_expect_arr_eq(whole, parts, sizeof whole);
    end(&cut);
}

static void expect_refused_files(unsigned first, kiln_status status, const char *part)
{
    kiln_lm *lm;
    expect_error_part(kiln_lm_load(context, path_of(name_of(first)), NULL, &lm), status, part);
    cr_expect_not(lm);
}

Test(gguf_files, that_are_refused)
{
    struct cut cut = begin();
    char other[256];
    kiln_lm *lm;
    expect_refused_files(1, KILN_INVALID_ARGUMENT,
                         "tiny-00002-of-00003.gguf is file 2 of 3; name the first one");
    snprintf(other, sizeof other, "%s", path_of("tiny.gguf"));
    cr_assert(!rename(path_of(name_of(0)), other));
    expect_error_part(kiln_lm_load(context, other, NULL, &lm), KILN_INVALID_ARGUMENT,
                      "tiny.gguf is the first of 3 files, which are found only if its name ends "
                      "with -00001-of-00003.gguf");
    cr_assert(!unlink(other));
    cut.numbers[2] = 1;
    write_files(&cut);
    expect_refused_files(0, KILN_INVALID_ARGUMENT,
                         "tiny-00003-of-00003.gguf says that it is file 2 of 3");
    cut.numbers[2] = 2;
    cut.tensors++;
    write_files(&cut);
    expect_refused_files(0, KILN_INVALID_ARGUMENT, "tiny-00001-of-00003.gguf: its files have");
    cut.added = "blk.0.attn_k.weight";
    write_files(&cut);
    expect_refused_files(0, KILN_INVALID_ARGUMENT,
                         "two tensors are called \"blk.0.attn_k.weight\"");
    cut.added = NULL;
    cut.tensors--;
    write_files(&cut);
    cr_assert(!truncate(path_of(name_of(1)), 20));
    expect_refused_files(0, KILN_INVALID_ARGUMENT,
                         "tiny-00002-of-00003.gguf: the file ends too early");
    cr_assert(!truncate(path_of(name_of(1)), 0));
    expect_refused_files(0, KILN_INVALID_ARGUMENT, "tiny-00002-of-00003.gguf is empty");
    cr_assert(!unlink(path_of(name_of(1))));
    expect_refused_files(0, KILN_IO_ERROR, "tiny-00002-of-00003.gguf: No such file");
    end(&cut);
}
