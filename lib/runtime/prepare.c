/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/prepare.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/codegen.h"

struct texts {
    struct kiln__text name, source;
};

static bool is_known(const struct kiln__program_wish *wishes, size_t count,
                     const struct kiln__text *name)
{
    for (size_t i = 0; i < count; i++)
        if (wishes[i].name_length == name->length &&
            !memcmp(wishes[i].name, name->data, name->length))
            return true;
    return false;
}

/* False: no memory. A launch of a program that is listed adds nothing. */
static bool list_program(const struct kiln__plan *plan, const struct kiln__launch *launch,
                         struct texts *texts, struct kiln__program_wish *wishes, size_t *count)
{
    kiln__codegen_name(plan, launch, &texts->name);
    if (texts->name.failed)
        return false;
    if (is_known(wishes, *count, &texts->name)) {
        kiln__text_free(&texts->name);
        return true;
    }
    kiln__codegen_source(plan, launch, &texts->source);
    if (texts->source.failed)
        return false;
    wishes[(*count)++] = (struct kiln__program_wish){
        texts->name.data, texts->name.length, texts->source.data, launch->options,
        launch->kernel,   launch->dimensions, launch->global,     launch->local};
    return true;
}

kiln_status kiln__prepare(struct kiln__runtime *runtime, const struct kiln__plan *plan,
                          unsigned threads, struct kiln__error *error)
{
    size_t launches = plan->launches.count, count = 0;
    struct kiln__program_wish *wishes = calloc(launches + 1, sizeof *wishes);
    struct texts *texts = calloc(launches + 1, sizeof *texts);
    bool listed = wishes && texts;
    for (size_t i = 0; i < launches && listed; i++)
        if (plan->launches.items[i].source != KILN__SOURCE_CLBLAST)
            listed = list_program(plan, &plan->launches.items[i], &texts[count], wishes, &count);
    if (listed)
        kiln__programs_prepare(runtime->programs, wishes, count, threads);
    for (size_t i = 0; texts && i <= launches; i++) {
        kiln__text_free(&texts[i].name);
        kiln__text_free(&texts[i].source);
    }
    free(wishes);
    free(texts);
    return listed
               ? KILN_OK
               : kiln__fail(error, KILN_OUT_OF_HOST_MEMORY, "kiln: no memory to prepare the batch");
}
