/* SPDX-License-Identifier: Apache-2.0 */
/* The checked form of a generated kernel: the same text, with every index that it makes into memory
 * looked at before it is used. It is made from the plain text, not beside it, so that what is
 * checked is what runs:
 *
 *     x0[b0 + i]                             (*KILN_AT(global const float, x0, b0 + i, 1, 1))
 *     *(global const float4 *)(x0 + b0 + i)  *(global const float4 *)(KILN_AT(.., b0 + i, 4, 1))
 *
 * KILN_AT is the address if the index is inside, else one in spare memory; the first that is not is
 * noted. */
#include <ctype.h>
#include <string.h>

#include "codegen/codegen.h"

/* As many as accesses, stores and working memory can be. */
enum { MOST_MEMORIES = 96, NAME = 32 };

struct memory {
    char type[NAME * 2]; /* "global const float" */
    char name[NAME];
    unsigned number; /* among the kernel's memory arguments, from 1 */
};

struct rewriter {
    struct kiln__text *out;
    struct memory memories[MOST_MEMORIES];
    unsigned count;
};

static const char helper[] =
    "static bool kiln_inside(long at, int width, long low, long high, int memory, int launch,\n"
    "    volatile global int *wrong)\n"
    "{\n"
    "    if (at >= low && at + width <= high)\n"
    "        return true;\n"
    "    if (atomic_cmpxchg(wrong, 0, launch) == 0) {\n"
    "        wrong[1] = memory;\n"
    "        wrong[2] = (int)(at - low);\n"
    "        wrong[3] = (int)((at - low) >> 32);\n"
    "    }\n"
    "    return false;\n"
    "}\n"
    "#define KILN_AT(type, name, at, width, memory) \\\n"
    "    (kiln_inside((long)(at), width, low_##name / (long)sizeof(type), \\\n"
    "        high_##name / (long)sizeof(type), memory, kiln_launch, kiln_wrong) \\\n"
    "        ? (name + (at)) : (type *)(kiln_wrong + 16))\n";

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static size_t word_length(const char *at)
{
    size_t length = 0;
    while (is_word(at[length]))
        length++;
    return length;
}

static void put(struct rewriter *rewriter, const char *from, const char *to)
{
    kiln__text_add_bytes(rewriter->out, from, (size_t)(to - from));
}

/* The bracket that closes what `at` stands in, or a comma or semicolon before it. */
static const char *end_of(const char *at, const char *end)
{
    int depth = 0;
    for (; at < end; at++) {
        bool ends = strchr(")],;", *at) && depth == 0;
        if (ends)
            return at;
        depth += (*at == '(' || *at == '[') - (*at == ')' || *at == ']');
    }
    return end;
}

static const struct memory *find(const struct rewriter *rewriter, const char *word, size_t length)
{
    for (unsigned i = 0; i < rewriter->count; i++)
        if (strlen(rewriter->memories[i].name) == length &&
            !strncmp(rewriter->memories[i].name, word, length))
            return &rewriter->memories[i];
    return NULL;
}

/* ---- parameters ---- */

/* "global const float *restrict x0" */
static bool add_memory(struct rewriter *rewriter, const char *from, const char *to)
{
    const char *star = memchr(from, '*', (size_t)(to - from)), *name = to;
    while (name > from && is_word(name[-1]))
        name--;
    if (!star || rewriter->count == MOST_MEMORIES || star - from > NAME || to - name >= NAME)
        return false;
    struct memory *memory = &rewriter->memories[rewriter->count++];
    memcpy(memory->type, from, (size_t)(star - from));
    memory->type[star - from] = 0;
    memcpy(memory->name, name, (size_t)(to - name));
    memory->name[to - name] = 0;
    memory->number = rewriter->count;
    return true;
}

/* From behind the opening bracket to the closing one. */
static bool add_parameters(struct rewriter *rewriter, const char *from, const char *to)
{
    while (from < to) {
        const char *stop = end_of(from, to);
        while (from < stop && isspace((unsigned char)*from))
            from++;
        if (!strncmp(from, "global ", 7) && !add_memory(rewriter, from, stop))
            return false;
        from = stop + (stop < to);
    }
    return true;
}

static void declare_more(const struct rewriter *rewriter)
{
    for (unsigned i = 0; i < rewriter->count; i++)
        kiln__text_add(rewriter->out, ", const long low_%s, const long high_%s",
                       rewriter->memories[i].name, rewriter->memories[i].name);
    kiln__text_add(rewriter->out, ", const int kiln_launch, volatile global int *kiln_wrong");
}

