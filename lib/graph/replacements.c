/* SPDX-License-Identifier: Apache-2.0 */
/* The requests that replace inputs, by input. */
#include "graph/replacements.h"

#include <stdlib.h>

bool kiln__replacements_list(const struct kiln__graph *graph,
                             struct kiln__replacements *replacements)
{
    *replacements = (struct kiln__replacements){0};
    for (size_t i = 0; i < graph->requests.count; i++)
        if (graph->requests.items[i].replaces > replacements->inputs)
            replacements->inputs = graph->requests.items[i].replaces;
    replacements->request = calloc(replacements->inputs + 1, sizeof *replacements->request);
    for (uint32_t i = 0; replacements->request && i < graph->requests.count; i++)
        if (graph->requests.items[i].replaces)
            replacements->request[graph->requests.items[i].replaces - 1] = i + 1;
    return replacements->request;
}

void kiln__replacements_free(struct kiln__replacements *replacements)
{
    free(replacements->request);
    *replacements = (struct kiln__replacements){0};
}

uint32_t kiln__replacement_of(const struct kiln__replacements *replacements,
                              const struct kiln__node *node)
{
    bool imports = node->kind == KILN__IMPORT && node->binding < replacements->inputs;
    return imports ? replacements->request[node->binding] : 0;
}
