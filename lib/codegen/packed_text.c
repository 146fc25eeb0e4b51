/* SPDX-License-Identifier: Apache-2.0 */
/* A kernel's parameters become variables that it begins with:
 *
 *   kernel void f(global const float *x, global float *y, long count, float scale) { ... }
 *
 * is then, where x and y lie in the same memory,
 *
 *   kernel void f(global void *memory0, const long16 numbers0)
 *   {
 *       global const float *x = memory0;
 *       global float *y = memory0;
 *       long count = numbers0.s0;
 *       float scale = as_float((int)numbers0.s1);
 *       ...
 */
#include "codegen/packed_text.h"

#include <assert.h>
#include <string.h>

#include "codegen/parameters.h"

struct packer {
    const struct kiln__launch *launch;
    const struct kiln__packing *packing;
    const struct kiln__parameters *parameters;
    struct kiln__text *to;
};

void kiln__packed_name(const struct kiln__launch *launch, const struct kiln__packing *packing,
                       struct kiln__text *name)
{
    kiln__text_add(name, " packed %s", launch->kernel);
    for (size_t k = 0; k < launch->arguments.count; k++)
        if (launch->arguments.items[k].kind == KILN__ARGUMENT_MEMORY)
            kiln__text_add(name, " %u", packing->place[k]);
}

/* As it was declared, without the space around it. */
static void add_declared(const struct packer *packer, size_t k)
{
    const struct kiln__parameter *parameter = &packer->parameters->list.items[k];
    const char *text = packer->parameters->text.data + parameter->at;
    size_t first = strspn(text, " \n"), end = parameter->length;
    while (end > first && strchr(" \n", text[end - 1]))
        end--;
    kiln__text_add_bytes(packer->to, text + first, end - first);
}

static bool is_memory(const struct packer *packer, size_t k)
{
    return packer->launch->arguments.items[k].kind == KILN__ARGUMENT_MEMORY;
}

static bool is_shared(const struct packer *packer, size_t k)
{
    return packer->packing->shared[packer->packing->place[k]] > 1;
}

static void add_parameters(const struct packer *packer)
{
    const struct kiln__packing *packing = packer->packing;
    unsigned memories = 0;
    for (size_t k = 0; k < packer->launch->arguments.count; k++) {
        if (!is_memory(packer, k) || packing->place[k] < memories)
            continue;
        kiln__text_add(packer->to, memories ? ", " : "");
        if (is_shared(packer, k))
            kiln__text_add(packer->to, "global void *memory%u", memories);
        else
            add_declared(packer, k);
        memories++;
    }
    for (unsigned v = 0; v < packing->vectors; v++)
        kiln__text_add(packer->to, "%sconst long16 numbers%u", memories || v ? ", " : "", v);
}

static void add_variable(const struct packer *packer, size_t k)
{
    const unsigned place = packer->packing->place[k];
    const bool real = packer->launch->arguments.items[k].kind == KILN__ARGUMENT_F32;
    if (is_memory(packer, k) && !is_shared(packer, k))
        return;
    add_declared(packer, k);
    if (is_memory(packer, k))
        kiln__text_add(packer->to, " = memory%u;\n", place);
    else
        kiln__text_add(packer->to,
                       real ? " = as_float((int)numbers%u.s%x);\n" : " = numbers%u.s%x;\n",
                       place / KILN__PACKED_LANES, place % KILN__PACKED_LANES);
}

/* Returns what is left behind the parenthesis at `list` and the body's brace. */
static const char *add_head(const struct packer *packer, const char *list)
{
    const char *end = kiln__end_of_list(list), *body = strchr(end, '{') + 1;
    kiln__text_add(packer->to, "(");
    add_parameters(packer);
    kiln__text_add(packer->to, ")");
    kiln__text_add_bytes(packer->to, end, (size_t)(body - end));
    kiln__text_add(packer->to, "\n");
    for (size_t k = 0; k < packer->launch->arguments.count; k++)
        add_variable(packer, k);
    return body;
}

void kiln__packed_text(const struct kiln__plan *plan, const struct kiln__launch *launch,
                       const struct kiln__packing *packing, struct kiln__text *source)
{
    struct kiln__parameters parameters = kiln__parameters_of(plan, launch);
    struct kiln__text packed = {0};
    const struct packer packer = {launch, packing, &parameters, &packed};
    assert(source->failed || parameters.failed || parameters.list.count == launch->arguments.count);
    /* Options may leave out one text of a kernel and take another: all get the same. */
    const char *at = source->data;
    const char *list = at && !parameters.failed ? kiln__find_kernel(at, launch->kernel) : NULL;
    while (list) {
        kiln__text_add_bytes(&packed, at, (size_t)(list - at));
        at = add_head(&packer, list);
        list = kiln__find_kernel(at, launch->kernel);
    }
    kiln__text_add_bytes(&packed, at, at ? strlen(at) : 0);
    packed.failed = packed.failed || parameters.failed || source->failed;
    kiln__parameters_free(&parameters);
    kiln__text_free(source);
    *source = packed;
}
