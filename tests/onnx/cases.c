/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the ONNX backend test folders, and the operator that each is about. */
#include "cases.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tensors.h"

static Onnx__ModelProto *read_model(const char *folder)
{
    char path[8192];
    size_t size;
    snprintf(path, sizeof path, "%s/model.onnx", folder);
    uint8_t *bytes = read_file(path, &size);
    Onnx__ModelProto *model = bytes ? onnx__model_proto__unpack(NULL, size, bytes) : NULL;
    free(bytes);
    return model;
}

/* A test of one operator may have constants before it. */
static char *operator_of(const char *folder, const char *kind)
{
    char name[200];
    Onnx__ModelProto *model = read_model(folder);
    snprintf(name, sizeof name, "%s", kind);
    if (model && model->graph && model->graph->n_node) {
        const Onnx__NodeProto *node = model->graph->node[model->graph->n_node - 1];
        bool own = !node->domain || !*node->domain;
        snprintf(name, sizeof name, "%s%s%s", own ? "" : node->domain, own ? "" : ".",
                 node->op_type);
    }
    if (model)
        onnx__model_proto__free_unpacked(model, NULL);
    return strdup(name);
}

/* Its kind is the folder that it lies in. Of tests of single operators, "X_expanded_ver18" is X,
 * its function in its place. */
static struct test_case make_case(const char *folder)
{
    struct test_case made = {.folder = strdup(folder)};
    char plain[4096], kind[64];
    const char *name = strrchr(folder, '/'), *begin = name;
    while (begin > folder && begin[-1] != '/')
        begin--;
    made.name = strdup(begin);
    snprintf(kind, sizeof kind, "%.*s", (int)(name - begin), begin);
    const char *suffix = strstr(name, "_expanded");
    made.expanded = suffix != NULL;
    snprintf(plain, sizeof plain, "%.*s", suffix ? (int)(suffix - folder) : 4095, folder);
    made.operator_name = strcmp(kind, "node") ? strdup(kind) : operator_of(plain, kind);
    return made;
}

struct case_list find_cases(const char *folder, const char *part)
{
    struct case_list list = {0};
    char pattern[4096];
    glob_t found = {0};
    snprintf(pattern, sizeof pattern, "%s/*/*/model.onnx", folder);
    if (!glob(pattern, 0, NULL, &found))
        list.cases = calloc(found.gl_pathc, sizeof *list.cases);
    for (size_t i = 0; list.cases && i < found.gl_pathc; i++) {
        *strrchr(found.gl_pathv[i], '/') = 0;
        if (!part || strstr(found.gl_pathv[i] + strlen(folder), part))
            list.cases[list.count++] = make_case(found.gl_pathv[i]);
    }
    globfree(&found);
    return list;
}

void free_cases(struct case_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->cases[i].name);
        free(list->cases[i].folder);
        free(list->cases[i].operator_name);
    }
    free(list->cases);
}
