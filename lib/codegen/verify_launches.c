/* SPDX-License-Identifier: Apache-2.0 */
/* Each launch's arguments against the parameters that its kernel declares: number, order, types,
 * memory that is read and memory that is written. Generated kernels call their parameters by what
 * they are (emit.h), so that for them the values are known too. */
#include <stdio.h>
#include <string.h>

#include "codegen/codegen.h"
#include "codegen/parameters.h"
#include "codegen/verify_scratch.h"
#include "graph/attention.h"
#include "graph/attention_backward.h"
#include "lower/matmul.h"

struct verifier {
    const struct kiln__plan *plan;
    const struct kiln__launch *launch;
    uint32_t number; /* of the launch */
    const struct kiln__group *group;
    struct kiln__space space; /* of a group of steps */
    const struct kiln__parameters *parameters;
};

static const struct kiln__argument *argument_at(const struct verifier *verifier, size_t i)
{
    return &verifier->launch->arguments.items[i];
}

static uint32_t accessed_slot(const struct verifier *verifier, size_t access)
{
    return verifier->plan->slot_of[verifier->group->accesses.items[access].node];
}

static uint32_t stored_slot(const struct verifier *verifier, size_t store)
{
    return verifier->plan->slot_of[verifier->group->stores.items[store].node];
}

/* ---- types ---- */

static const char *check_type(const struct verifier *verifier,
                              const struct kiln__parameter *parameter,
                              const struct kiln__argument *argument)
{
    const char wide = verifier->launch->variant.wide ? 'l' : 'i';
    const char types[] = {[KILN__ARGUMENT_INDEX] = wide,
                          [KILN__ARGUMENT_I32] = 'i',
                          [KILN__ARGUMENT_I64] = 'l',
                          [KILN__ARGUMENT_F32] = 'f'};
    bool memory = argument->kind == KILN__ARGUMENT_MEMORY || argument->kind == KILN__ARGUMENT_TABLE;
    if (memory != parameter->memory)
        return memory ? "memory for what is a value" : "a value for what is memory";
    return memory || types[argument->kind] == parameter->type ? NULL : "of another type";
}

/* ---- memory ---- */

static bool is_scratch(const struct verifier *verifier, uint32_t slot)
{
    return verifier->plan->slots.items[slot].node == KILN__SCRATCH;
}

/* Another launch of the group has had the chance to write it. Of a product of nothing there is
 * nothing to write. */
static bool comes_later(const struct verifier *verifier, uint32_t slot)
{
    return kiln__plan_group_names(verifier->plan, verifier->launch->group, verifier->number,
                                  slot) ||
           (verifier->group->kind == KILN__GROUP_MATMUL && verifier->group->reduced == 0);
}

static bool group_reads(const struct verifier *verifier, const struct kiln__group *group,
                        uint32_t slot)
{
    for (size_t i = 0; i < group->accesses.count; i++)
        if (group->accesses.items[i].kind != KILN__ACCESS_NUMBER &&
            verifier->plan->slot_of[group->accesses.items[i].node] == slot)
            return true;
    return false;
}

static bool is_read(const struct verifier *verifier, uint32_t slot)
{
    uint32_t covers = verifier->launch->covers;
    return group_reads(verifier, verifier->group, slot) ||
           (covers &&
            group_reads(verifier, &verifier->plan->fusion.groups.items[covers - 1], slot));
}

static bool is_stored(const struct verifier *verifier, uint32_t slot)
{
    for (size_t i = 0; i < verifier->group->stores.count; i++)
        if (stored_slot(verifier, i) == slot)
            return true;
    return false;
}

/* What a group reads comes as constant memory, what it stores as other. Partial results are written
 * by one launch and read by a later one. */
