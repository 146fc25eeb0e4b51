/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of a plan: text from codegen, binary from the cache. */
#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"
#include "plan/launch_text.h"
#include "plan/names.h"
#include "session/compile.h"

static bool has_program(const struct kiln__launch *launch, enum kiln__kernel_set kernels)
{
    const bool joins = launch->phases.count;
    return launch->source != KILN__SOURCE_CLBLAST &&
           (kernels == KILN__KERNELS_JOINED         ? !launch->joined
            : kernels == KILN__KERNELS_JOINED_ALONE ? joins
                                                    : !joins);
}

/* What a kernel is called by errors. Where none may be compiled a cache has lacked it, and what it
 * computes says which it is. */
static void write_title(struct kiln__programs *programs, const struct kiln__plan *plan,
                        uint32_t launch, struct kiln__text *title)
{
    if (kiln__programs_compile_mode(programs) == KILN_COMPILE_NEVER)
        kiln__launch_title(plan, launch, title);
    else
        kiln__text_add(title, "%s", kiln__plan_launch_at(plan, launch)->kernel);
}

bool kiln__find_programs(struct kiln__programs *programs, const struct kiln__plan *plan,
                         enum kiln__kernel_set kernels, struct kiln__launch_program *found)
{
    struct kiln__text name = {0};
    bool all = true;
    for (size_t i = 0; i < kiln__plan_launches(plan); i++) {
        const struct kiln__launch *launch = kiln__plan_launch_at(plan, i);
        found[i] = (struct kiln__launch_program){.checked = kernels == KILN__KERNELS_CHECKED &&
                                                            kiln__codegen_is_checked(launch)};
        if (!has_program(launch, kernels))
            continue;
        name.length = 0;
        kiln__codegen_name(plan, launch, found[i].checked, &name);
        if (!name.failed)
            found[i].program = kiln__programs_find(programs, name.data, name.length);
        all = all && found[i].program;
    }
    kiln__text_free(&name);
    return all;
}

/* Its own options. What the program's author wrote may call any function of OpenCL C. */
static void write_options(const struct kiln__plan *plan, const struct kiln__launch *launch,
                          struct kiln__text *options)
{
    const char *bare = plan->options.device->traits->bare_option;
    kiln__text_add(options, "%s", launch->options);
    if (bare && !kiln__codegen_is_foreign(plan, launch))
        kiln__text_add(options, " %s", bare);
}

/* The source is written where memory has no program of that name: an earlier launch may have the
 * same. */
static kiln_status get_program(struct kiln__programs *programs, const struct kiln__plan *plan,
                               uint32_t index, struct kiln__launch_program *found,
                               struct kiln__error *error)
{
    const struct kiln__launch *launch = kiln__plan_launch_at(plan, index);
    struct kiln__text name = {0}, source = {0}, options = {0}, title = {0};
    kiln_status status = KILN_OK;
    kiln__codegen_name(plan, launch, found->checked, &name);
    if (!name.failed)
        found->program = kiln__programs_find(programs, name.data, name.length);
    if (!found->program) {
        kiln__codegen_source(plan, launch, found->checked, &source);
        write_options(plan, launch, &options);
        write_title(programs, plan, index, &title);
        if (name.failed || source.failed || options.failed || title.failed)
            status = kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory for a kernel");
        else
            status = kiln__programs_get(programs, name.data, name.length, source.data, options.data,
                                        title.data, &found->program, error);
    }
    kiln__text_free(&title);
    kiln__text_free(&options);
    kiln__text_free(&name);
    kiln__text_free(&source);
    return status;
}

/* Put what the launch computes before the sentence: "computing layer3.q and 2 more: kernel ...". */
static void say_names(const struct kiln__plan *plan, const struct kiln__labels *labels,
                      uint32_t launch, struct kiln__error *error)
{
    const char *found[KILN__MOST_NAMES];
    struct kiln__names names;
    struct kiln__text doing = {0};
    kiln__names_make(plan, labels, &names);
    size_t count = kiln__names_of(&names, launch, found);
    if (count)
        kiln__text_add(&doing, "computing %s", found[0]);
    if (count > 1)
        kiln__text_add(&doing, " and %zu more", count - 1);
    if (doing.length && !doing.failed)
        kiln__error_within(error, doing.data);
    kiln__text_free(&doing);
    kiln__names_free(&names);
}

