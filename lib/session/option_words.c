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

/* Words that a value may be, up to NULL. */
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* "a, b, c" */
static void list(const char *const *words, struct kiln__text *text)
{
    for (size_t i = 0; words[i]; i++)
        kiln__text_add(text, "%s%s", i ? ", " : "", words[i]);
}

static kiln_status check_word(const char *call, const char *name, const char *value,
                              const char *const *words)
{
    struct kiln__text known = {0};
    for (size_t i = 0; value && words[i]; i++)
        if (!strcmp(value, words[i]))
            return KILN_OK;
    if (!value)
        return KILN_OK;
    list(words, &known);
    kiln_status status = kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s: %s is \"%.64s\", none of %s",
                                    call, name, value, known.data ? known.data : "those known");
    kiln__text_free(&known);
    return status;
}

/* Of a kernel of the catalogue that multiplies. */
static kiln_status check_product(const char *call, const char *name, const char *value)
{
    const char *words[KILN__PRODUCT_KERNELS + 1] = {NULL};
    for (size_t i = 0; i < KILN__PRODUCT_KERNELS; i++) {
        const struct kiln__kernel_row *kernel = kiln__kernel_of(KILN__KERNEL_PRODUCT, i);
        words[i] = kernel ? kernel->name : NULL;
    }
    return check_word(call, name, value, words);
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
        status =
            check_number(call, "compile", (int)options->compile, KILN_COMPILE_QUICK,
                         "KILN_COMPILE_DEFAULT, _TOGETHER, _ALONE, _NEVER, _BACKGROUND, _QUICK");
    if (!status)
        status = kiln__precision_check(call, (int)options->precision);
    if (!status && options->matmul && *options->matmul)
        status = check_product(call, "matmul", options->matmul);
    return status ? status : check_file(call, "trace", options->trace);
}

/* An option of a program goes before a variable, which then does not count. */
static kiln_status check_variables(const char *call, const kiln_context_options *options)
{
    const struct {
        const char *name;
        bool counts; /* no option says it */
        const char *const *words;
    } variables[] = {
        {"KILN_HOST_MEMORY", !options->host_memory, WORDS("shared", "separate", "mapped")},
        {"KILN_CACHE", !options->cache, WORDS("on", "ro", "off")},
        {"KILN_COMPILE", !options->compile,
         WORDS("together", "alone", "never", "background", "quick")},
        {"KILN_ONE_LAUNCH", true, WORDS("off", "auto", "on")},
        {"KILN_PRECISION", !options->precision,
         WORDS(kiln__product_name_text(KILN__PRODUCT_EXACT),
               kiln__product_name_text(KILN__PRODUCT_TF32),
               kiln__product_name_text(KILN__PRODUCT_F32X3),
               kiln__product_name_text(KILN__PRODUCT_BF16),
               kiln__product_name_text(KILN__PRODUCT_F16))},
        {"KILN_EXPLAIN_AS", true, WORDS("text", "summary", "json")},
    };
    const char *explain = kiln__environment("KILN_EXPLAIN");
    kiln_status status = options->matmul
                             ? KILN_OK
                             : check_product(call, "KILN_MATMUL", kiln__environment("KILN_MATMUL"));
    for (size_t i = 0; i < sizeof variables / sizeof *variables && !status; i++)
        if (variables[i].counts)
            status = check_word(call, variables[i].name, kiln__environment(variables[i].name),
                                variables[i].words);
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