static const char *check_direction(const struct verifier *verifier,
                                   const struct kiln__parameter *parameter, uint32_t slot)
{
    if (verifier->launch->variant.generic) /* whose text knows no direction */
        return is_read(verifier, slot) || is_stored(verifier, slot)
                   ? NULL
                   : "memory that the group does not name";
    if (is_scratch(verifier, slot))
        return !parameter->constant || comes_later(verifier, slot)
                   ? NULL
                   : "working memory that nothing was written to";
    if (parameter->constant)
        return is_read(verifier, slot) ? NULL : "memory that the group does not read";
    return is_stored(verifier, slot) ? NULL : "memory that the group does not store to";
}

static const char *check_room(const struct verifier *verifier, size_t i)
{
    uint32_t slot = argument_at(verifier, i)->slot;
    return is_scratch(verifier, slot) && verifier->plan->slots.items[slot].bytes <
                                             kiln__scratch_least(verifier->launch, verifier->group,
                                                                 verifier->parameters, i)
               ? "working memory that is smaller than what is kept there"
               : NULL;
}

/* Whether two slots are one memory: a result in the buffer that an input is read from is. */
static bool same_memory(const struct verifier *verifier, uint32_t a, uint32_t b)
{
    const struct kiln__plan *plan = verifier->plan;
    const struct kiln__slot *result = &plan->slots.items[a], *input = &plan->slots.items[b];
    if (a == b)
        return true;
    return result->in_place && input->storage == KILN__STORAGE_INPUT &&
           plan->fusion.graph.nodes.items[input->node].kind == KILN__IMPORT &&
           plan->fusion.graph.requests.items[result->binding].replaces == input->binding + 1;
}

/* The compiler may take two restricted pointers to be apart. */
static bool is_unaliased(const struct verifier *verifier, size_t i)
{
    const struct kiln__parameter *parameters = verifier->parameters->list.items;
    for (size_t k = 0; k < verifier->parameters->list.count; k++)
        if (k != i && parameters[k].memory && parameters[k].restricted &&
            argument_at(verifier, k)->kind == KILN__ARGUMENT_MEMORY &&
            same_memory(verifier, argument_at(verifier, i)->slot, argument_at(verifier, k)->slot))
            return false;
    return true;
}

/* ---- names ---- */

/* What kernels of a file call the memory of their inputs. */
static const struct {
    const char *name;
    size_t access;
} inputs[] = {{"q", 0},     {"k", 1},      {"v", 2},      {"mask", 3},
              {"stats", 4}, {"values", 0}, {"indices", 1}};

static size_t find_parameter(const struct verifier *verifier, const char *name)
{
    for (size_t i = 0; i < verifier->parameters->list.count; i++)
        if (!strcmp(verifier->parameters->list.items[i].name, name))
            return i;
    return SIZE_MAX;
}

/* An offset belongs to the memory that it is called after. */
static const char *check_offset(const struct verifier *verifier,
                                const struct kiln__argument *argument, const char *memory)
{
    size_t owner = find_parameter(verifier, memory);
    if (!argument->item)
        return "no offset";
    return owner == SIZE_MAX || argument_at(verifier, owner)->slot == argument->slot
               ? NULL
               : "the offset of other memory";
}

static const char *expect(const struct kiln__argument *argument, int64_t value)
{
    return argument->integer == value ? NULL : "another value";
}

static const char *expect_extent(const struct kiln__argument *argument, size_t extent)
{
    return expect(argument, extent < INT32_MAX ? (int64_t)extent : INT32_MAX);
}

/* The sizes that kernels for a single node go by, whatever their launch is made from. */
struct size {
    const char *name;
    size_t value;
};
enum { MOST_SIZES = 4 };

/* The group's first node, but of an attention's log-sum-exp, where they have a kernel of their own.
 */
static const struct kiln__node *launched_for(const struct verifier *verifier)
{
    const struct kiln__group *group = verifier->group;
    const struct kiln__node *nodes = verifier->plan->fusion.graph.nodes.items;
    const char *file = verifier->launch->file;
    bool beside = group->kind == KILN__GROUP_ATTENTION && group->nodes.count > 1 && file &&
                  !strncmp(file, "attention_backward", strlen("attention_backward"));
    return &nodes[group->nodes.items[beside]];
}

