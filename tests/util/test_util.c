/* SPDX-License-Identifier: Apache-2.0 */
/* The foundations: texts, errors, vectors, hashes, embedded kernels. */
#include <criterion/criterion.h>
#include <glob.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/environment.h"
#include "util/error.h"
#include "util/hash.h"
#include "util/kernel_texts.h"
#include "util/text.h"
#include "util/vector.h"

Test(text, grows_and_stays_terminated)
{
    struct kiln__text text = {0};
    for (int i = 0; i < 1000; i++)
        kiln__text_add(&text, "%03d,", i);
    cr_assert_not(text.failed);
    cr_assert_eq(text.length, 4000u);
    cr_assert_eq(strlen(text.data), 4000u);
    cr_assert(!strncmp(text.data + 3992, "998,999,", 9));
    kiln__text_free(&text);
    cr_assert_null(text.data);
    cr_assert_eq(text.length, 0u);
}

Test(text, holds_bytes_that_are_no_text)
{
    struct kiln__text text = {0};
    kiln__text_add_bytes(&text, "a\0b", 3);
    kiln__text_add_bytes(&text, NULL, 0);
    cr_assert_eq(text.length, 3u);
    cr_assert_eq(memcmp(text.data, "a\0b", 4), 0);
    kiln__text_free(&text);
}

Test(text, taken_memory_is_the_callers)
{
    struct kiln__text text = {0};
    char *empty = kiln__text_take(&text);
    cr_assert_str_eq(empty, "");
    kiln__text_add(&text, "%s", "kiln");
    char *taken = kiln__text_take(&text);
    cr_assert_str_eq(taken, "kiln");
    cr_assert_null(text.data);
    free(empty);
    free(taken);
}

Test(text, failure_is_remembered)
{
    struct kiln__text text = {0};
    kiln__text_add(&text, "kept until");
    kiln__text_add_bytes(&text, "", SIZE_MAX / 4); /* no machine has that much */
    cr_assert(text.failed);
    kiln__text_add(&text, "more");
    cr_assert_eq(text.length, 0u);
    cr_assert_null(kiln__text_take(&text));
    cr_assert_not(text.failed);
}

Test(error, first_one_stands)
{
    struct kiln__error error = {0};
    cr_assert_eq(kiln__fail(&error, KILN_SHAPE_MISMATCH, "kiln_%s: %d", "add", 7),
                 KILN_SHAPE_MISMATCH);
    cr_assert_eq(kiln__fail(&error, KILN_IO_ERROR, "second"), KILN_SHAPE_MISMATCH);
    cr_assert_eq(error.status, KILN_SHAPE_MISMATCH);
    cr_assert_str_eq(error.text, "kiln_add: 7");
    cr_assert_str_eq(kiln_last_error(), "kiln_add: 7");
}

Test(error, without_a_place_is_the_threads_last)
{
    cr_assert_str_eq(kiln_last_error(), "");
    cr_assert_eq(kiln__fail(NULL, KILN_IO_ERROR, "first"), KILN_IO_ERROR);
    cr_assert_eq(kiln__fail(NULL, KILN_NO_DEVICE, "second"), KILN_NO_DEVICE);
    cr_assert_str_eq(kiln_last_error(), "second");
}

Test(error, of_a_library_on_top_stands_until_the_next_one)
{
    char sentence[5000];
    memset(sentence, 'x', sizeof sentence - 1);
    sentence[sizeof sentence - 1] = 0;
    cr_assert_eq(kiln__fail(NULL, KILN_IO_ERROR, "first"), KILN_IO_ERROR);
    cr_assert_eq(kiln_error_set(KILN_UNSUPPORTED, sentence), KILN_UNSUPPORTED);
    cr_assert_eq(strlen(kiln_last_error()), 4095u);
    cr_assert_eq(kiln_error_set(KILN_UNSUPPORTED, kiln_last_error()), KILN_UNSUPPORTED);
    cr_assert_eq(strlen(kiln_last_error()), 4095u);
    kiln__fail(NULL, KILN_IO_ERROR, "second");
    cr_assert_str_eq(kiln_last_error(), "second");
    kiln_error_set(KILN_IO_ERROR, NULL);
    cr_assert_str_eq(kiln_last_error(), "");
}

Test(error, long_sentences_are_cut)
{
    struct kiln__error error = {0};
    kiln__fail(&error, KILN_BUILD_FAILED, "%0*d", 4 * (int)sizeof error.text, 1);
    cr_assert_eq(strlen(error.text), sizeof error.text - 1);
}

