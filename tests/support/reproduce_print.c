/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a batch as a C program: its data as arrays, its nodes as calls, its requests. */
#include "reproduce.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "reproduce_calls.h"

/* As kiln__graph_needed(), without what only internal operations need, and numbers. */
static bool *needed_by_program(const struct kiln__graph *graph)
{
    bool *needed = calloc(graph->nodes.count + 1, sizeof *needed);
    cr_assert(needed);
    for (size_t i = 0; i < graph->requests.count; i++)
        needed[graph->requests.items[i].node] = true;
    for (size_t i = graph->nodes.count; i-- > 0;) {
        const struct kiln__node *node = &graph->nodes.items[i];
        bool is_row = node->kind == KILN__ELEMENTWISE; /* the numbers of a row are no tensors */
        unsigned tensors = is_row ? kiln__elementwise_rows[node->op].tensors : node->n_inputs;
        for (unsigned k = 0; needed[i] && !reproduce_stands_in(node) && k < tensors; k++)
            needed[node->input[k]] = true;
    }
    return needed;
}

/* Of a floating type that C does not have, the bits. */
static void print_element(struct printer *printer, kiln_type type, const char *at)
{
    const struct kiln__type_row *row = kiln__type_row(type);
    if (!row->floating || row->computed == type) {
        reproduce_value(printer, type, kiln__value_load(type, at));
        return;
    }
    unsigned bits = 0;
    memcpy(&bits, at, row->bytes);
    kiln__text_add(printer->text, "0x%x", bits);
}

static void print_data(struct printer *printer, const struct kiln__node *node)
{
    static const char *const types[] = {
#define TYPE(name, value, bytes, ctype) [KILN_##name] = #ctype,
        KILN_TYPE_MAP(TYPE)
#undef TYPE
    };
    const struct kiln__binding *binding = &printer->batch->bindings.inputs.items[node->binding];
    char *content = reproduce_content(printer->batch, binding);
    kiln__text_add(printer->text, "static const %s data%llu[] = {", types[node->type],
                   (unsigned long long)node->binding);
    for (size_t i = 0; i < kiln__node_count(node); i++) {
        kiln__text_add(printer->text, i % 8 ? ", " : i ? ",\n    " : "\n    ");
        print_element(printer, (kiln_type)node->type, content + i * binding->item);
    }
    kiln__text_add(printer->text, "};\n");
    free(content);
}

static void print_words(struct printer *printer, uint32_t index, const double *values)
{
    kiln__text_add(printer->text, "static const int32_t words%u[] = {", index);
    for (size_t i = 0; i < kiln__node_count(reproduce_node(printer, index)); i++) {
        kiln__text_add(printer->text, i % 8 ? ", " : i ? ",\n    " : "\n    ");
        reproduce_number(printer, values[i]);
    }
    kiln__text_add(printer->text, "};\n");
}

/* Inputs and what stands in for operations. */
static void print_arrays(struct printer *printer)
{
    struct kiln__reference reference = reproduce_values(printer->batch);
    for (uint32_t i = 0; i < printer->batch->graph.nodes.count; i++) {
        const struct kiln__node *node = reproduce_node(printer, i);
        if (!printer->needed[i] || !kiln__node_count(node))
            continue;
        if (kiln__node_is_input(node))
            print_data(printer, node);
        else if (reproduce_stands_in(node))
            print_words(printer, i, reference.values[i]);
    }
    kiln__reference_free(&reference);
}

static void print_buffer(struct printer *printer, const struct kiln__node *node)
{
    unsigned long long number = node->binding;
    kiln__text_add(printer->text, "    kiln_buffer *buffer%llu;\n    if (kiln_buffer_create(c, %s",
                   number, reproduce_type(node));
    reproduce_dims(printer, &node->shape);
    kiln__text_add(
        printer->text,
        ", &buffer%llu) ||\n        kiln_buffer_write(buffer%llu, 0, data%llu, sizeof "
        "data%llu))\n        return fprintf(stderr, \"%%s\\n\", kiln_last_error()), 2;\n",
        number, number, number, number);
}

static void print_first(struct printer *printer)
{
    bool any = false;
    for (uint32_t i = 0; i < printer->batch->graph.nodes.count; i++)
        any =
            any || (printer->needed[i] && reproduce_sorts_few(printer, reproduce_node(printer, i)));
    kiln__text_add(printer->text, "%s", any ? "    kiln_tensor first;\n" : "");
}

/* An export goes to the buffer that it replaces, or is read: the kernel is the same. */
static void print_requests(struct printer *printer)
{
    const struct kiln__graph *graph = &printer->batch->graph;
    for (size_t i = 0; i < graph->requests.count; i++) {
        uint32_t node = graph->requests.items[i].node, replaces = graph->requests.items[i].replaces;
        if (replaces)
            kiln__text_add(printer->text, "    kiln_export(b, t%u, buffer%u);\n", node,
                           replaces - 1);
        else
            kiln__text_add(printer->text, "    kiln_read(b, t%u, result%zu, %zu);\n", node, i,
                           kiln__node_bytes(reproduce_node(printer, node)));
    }
}

static const char opening[] = "#include <math.h>\n"
                              "#include <stdint.h>\n"
                              "#include <stdio.h>\n"
                              "\n"
                              "#include <kiln/kiln.h>\n"
                              "\n";
static const char beginning[] = "\n"
                                "int main(void)\n"
                                "{\n"
                                "    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;\n"
                                "    kiln_context *c;\n"
                                "    options.validate = 1;\n"
                                "    if (kiln_context_create(&options, &c))\n"
                                "        return fprintf(stderr, \"%s\\n\", kiln_last_error()), 2;\n"
                                "    kiln_batch *b = kiln_batch_create(c);\n";
static const char ending[] = "    kiln_status status = kiln_batch_execute(b);\n"
                             "    puts(status ? kiln_last_error() : \"as it should be\");\n"
                             "    return status != KILN_OK;\n"
                             "}\n";

void reproduce_print(const kiln_batch *batch, struct kiln__text *text)
{
    struct printer printer = {batch, text, needed_by_program(&batch->graph)};
    kiln__text_add(text, "%s", opening);
    print_arrays(&printer);
    for (size_t i = 0; i < batch->graph.requests.count; i++)
        kiln__text_add(
            text, "static char result%zu[%zu];\n", i,
            kiln__node_bytes(reproduce_node(&printer, batch->graph.requests.items[i].node)) + 1);
    kiln__text_add(text, "%s", beginning);
    const kiln_type narrow = kiln__graph_narrow(&batch->graph);
    if (narrow)
        kiln__text_add(text, "    kiln_batch_set_precision(b, KILN_PRECISION_%s);\n",
                       narrow == KILN_F16 ? "F16" : "BF16");
    print_first(&printer);
    for (uint32_t i = 0; i < batch->graph.nodes.count; i++) {
        const struct kiln__node *node = reproduce_node(&printer, i);
        if (!printer.needed[i])
            continue;
        if (node->kind == KILN__IMPORT)
            print_buffer(&printer, node);
        kiln__text_add(text, "    kiln_tensor t%u = ", i);
        reproduce_call(&printer, node);
        kiln__text_add(text, ";\n");
    }
    print_requests(&printer);
    kiln__text_add(text, "%s", ending);
    free(printer.needed);
    cr_assert_not(text->failed);
}