static void sizes_of(const struct verifier *verifier, struct size sizes[MOST_SIZES])
{
    const struct kiln__graph *graph = &verifier->plan->fusion.graph;
    const struct kiln__node *node = launched_for(verifier);
    if (node->kind == KILN__SCATTER) {
        size_t inner = 1;
        for (size_t d = node->axis + 1; d < node->shape.rank; d++)
            inner *= node->shape.dims[d];
        uint32_t indices = node->input[KILN__SCATTER_INDICES];
        sizes[0] = (struct size){"count", kiln__node_count(&graph->nodes.items[indices])};
        sizes[1] = (struct size){"extent", node->shape.dims[node->axis]};
        sizes[2] = (struct size){"inner", inner};
        sizes[3] = (struct size){"length", sizes[0].value};
    } else if (node->kind == KILN__SORT) {
        const struct kiln__node *values = kiln__graph_input(graph, node, 0);
        const size_t kept = node->shape.dims[node->shape.rank - 1];
        sizes[0] = (struct size){"extent", values->shape.dims[values->shape.rank - 1]};
        sizes[1] = (struct size){"lines", kept ? kiln__node_count(node) / kept : 0};
        sizes[2] = (struct size){"kept", kept};
        sizes[3] = (struct size){"length", sizes[0].value};
    } else if (node->kind == KILN__ATTENTION || node->kind == KILN__ATTENTION_BACKWARD) {
        struct kiln__attention_size size = node->kind == KILN__ATTENTION
                                               ? kiln__attention_size(graph, node)
                                               : kiln__attention_backward_size(graph, node);
        sizes[0] = (struct size){"m", size.m};
        sizes[1] = (struct size){"n", size.n};
        sizes[2] = (struct size){"d", size.d};
        sizes[3] = (struct size){"e", size.e};
    } else if (node->kind == KILN__MATMUL) {
        sizes[0] = (struct size){"k", verifier->group->reduced};
    }
}

/* Of an attention a matrix's, or those of several matrices that share keys (lower_attention_few.c).
 */
static const char *check_rows(const struct verifier *verifier,
                              const struct kiln__argument *argument)
{
    const struct kiln__graph *graph = &verifier->plan->fusion.graph;
    const struct kiln__node *node = &graph->nodes.items[verifier->group->nodes.items[0]];
    if (node->kind != KILN__ATTENTION)
        return NULL;
    const struct kiln__attention_size size = kiln__attention_size(graph, node);
    const int64_t rows = argument->integer, all = (int64_t)(size.m * size.batches);
    return rows == (int64_t)size.m || (size.m == 1 && rows > 0 && all % rows == 0)
               ? NULL
               : "another value";
}

static const char *check_size(const struct verifier *verifier, const char *name,
                              const struct kiln__argument *argument)
{
    struct size sizes[MOST_SIZES] = {{NULL, 0}};
    sizes_of(verifier, sizes);
    for (size_t i = 0; i < MOST_SIZES; i++)
        if (sizes[i].name && !strcmp(name, sizes[i].name))
            return expect(argument, (int64_t)sizes[i].value);
    return strcmp(name, "rows") ? NULL : check_rows(verifier, argument);
}

/* x<k>, y<k>, o<k>, q<k>, s<k>_<d>, u0_<d>, g<k>, e<k>, j<k>, l<k>, c<k>, d<d> of a generated
 * kernel. */
