/* SPDX-License-Identifier: Apache-2.0 */
/* Reads known-failures, and matches test names with its patterns. */
#include "known.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool read_row(const char *line, struct known_row *row)
{
    char kind[16];
    *row = (struct known_row){0};
    if (sscanf(line, "%15s %119s %199[^\n]", kind, row->pattern, row->reason) != 3)
        return false;
    row->fails = !strcmp(kind, "fails");
    return row->fails || !strcmp(kind, "unsupported");
}

static bool add_row(struct known_list *known, const struct known_row *row)
{
    struct known_row *rows = realloc(known->rows, (known->count + 1) * sizeof *rows);
    if (!rows)
        return false;
    known->rows = rows;
    rows[known->count++] = *row;
    return true;
}

bool read_known(const char *path, struct known_list *known)
{
    char line[400];
    struct known_row row;
    bool good = true;
    FILE *file = fopen(path, "r");
    if (!file)
        perror(path);
    while (file && good && fgets(line, sizeof line, file)) {
        if (*line == '#' || *line == '\n')
            continue;
        good = read_row(line, &row) && add_row(known, &row);
        if (!good)
            fprintf(stderr, "%s: no row: %s", path, line);
    }
    if (file)
        fclose(file);
    return file && good;
}

static bool is_about(const struct known_row *row, const char *name, const char *operator_name)
{
    return !fnmatch(row->pattern, name, 0) || !strcmp(row->pattern, operator_name);
}

struct known_row *find_known(const struct known_list *known, const char *name,
                             const char *operator_name, bool fails)
{
    for (size_t i = 0; i < known->count; i++)
        if (known->rows[i].fails == fails && is_about(&known->rows[i], name, operator_name))
            return &known->rows[i];
    return NULL;
}
