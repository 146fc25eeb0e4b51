/* SPDX-License-Identifier: Apache-2.0 */
/* User-given names and recording calls of nodes, for messages and explanations. */
#include "graph/labels.h"

#include <string.h>

#include "util/hash.h"

#define MOST_BYTES 200

void kiln__labels_clear(struct kiln__labels *labels)
{
    labels->nodes.count = labels->calls.count = 0;
    kiln__text_free(&labels->names);
    labels->scope = 0;
}

void kiln__labels_free(struct kiln__labels *labels)
{
    kiln__vector_free(&labels->nodes);
    kiln__vector_free(&labels->calls);
    kiln__text_free(&labels->names);
}

/* Bytes of the character at `at`; 0: it is none that may be shown. */
static size_t character(const char *at)
{
    unsigned char first = (unsigned char)*at, second = (unsigned char)at[1];
    size_t length = first < 0x80   ? 1
                    : first < 0xc2 ? 0
                    : first < 0xe0 ? 2
                    : first < 0xf0 ? 3
                    : first < 0xf5 ? 4
                                   : 0;
    if (first < ' ' || first == 0x7f)
        return 0;
    for (size_t i = 1; i < length; i++)
        if (((unsigned char)at[i] & 0xc0) != 0x80)
            return 0;
    bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    bool beyond = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
    bool control = first == 0xc2 && second < 0xa0;
    return overlong || beyond || control ? 0 : length;
}

uint32_t kiln__labels_keep(struct kiln__labels *labels, const char *name)
{
    struct kiln__text *names = &labels->names;
    if (!name || !*name)
        return 0;
    if (!names->length)
        kiln__text_add_bytes(names, "", 1);
    size_t start = names->length;
    while (*name) {
        size_t length = character(name), shown = length ? length : 1;
        if (names->length - start + shown > MOST_BYTES)
            break;
        kiln__text_add_bytes(names, length ? name : "?", shown);
        name += shown;
    }
    kiln__text_add_bytes(names, "", 1);
    return names->failed || start > UINT32_MAX ? 0 : (uint32_t)start;
}

uint32_t kiln__labels_find(const struct kiln__labels *labels, uint32_t node)
{
    if (!labels || !labels->names.length || node >= labels->nodes.count)
        return 0;
    const struct kiln__label *label = &labels->nodes.items[node];
    if (label->name || !label->call || labels->calls.items[label->call - 1].unnamed)
        return label->name;
    return labels->calls.items[label->call - 1].name;
}

const char *kiln__labels_name(const struct kiln__labels *labels, uint32_t node)
{
    uint32_t name = kiln__labels_find(labels, node);
    return name ? labels->names.data + name : NULL;
}

uint64_t kiln__labels_hash(const struct kiln__labels *labels)
{
    if (!labels || !labels->names.length)
        return 0;
    uint64_t hash = kiln__hash64(labels->names.data, labels->names.length);
    for (uint32_t i = 0; i < labels->nodes.count; i++)
        hash = (hash ^ kiln__labels_find(labels, i)) * UINT64_C(0x100000001b3);
    return hash | 1;
}

void kiln__labels_append(const struct kiln__labels *labels, uint32_t node, struct kiln__text *text)
{
    const char *name = kiln__labels_name(labels, node);
    if (name)
        kiln__text_add(text, " \"%s\"", name);
    if (!labels || node >= labels->nodes.count || !labels->nodes.items[node].call)
        return;
    uint32_t call = labels->nodes.items[node].call;
    kiln__text_add(text, " (%s, call %u)", labels->calls.items[call - 1].function, call);
}