static const char *check_generated(const struct verifier *verifier, const char *name,
                                   const struct kiln__argument *argument)
{
    const struct kiln__group *group = verifier->group;
    const struct kiln__space *space = &verifier->space;
    int64_t by[KILN__LINE_STRIDES];
    unsigned k, d = 0;
    char letter;
    if (sscanf(name, "%c%u_%u", &letter, &k, &d) < 2)
        return NULL;
    bool access = strchr("xosge", letter), store = strchr("yqjl", letter);
    bool operand = group->kind == KILN__GROUP_MATMUL && k < kiln__group_operand_accesses(group);
    uint32_t strides = letter == 's' && operand ? (uint32_t)KILN__LINE_STRIDES : space->rank;
    if ((access && k >= group->accesses.count) || (store && k >= group->stores.count) ||
        (strchr("su", letter) && d >= strides) || (letter == 'd' && k >= space->rank) ||
        (letter == 'c' && k >= group->scalars.count))
        return "of nothing that the group has";
    const struct kiln__access *from = access ? &group->accesses.items[k] : NULL;
    switch (letter) {
    case 'x': return argument->slot == accessed_slot(verifier, k) ? NULL : "other memory";
    case 'y': return argument->slot == stored_slot(verifier, k) ? NULL : "other memory";
    case 'o':
        if (from->kind == KILN__ACCESS_NUMBER)
            return expect(argument, from->offset);
        if (argument->item == 0 || argument->slot != accessed_slot(verifier, k))
            return "the offset of other memory";
        return expect(argument, from->offset + kiln__plan_first_element(verifier->plan, argument));
    case 'q':
        if (argument->item == 0 || argument->slot != stored_slot(verifier, k))
            return "the offset of other memory";
        return expect(argument, group->stores.items[k].offset +
                                    kiln__plan_first_element(verifier->plan, argument));
    case 's':
        if (operand)
            kiln__operand_strides(group, k, by);
        return expect(argument, operand ? by[d] : space->stride[k][d]);
    case 'u': return expect(argument, space->stride[group->accesses.count][d]);
    case 'g': return expect(argument, from->jump);
    case 'e': return expect_extent(argument, from->extent);
    case 'j': return expect(argument, group->stores.items[k].jump);
    case 'l': return expect_extent(argument, group->stores.items[k].extent);
    case 'd': return expect(argument, (int64_t)space->dims[k]);
    case 'c':
        if (argument->kind == KILN__ARGUMENT_I32)
            return expect(argument, (int64_t)group->scalars.items[k]);
        if (argument->kind == KILN__ARGUMENT_I64)
            return expect(argument, kiln__value_integer(KILN_I64, group->scalars.items[k]));
        float value = (float)group->scalars.items[k];
        return memcmp(&value, &argument->real, sizeof value) ? "another value" : NULL;
    default: return NULL;
    }
}

static const char *check_name(const struct verifier *verifier,
                              const struct kiln__parameter *parameter,
                              const struct kiln__argument *argument)
{
    char memory[sizeof parameter->name];
    size_t length = strlen(parameter->name);
    if (length > 7 && !strcmp(parameter->name + length - 7, "_offset")) {
        snprintf(memory, sizeof memory, "%.*s", (int)length - 7, parameter->name);
        return check_offset(verifier, argument, memory);
    }
    for (size_t i = 0; parameter->memory && i < sizeof inputs / sizeof *inputs; i++)
        if (!strcmp(parameter->name, inputs[i].name) &&
            inputs[i].access < verifier->group->accesses.count)
            return argument->slot == accessed_slot(verifier, inputs[i].access) ? NULL
                                                                               : "other memory";
    const char *wrong = NULL;
    if (verifier->launch->source == KILN__SOURCE_TEMPLATE && !parameter->memory)
        wrong = check_size(verifier, parameter->name, argument);
    if (kiln__launch_has_text(verifier->launch))
        wrong = wrong ? wrong : check_generated(verifier, parameter->name, argument);
    return wrong;
}

/* ---- launches ---- */

static const char *check_argument(const struct verifier *verifier, size_t i)
{
    const struct kiln__parameter *parameter = &verifier->parameters->list.items[i];
    const struct kiln__argument *argument = argument_at(verifier, i);
    const char *wrong = check_type(verifier, parameter, argument);
    if (argument->kind == KILN__ARGUMENT_TABLE)
        return wrong ? wrong : verifier->launch->table.count ? NULL : "an empty table";
    if (!wrong && parameter->memory)
        wrong = check_direction(verifier, parameter, argument->slot);
    if (!wrong && parameter->memory)
        wrong = check_room(verifier, i);
    if (!wrong && !verifier->launch->variant.generic)
        wrong = check_name(verifier, parameter, argument);
    bool writes = parameter->memory && parameter->restricted && !parameter->constant;
    if (!wrong && writes && !is_unaliased(verifier, i))
        wrong = "memory that another pointer has, though both are restricted";
    return wrong;
}

