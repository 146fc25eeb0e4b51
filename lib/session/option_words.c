/* SPDX-License-Identifier: Apache-2.0 */
/* Options and environment variables whose values are words out of a few, or files. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "device/kernels.h"
#include "session/context.h"
#include "util/environment.h"
#include "util/error.h"
#include "util/log.h"
#include "util/open_file.h"

static const char *cache_word(size_t number)
{
    static const char *const words[] = {"on", "ro", "off"};
    return number < sizeof words / sizeof *words ? words[number] : NULL;
}

static const char *launch_word(size_t number)
{
    static const char *const words[] = {"off", "auto", "on"};
    return number < sizeof words / sizeof *words ? words[number] : NULL;
}

static const char *memory_word(size_t number)
{
    static const char *const words[] = {"shared", "separate", "mapped"};
    return number < sizeof words / sizeof *words ? words[number] : NULL;
}

static const char *compile_word(size_t number)
{
    static const char *const words[] = {"together", "alone", "never", "background"};
    return number < sizeof words / sizeof *words ? words[number] : NULL;
}

static const char *precision_word(size_t number)
{
    return number < KILN__PRODUCT_EXACT_INTEGER ? kiln__product_word(number) : NULL;
}

static const char *explain_word(size_t number)
{
    static const char *const words[] = {"text", "summary", "json"};
    return number < sizeof words / sizeof *words ? words[number] : NULL;
}

static const char *product_word(size_t number)
{
    const struct kiln__kernel_row *kernel = kiln__kernel_of(KILN__KERNEL_PRODUCT, number);
    return kernel ? kernel->name : NULL;
}

/* "a, b, c" */
static void list(const char *(*word)(size_t), struct kiln__text *text)
{
    for (size_t i = 0; word(i); i++)
        kiln__text_add(text, "%s%s", i ? ", " : "", word(i));
}

static kiln_status check_word(const char *call, const char *name, const char *value,
                              const char *(*word)(size_t))
{
    struct kiln__text known = {0};
    for (size_t i = 0; value && word(i); i++)
        if (!strcmp(value, word(i)))
            return KILN_OK;
    if (!value)
        return KILN_OK;
    list(word, &known);
    kiln_status status = kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is \"%.64s\", none of %s",
                                    call, name, value, known.data ? known.data : "those known");
    kiln__text_free(&known);
    return status;
}

static kiln_status check_number(const char *call, const char *name, int value, int most,
                                const char *known)
{
    return value >= 0 && value <= most
               ? KILN_OK
               : kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is %d, none of %s", call, name,
                            value, known);
}

/* What is there already stays as it is, and what is not is not there afterwards. */
static kiln_status check_file(const char *call, const char *name, const char *path)
{
    if (!path || !*path)
        return KILN_OK;
    bool is_new = access(path, F_OK) != 0;
    int file = kiln__open_to_append(path, 0666);
    if (file >= 0 && !close(file)) {
        if (is_new)
            unlink(path);
        return KILN_OK;
    }
    return kiln__fail(NULL, KILN_IO_ERROR, "%s: %s is %s, which cannot be written: %s", call, name,
                      path, strerror(errno));
}

kiln_status kiln__precision_check(const char *call, int precision)
{
    return check_number(call, "precision", precision, KILN_PRECISION_F16,
                        "KILN_PRECISION_DEFAULT, _EXACT, _TF32, _F32X3, _BF16, _F16");
}

static kiln_status check_options(const char *call, const kiln_context_options *options)
{
    kiln_status status =
        check_number(call, "host_memory", (int)options->host_memory, KILN_HOST_MEMORY_SEPARATE,
                     "KILN_HOST_MEMORY_DEFAULT, _SHARED, _SEPARATE");
    if (!status)
        status = check_number(call, "cache", (int)options->cache, KILN_CACHE_OFF,
                              "KILN_CACHE_DEFAULT, _ON, _READ_ONLY, _OFF");
    if (!status)
        status = check_number(call, "compile", (int)options->compile, KILN_COMPILE_BACKGROUND,
                              "KILN_COMPILE_DEFAULT, _TOGETHER, _ALONE, _NEVER, _BEHIND");
    if (!status)
        status = kiln__precision_check(call, (int)options->precision);
    if (!status && options->matmul && *options->matmul)
        status = check_word(call, "matmul", options->matmul, product_word);
    return status ? status : check_file(call, "trace", options->trace);
}

/* An option of a program goes before a variable, which then does not count. */
static kiln_status check_variables(const char *call, const kiln_context_options *options)
{
    const char *explain = kiln__environment("KILN_EXPLAIN");
    kiln_status status = KILN_OK;
    if (!options->matmul)
        status = check_word(call, "KILN_MATMUL", kiln__environment("KILN_MATMUL"), product_word);
    if (!status && options->host_memory == KILN_HOST_MEMORY_DEFAULT)
        status = check_word(call, "KILN_HOST_MEMORY", kiln__environment("KILN_HOST_MEMORY"),
                            memory_word);
    if (!status && options->cache == KILN_CACHE_DEFAULT)
        status = check_word(call, "KILN_CACHE", kiln__environment("KILN_CACHE"), cache_word);
    if (!status && options->compile == KILN_COMPILE_DEFAULT)
        status = check_word(call, "KILN_COMPILE", kiln__environment("KILN_COMPILE"), compile_word);
    if (!status)
        status =
            check_word(call, "KILN_ONE_LAUNCH", kiln__environment("KILN_ONE_LAUNCH"), launch_word);
    if (!status && options->precision == KILN_PRECISION_DEFAULT)
        status =
            check_word(call, "KILN_PRECISION", kiln__environment("KILN_PRECISION"), precision_word);
    if (!status)
        status =
            check_word(call, "KILN_EXPLAIN_AS", kiln__environment("KILN_EXPLAIN_AS"), explain_word);
    if (!status && !options->trace)
        status = check_file(call, "KILN_TRACE", kiln__environment("KILN_TRACE"));
    if (!status)
        status = check_file(call, "KILN_RECORD_SHAPES", kiln__environment("KILN_RECORD_SHAPES"));
    if (!status && explain && strcmp(explain, "-"))
        status = check_file(call, "KILN_EXPLAIN", explain);
    return status;
}

kiln_status kiln__option_words_check(const char *call, const kiln_context_options *options)
{
    kiln_status status = check_options(call, options);
    (void)kiln__log_wants(KILN__LOG_ERROR); /* says so where $KILN_LOG is none of its words */
    return status ? status : check_variables(call, options);
}