/* Programs are compiled with these numbers: they stay. */
Test(status, every_one_has_its_number_name_and_text)
{
    static const struct {
        int number;
        const char *name, *part;
    } known[] = {
        {0, "OK", "success"},
        {1, "NOT_READY", "not completed yet"},
        {-1, "INVALID_ARGUMENT", "argument"},
        {-2, "INVALID_HANDLE", "handle"},
        {-3, "SHAPE_MISMATCH", "shapes"},
        {-4, "TYPE_MISMATCH", "types"},
        {-5, "TOO_LARGE", "beyond"},
        {-6, "OUT_OF_HOST_MEMORY", "host is out of memory"},
        {-7, "OUT_OF_DEVICE_MEMORY", "device is out of memory"},
        {-8, "NO_DEVICE", "no OpenCL device"},
        {-9, "DEVICE_ERROR", "OpenCL call"},
        {-10, "BUILD_FAILED", "compiled"},
        {-11, "UNSUPPORTED", "cannot"},
        {-12, "IO_ERROR", "file"},
        {-13, "WRONG_STATE", "state"},
        {-14, "FORKED", "fork"},
        {-15, "WRONG_RESULT", "computed"},
        {-16, "CANCELLED", "cancelled"},
        {-17, "TIMED_OUT", "time"},
        {-18, "BUSY", "full"},
        {-19, "BAD_VALUE", "NaN"},
    };
    size_t count = 0;
#define COUNT(name, value, text) count++;
    KILN_STATUS_MAP(COUNT)
#undef COUNT
    cr_assert_eq(count, sizeof known / sizeof *known);
    for (size_t i = 0; i < count; i++) {
        kiln_status status = (kiln_status)known[i].number;
        cr_expect_str_eq(kiln_status_name(status), known[i].name);
        cr_expect(strstr(kiln_status_text(status), known[i].part), "%s", kiln_status_text(status));
    }
    cr_assert_str_eq(kiln_status_name((kiln_status)-999), "UNKNOWN");
    cr_assert_str_eq(kiln_status_text((kiln_status)-999), "not a status of kiln");
}

Test(vector, pushes_zeroed_items)
{
    KILN__VECTOR(uint64_t) numbers = {0};
    for (uint64_t i = 0; i < 100; i++) {
        uint64_t *item = kiln__vector_push(&numbers);
        cr_assert_not_null(item);
        cr_assert_eq(*item, 0u);
        *item = i * i;
    }
    cr_assert_eq(numbers.count, 100u);
    for (uint64_t i = 0; i < 100; i++)
        cr_assert_eq(numbers.items[i], i * i);
    kiln__vector_free(&numbers);
    cr_assert_null(numbers.items);
    cr_assert_eq(numbers.capacity, 0u);
}

/* Known answers of xxhsum -H3 and -H2 (xxHash 0.8). */
Test(hash, known_answers)
{
    cr_assert_eq(kiln__hash64("", 0), UINT64_C(0x2d06800538d394c2));
    char name[33];
    kiln__hash128_name(kiln__hash128("", 0), name);
    cr_assert_str_eq(name, "99aa06d3014798d86001c324468d497f");
    kiln__hash128_name(kiln__hash128("kiln", 4), name);
    cr_assert_str_eq(name, "29e4f6aff37a6f975bfb178850627e51");
    cr_assert_eq(kiln__hash64("kiln", 4), UINT64_C(0x5c14e8865e2aa02a));
}

/* A file's lines, those of what it includes from its folder in their place. */
static void read_with_headers(const char *path, struct kiln__text *content)
{
    char line[512], header[128], beside[512];
    FILE *file = fopen(path, "rb");
    cr_assert_not_null(file, "%s cannot be opened", path);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "#include \"%127[^\"]\"", header) == 1) {
            snprintf(beside, sizeof beside, "%.*s%s", (int)(strrchr(path, '/') + 1 - path), path,
                     header);
            read_with_headers(beside, content);
        } else {
            kiln__text_add(content, "%s", line);
        }
    }
    fclose(file);
}

/* What kernels/NAME.cl holds, from the source tree that automake names. */
static void check_embedded(const char *path)
{
    struct kiln__text content = {0};
    read_with_headers(path, &content);
    char name[256];
    snprintf(name, sizeof name, "%s", strrchr(path, '/') + 1);
    *strrchr(name, '.') = '\0';
    const char *embedded = kiln__kernel_text(name);
    cr_assert_not_null(embedded, "%s is not in the library", path);
    cr_assert(!strcmp(embedded, content.data), "%s differs in the library", path);
    kiln__text_free(&content);
}

Test(environment, an_empty_variable_is_as_good_as_none)
{
    setenv("KILN_TEST_VARIABLE", "value", 1);
    cr_expect_str_eq(kiln__environment("KILN_TEST_VARIABLE"), "value");
    setenv("KILN_TEST_VARIABLE", "", 1);
    cr_expect_null(kiln__environment("KILN_TEST_VARIABLE"));
    unsetenv("KILN_TEST_VARIABLE");
    cr_expect_null(kiln__environment("KILN_TEST_VARIABLE"));
}

Test(kernels, are_the_files)
{
    char pattern[4096];
    const char *srcdir = getenv("srcdir");
    snprintf(pattern, sizeof pattern, "%s/kernels/*.cl", srcdir ? srcdir : ".");
    glob_t found;
    cr_assert_eq(glob(pattern, 0, NULL, &found), 0, "no kernels at %s", pattern);
    for (size_t i = 0; i < found.gl_pathc; i++)
        check_embedded(found.gl_pathv[i]);
    globfree(&found);
}

Test(kernels, others_are_not_found)
{
    cr_assert_null(kiln__kernel_text("no such kernel"));
    cr_assert_null(kiln__kernel_text(""));
}