static kiln_status verify_say(const struct verifier *verifier, const char *wrong, char *text)
{
    snprintf(text, KILN__WRONG, "launch %u (%s): %s", verifier->number, verifier->launch->kernel,
             wrong);
    return KILN_WRONG_STATE;
}

/* OpenCL promises room for so many bytes of arguments, with pointers of 64 bits. */
#define PARAMETER_BYTES 1024

static bool has_room(const struct kiln__launch *launch)
{
    size_t bytes = 0;
    for (size_t i = 0; i < launch->arguments.count; i++) {
        uint8_t kind = launch->arguments.items[i].kind;
        bool wide = kind == KILN__ARGUMENT_MEMORY || kind == KILN__ARGUMENT_TABLE ||
                    (kind == KILN__ARGUMENT_INDEX && launch->variant.wide);
        bytes += wide ? sizeof(int64_t) : sizeof(int32_t);
    }
    return bytes <= PARAMETER_BYTES;
}

static kiln_status check_all(const struct verifier *verifier, char *text)
{
    const struct kiln__parameters *parameters = verifier->parameters;
    if (parameters->failed)
        return KILN_OUT_OF_HOST_MEMORY;
    if (!parameters->found)
        return verify_say(verifier, "its text has no such kernel", text);
    if (parameters->list.count != verifier->launch->arguments.count) {
        snprintf(text, KILN__WRONG, "launch %u (%s): %zu arguments for %zu parameters",
                 verifier->number, verifier->launch->kernel, verifier->launch->arguments.count,
                 parameters->list.count);
        return KILN_WRONG_STATE;
    }
    if (!has_room(verifier->launch))
        return verify_say(verifier, "more bytes of arguments than OpenCL promises room for", text);
    for (size_t i = 0; i < parameters->list.count; i++) {
        const char *wrong = check_argument(verifier, i);
        if (wrong) {
            snprintf(text, KILN__WRONG, "launch %u (%s), argument %zu for %s: %s", verifier->number,
                     verifier->launch->kernel, i, parameters->list.items[i].name, wrong);
            return KILN_WRONG_STATE;
        }
    }
    return KILN_OK;
}

/* It takes its arguments by position. */
static bool suits_clblast(const struct kiln__launch *launch)
{
    bool right = launch->arguments.count == KILN__CLBLAST_C_STRIDE + 1;
    for (size_t i = 0; right && i < launch->arguments.count; i++)
        right = (launch->arguments.items[i].kind == KILN__ARGUMENT_MEMORY) ==
                (i == KILN__CLBLAST_A || i == KILN__CLBLAST_B || i == KILN__CLBLAST_C);
    return right;
}

kiln_status kiln__launches_verify(const struct kiln__plan *plan, char text[KILN__WRONG])
{
    kiln_status status = KILN_OK;
    for (uint32_t i = 0; i < plan->launches.count && !status; i++) {
        struct verifier verifier = {.plan = plan, .launch = &plan->launches.items[i], .number = i};
        verifier.group = &plan->fusion.groups.items[verifier.launch->group];
        if (verifier.launch->source == KILN__SOURCE_CLBLAST) {
            if (!suits_clblast(verifier.launch))
                status = verify_say(&verifier, "not what CLBlast takes", text);
            continue;
        }
        struct kiln__parameters parameters = kiln__parameters_of(plan, verifier.launch);
        verifier.parameters = &parameters;
        if (kiln__group_is_of_steps(verifier.group))
            kiln__space_of(verifier.group, &verifier.space);
        status = check_all(&verifier, text);
        kiln__parameters_free(&parameters);
    }
    return status;
}