/* ---- the body ---- */

static void rewrite(struct rewriter *rewriter, const char *from, const char *to);

/* Elements at an address: those of the vector that it is cast to, or that vstore<n>() stores; what
 * comes before it ends at `at`. */
static unsigned width_at(const char *begin, const char *at)
{
    const char *end = at, *line = at;
    unsigned width = 0;
    while (line > begin && line[-1] != '\n')
        line--;
    if (end - line > 4 && !strncmp(end - 4, " *)(", 4)) {
        end -= 4;
        while (end > line && isdigit((unsigned char)end[-1]))
            end--;
    } else {
        for (const char *store = line; (store = strstr(store, "vstore")) && store < at; store += 6)
            end = store + 6;
    }
    for (; isdigit((unsigned char)*end); end++)
        width = width * 10 + (unsigned)(*end - '0');
    return width ? width : 1;
}

/* "global const float *x0 = y0;": another name for a store's memory. */
static const char *add_alias(struct rewriter *rewriter, const char *from, const char *to)
{
    const char *stop = end_of(from, to), *equals = memchr(from, '=', (size_t)(stop - from));
    const char *end = equals ? equals : from;
    while (end > from && isspace((unsigned char)end[-1]))
        end--;
    const char *target = equals ? equals + 1 + strspn(equals + 1, " ") : stop;
    const struct memory *same = find(rewriter, target, word_length(target));
    if (!equals || !same || target + word_length(target) != stop)
        return from;
    unsigned number = same->number;
    char of[NAME];
    memcpy(of, same->name, sizeof of);
    if (!add_memory(rewriter, from, end))
        return from;
    struct memory *alias = &rewriter->memories[rewriter->count - 1];
    alias->number = number;
    put(rewriter, from, stop);
    kiln__text_add(rewriter->out, ";\n    const long low_%s = low_%s, high_%s = high_%s",
                   alias->name, of, alias->name, of);
    return stop;
}

/* What stands behind a memory's name; the place to go on. */
static const char *check_use(struct rewriter *rewriter, const struct memory *memory,
                             const char *begin, const char *name, const char *to)
{
    const char *at = name + strlen(memory->name);
    bool element = *at == '[';
    if (!element && strncmp(at, " + ", 3) != 0)
        return name;
    const char *index = at + (element ? 1 : 3), *stop = end_of(index, to);
    kiln__text_add(rewriter->out, "%sKILN_AT(%s, %s, ", element ? "(*" : "", memory->type,
                   memory->name);
    rewrite(rewriter, index, stop);
    kiln__text_add(rewriter->out, ", %u, %u)%s", element ? 1 : width_at(begin, name),
                   memory->number, element ? ")" : "");
    return stop + element;
}

static void rewrite(struct rewriter *rewriter, const char *from, const char *to)
{
    const char *begin = from;
    while (from < to) {
        size_t length = word_length(from);
        const char *next = from;
        const struct memory *memory = length ? find(rewriter, from, length) : NULL;
        if (length == 6 && !strncmp(from, "global", 6) && (from == begin || from[-1] == ' '))
            next = add_alias(rewriter, from, to);
        else if (memory)
            next = check_use(rewriter, memory, begin, from, to);
        if (next == from) {
            next = from + (length ? length : 1);
            put(rewriter, from, next);
        }
        from = next;
    }
}

bool kiln__codegen_is_checked(const struct kiln__launch *launch)
{
    return launch->source == KILN__SOURCE_NEST;
}

void kiln__codegen_check(const char *source, struct kiln__text *checked)
{
    struct rewriter rewriter = {.out = checked};
    const char *kernel = strncmp(source, "kernel ", 7) ? strstr(source, "\nkernel ") : source;
    const char *name = kernel ? strstr(kernel, "void kiln_") : NULL;
    const char *open = name ? strchr(name, '(') : NULL;
    const char *end = source + strlen(source), *close = NULL;
    for (close = open; close && close < end && (close == open || *close == ',');)
        close = end_of(close + 1, end);
    if (!close || *close != ')' || !add_parameters(&rewriter, open + 1, close)) {
        checked->failed = true;
        return;
    }
    put(&rewriter, source, kernel);
    kiln__text_add(checked, "\n%s", helper);
    put(&rewriter, kernel, close);
    declare_more(&rewriter);
    rewrite(&rewriter, close, end);
}
