/* SPDX-License-Identifier: Apache-2.0 */
/* Entries as bytes, and keys. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "store/entry.h"
#include "store/host_identity.h"
#include "store/key.h"

/* ---- entries ---- */

static const struct kiln__entry example = {{
    [KILN__ENTRY_KEY] = {"the key", 7},
    [KILN__ENTRY_DEVICE] = {"device", 7},
    [KILN__ENTRY_DRIVER] = {"driver 1", 9},
    [KILN__ENTRY_KERNEL] = {"", 1},
    [KILN__ENTRY_PAYLOAD] = {"\0\1\2", 3},
}};

enum { EXAMPLE_BYTES = 56 + 7 + 7 + 9 + 1 + 3 + 16 };

static struct kiln__text encoded(const struct kiln__entry *entry)
{
    struct kiln__text file = {0};
    kiln__entry_encode(entry, &file);
    cr_assert_not(file.failed);
    return file;
}

/* A valid digest over whatever stands before it. */
static void sign(struct kiln__text *file)
{
    struct kiln__hash128 hash = kiln__hash128(file->data, file->length - 16);
    for (size_t i = 0; i < 8; i++) {
        file->data[file->length - 16 + i] = (char)(hash.low >> 8 * i);
        file->data[file->length - 8 + i] = (char)(hash.high >> 8 * i);
    }
}

static void expect_fault(const struct kiln__text *file, const char *sentence)
{
    struct kiln__entry entry;
    const char *why;
    cr_expect_not(kiln__entry_decode(file->data, file->length, &entry, &why));
    cr_expect_str_eq(why, sentence);
    cr_expect_null(entry.sections[KILN__ENTRY_PAYLOAD].bytes);
}

Test(cache_entry, comes_back_as_it_was)
{
    struct kiln__text file = encoded(&example);
    struct kiln__entry entry;
    const char *why = "";
    cr_assert_eq(file.length, (size_t)EXAMPLE_BYTES);
    cr_assert(kiln__entry_decode(file.data, file.length, &entry, &why));
    cr_expect_null(why);
    for (size_t i = 0; i < KILN__ENTRY_SECTIONS; i++) {
        cr_assert_eq(entry.sections[i].length, example.sections[i].length);
        cr_expect_arr_eq(entry.sections[i].bytes, example.sections[i].bytes,
                         example.sections[i].length);
    }
    cr_expect_str_eq(kiln__entry_text(&entry, KILN__ENTRY_DRIVER), "driver 1");
    kiln__text_free(&file);
}

/* The format is the same on every machine, and a change of it changes its number. */
Test(cache_entry, starts_as_the_format_says)
{
    static const unsigned char start[] = {0x8b, 'k', 'i', 'l', 'n', '\r', '\n', 0x1a, 1, 0, 0, 0,
                                          56,   0,   0,   0,   7,   0,    0,    0,    0, 0, 0, 0};
    struct kiln__text file = encoded(&example);
    cr_expect_arr_eq(file.data, start, sizeof start);
    cr_expect_eq((unsigned char)file.data[file.length - 16],
                 (unsigned char)kiln__hash128(file.data, file.length - 16).low);
    kiln__text_free(&file);
}