kiln_status kiln__get_programs(struct kiln__programs *programs, const struct kiln__plan *plan,
                               const struct kiln__labels *labels, enum kiln__kernel_set kernels,
                               struct kiln__launch_program *found, struct kiln__error *error)
{
    kiln_status status = KILN_OK;
    for (size_t i = 0; i < kiln__plan_launches(plan) && !status; i++) {
        if (!found[i].program && has_program(kiln__plan_launch_at(plan, i), kernels))
            status = get_program(programs, plan, (uint32_t)i, &found[i], error);
        if (status == KILN_BUILD_FAILED)
            say_names(plan, labels, (uint32_t)i, error);
    }
    return status;
}

/* ---- many at once ---- */

struct kiln__spec_texts {
    struct kiln__text name, source, options;
};

static bool is_listed(const struct kiln__program_spec *specs, size_t count,
                      const struct kiln__text *name)
{
    for (size_t i = 0; i < count; i++)
        if (specs[i].name_length == name->length &&
            !memcmp(specs[i].name, name->data, name->length))
            return true;
    return false;
}

/* False: no memory. A launch of a program that is listed, or that `present` have, adds nothing. */
static bool list_program(struct kiln__programs *present, const struct kiln__plan *plan,
                         const struct kiln__launch *launch, struct kiln__spec_texts *texts,
                         struct kiln__program_spec *specs, size_t *count)
{
    kiln__codegen_name(plan, launch, false, &texts->name);
    if (texts->name.failed)
        return false;
    if (is_listed(specs, *count, &texts->name) ||
        (present && kiln__programs_has(present, texts->name.data, texts->name.length))) {
        kiln__text_free(&texts->name);
        return true;
    }
    kiln__codegen_source(plan, launch, false, &texts->source);
    write_options(plan, launch, &texts->options);
    if (texts->source.failed || texts->options.failed)
        return false;
    specs[(*count)++] = (struct kiln__program_spec){
        texts->name.data, texts->name.length, texts->source.data, texts->options.data,
        launch->kernel,   launch->dimensions, launch->global,     launch->local};
    return true;
}

bool kiln__program_specs_list(struct kiln__programs *programs, const struct kiln__plan *plan,
                              enum kiln__kernel_set kernels, bool only_new,
                              struct kiln__program_specs *specs)
{
    size_t launches = specs->most = kiln__plan_launches(plan);
    specs->items = calloc(launches + 1, sizeof *specs->items);
    specs->texts = calloc(launches + 1, sizeof *specs->texts);
    bool listed = specs->items && specs->texts;
    for (size_t i = 0; i < launches && listed; i++)
        if (has_program(kiln__plan_launch_at(plan, i), kernels))
            listed = list_program(only_new ? programs : NULL, plan, kiln__plan_launch_at(plan, i),
                                  &specs->texts[specs->count], specs->items, &specs->count);
    return listed;
}

void kiln__program_specs_free(struct kiln__program_specs *specs)
{
    for (size_t i = 0; specs->texts && i <= specs->most; i++) {
        kiln__text_free(&specs->texts[i].name);
        kiln__text_free(&specs->texts[i].source);
        kiln__text_free(&specs->texts[i].options);
    }
    free(specs->items);
    free(specs->texts);
}

kiln_status kiln__compile_ahead(struct kiln__programs *programs, const struct kiln__plan *plan,
                                enum kiln__kernel_set kernels, const unsigned *threads,
                                struct kiln__error *error)
{
    struct kiln__program_specs specs = {0};
    if (!threads && !kiln__programs_compile_in_parallel(programs))
        return KILN_OK;
    bool listed = kiln__program_specs_list(programs, plan, kernels, !threads, &specs);
    if (listed && threads)
        kiln__programs_prepare(programs, specs.items, specs.count, *threads);
    else if (listed)
        kiln__programs_compile_missing(programs, specs.items, specs.count);
    kiln__program_specs_free(&specs);
    return listed
               ? KILN_OK
               : kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to prepare the batch");
}
