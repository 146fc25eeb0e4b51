/* SPDX-License-Identifier: Apache-2.0 */
/* A scoped hash table from names to value numbers. */
#include "onnx/names.h"

#include <stdlib.h>
#include <string.h>

struct kiln__onnx_name {
    const char *name; /* NULL: a free place */
    uint32_t number;
};

/* The place of a name, or the free one where it belongs; there is always one. */
static struct kiln__onnx_name *place_of(struct kiln__onnx_name *table, size_t places,
                                        const char *name)
{
    uint64_t hash = 14695981039346656037u;
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    size_t place = (size_t)(hash ^ hash >> 32) & (places - 1);
    while (table[place].name && strcmp(table[place].name, name))
        place = (place + 1) & (places - 1);
    return &table[place];
}

static const struct kiln__onnx_name *look_up(const struct kiln__onnx_names *names, const char *name)
{
    if (names->count == 0)
        return NULL;
    const struct kiln__onnx_name *place = place_of(names->table, names->places, name);
    return place->name ? place : NULL;
}

bool kiln__onnx_names_have(const struct kiln__onnx_names *names, const char *name)
{
    return look_up(names, name) != NULL;
}

bool kiln__onnx_names_find(const struct kiln__onnx_names *names, const char *name, uint32_t *number)
{
    for (; names; names = names->outer) {
        const struct kiln__onnx_name *place = look_up(names, name);
        if (place) {
            *number = place->number;
            return true;
        }
    }
    return false;
}

static bool grow(struct kiln__onnx_names *names)
{
    size_t places = names->places ? 2 * names->places : 64;
    struct kiln__onnx_name *table = calloc(places, sizeof *table);
    if (!table)
        return false;
    for (size_t i = 0; i < names->places; i++)
        if (names->table[i].name)
            *place_of(table, places, names->table[i].name) = names->table[i];
    free(names->table);
    names->table = table;
    names->places = places;
    return true;
}

bool kiln__onnx_names_add(struct kiln__onnx_names *names, const char *name, uint32_t number)
{
    if (2 * names->count >= names->places && !grow(names))
        return false;
    *place_of(names->table, names->places, name) = (struct kiln__onnx_name){name, number};
    names->count++;
    return true;
}

void kiln__onnx_names_free(struct kiln__onnx_names *names)
{
    free(names->table);
    *names = (struct kiln__onnx_names){0};
}