/* With a digest that fits, so that it is the other checks that refuse them. */
Test(cache_entry, is_refused_for_what_is_wrong_with_it)
{
    static const struct {
        size_t at;
        unsigned char value;
        const char *sentence;
    } changes[] = {
        {0, 'x', "it does not start as an entry does"},
        {7, 'x', "it does not start as an entry does"},
        {8, 2, "it is of another format"},
        {12, 64, "its header has another length"},
        {16, 8, "its length is not what its header says"},    /* sections beyond the end */
        {16, 6, "its length is not what its header says"},    /* bytes in no section */
        {23, 0xff, "its length is not what its header says"}, /* a huge length */
        {56 + 7 + 6, 'x', "one of its texts has no end"},
        {56 + 7 + 7 + 8, 'x', "one of its texts has no end"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct kiln__text file = encoded(&example);
        file.data[changes[i].at] = (char)changes[i].value;
        sign(&file);
        expect_fault(&file, changes[i].sentence);
        kiln__text_free(&file);
    }
}

/* A key of 7 - 32 bytes and a device of 7 + 32: together they are as long as before. */
Test(cache_entry, lengths_that_sum_up_by_overflow_are_refused)
{
    struct kiln__text file = encoded(&example);
    memset(file.data + 16, 0xff, 8);
    file.data[16] = (char)(7 - 32);
    file.data[24] = 7 + 32;
    sign(&file);
    expect_fault(&file, "its length is not what its header says");
    kiln__text_free(&file);
}

Test(cache_entry, a_text_of_no_bytes_is_refused)
{
    struct kiln__entry entry = example;
    entry.sections[KILN__ENTRY_DEVICE].length = 0;
    struct kiln__text file = encoded(&entry);
    expect_fault(&file, "one of its texts has no end");
    kiln__text_free(&file);
}

Test(cache_entry, every_truncation_and_every_bit_is_noticed)
{
    struct kiln__text file = encoded(&example);
    struct kiln__entry entry;
    const char *why;
    for (size_t length = 0; length < file.length; length++)
        cr_expect_not(kiln__entry_decode(file.data, length, &entry, &why), "%zu", length);
    for (size_t bit = 0; bit < file.length * 8; bit++) {
        file.data[bit / 8] ^= (char)(1 << bit % 8);
        cr_expect_not(kiln__entry_decode(file.data, file.length, &entry, &why), "%zu", bit);
        file.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    cr_expect(kiln__entry_decode(file.data, file.length, &entry, &why));
    kiln__text_free(&file);
}

Test(cache_entry, knows_its_key)
{
    cr_expect(kiln__entry_has_key(&example, "the key", 7));
    cr_expect_not(kiln__entry_has_key(&example, "the kez", 7));
    cr_expect_not(kiln__entry_has_key(&example, "the key", 6));
    cr_expect_not(kiln__entry_has_key(&example, "the key", 8));
}

/* ---- keys ---- */

static void describe(struct kiln__device *device)
{
    memset(device, 0, sizeof *device);
    strcpy(device->info.name, "device");
    strcpy(device->info.driver_version, "1.0");
    device->info.type = KILN_DEVICE_CPU;
}

static struct kiln__key key_of(const struct kiln__device *device, const char *options,
                               const char *source)
{
    struct kiln__text shared = {0};
    struct kiln__key key;
    kiln__key_begin(device, &shared);
    cr_assert(kiln__key_make(&shared, options, source, &key));
    kiln__text_free(&shared);
    return key;
}

static bool differ(struct kiln__key a, struct kiln__key b)
{
    bool same = a.length == b.length && !memcmp(a.bytes, b.bytes, a.length);
    cr_expect_eq(same, !strcmp(a.name, b.name));
    kiln__key_free(&a);
    kiln__key_free(&b);
    return !same;
}

Test(cache_key, is_the_same_each_time)
{
    struct kiln__device device;
    describe(&device);
    cr_expect_not(differ(key_of(&device, "-O", "source"), key_of(&device, "-O", "source")));
}

Test(cache_key, has_source_options_driver_and_processor)
{
    struct kiln__device device, newer, gpu;
    describe(&device);
    describe(&newer);
    describe(&gpu);
    strcpy(newer.info.driver_version, "1.1");
    gpu.info.type = KILN_DEVICE_GPU;
    cr_expect(differ(key_of(&device, "", "a"), key_of(&device, "", "b")));
    cr_expect(differ(key_of(&device, "a", ""), key_of(&device, "b", "")));
    cr_expect(differ(key_of(&device, "ab", "c"), key_of(&device, "a", "bc")));
    cr_expect(differ(key_of(&device, "", ""), key_of(&newer, "", "")));
    cr_expect(differ(key_of(&device, "", ""), key_of(&gpu, "", "")));
}

/* A value that looks like the end of its line is still one value. */
Test(cache_key, no_value_passes_for_two)
{
    struct kiln__device device;
    describe(&device);
    cr_expect(differ(key_of(&device, "", "a\noptions 1:b"), key_of(&device, "\noptions 1:b", "a")));
}

static struct kiln__text host(bool cpu)
{
    struct kiln__text text = {0};
    kiln__host_describe(cpu, &text);
    cr_assert_not(text.failed);
    return text;
}

static bool changes_host(const char *name, const char *value)
{
    struct kiln__text before = host(false);
    cr_assert_eq(setenv(name, value, 1), 0);
    struct kiln__text after = host(false);
    unsetenv(name);
    bool changes = strcmp(before.data ? before.data : "", after.data ? after.data : "") != 0;
    kiln__text_free(&before);
    kiln__text_free(&after);
    return changes;
}

Test(cache_key, settings_that_shape_code_count_and_others_do_not)
{
    cr_expect(changes_host("POCL_WORK_GROUP_METHOD", "workitemrepl"));
    cr_expect(changes_host("POCL_A_SETTING_OF_TOMORROW", "1"));
    cr_expect(changes_host("LP_NATIVE_VECTOR_WIDTH", "128"));
    cr_expect_not(changes_host("POCL_CACHE_DIR", "/elsewhere"));
    cr_expect_not(changes_host("POCL_AFFINITY", "1"));
    cr_expect_not(changes_host("POCL_DEBUG", "all"));
    cr_expect_not(changes_host("KILN_LOG", ""));
}

Test(cache_key, order_in_the_environment_does_not_matter)
{
    setenv("POCL_B", "1", 1);
    setenv("POCL_A", "1", 1);
    struct kiln__text one = host(false);
    unsetenv("POCL_B");
    setenv("POCL_B", "1", 1);
    struct kiln__text two = host(false);
    cr_expect_str_eq(one.data, two.data);
    kiln__text_free(&one);
    kiln__text_free(&two);
}
