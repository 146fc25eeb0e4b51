/* SPDX-License-Identifier: Apache-2.0 */
/* Imagined devices: contexts of a CPU and a GPU that plan and generate code, without OpenCL. */
#include "graph.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session/compile.h"
#include "session/context.h"

/* ---- contexts ---- */

/* The count of references never falls to zero. */
static kiln_context *imagine_context(kiln_context *context, kiln_device_type type,
                                     const char *platform)
{
    if (context->plan_cache)
        return context;
    kiln__verifies = true;
    kiln_device_info *info = &context->runtime.device.info;
    *context = (kiln_context){.references = 1000000};
    *info = (kiln_device_info){.type = type, .preferred_vector_f32 = 16, .compute_units = 4};
    strcpy(info->name, "imagined");
    strcpy(info->platform, platform);
    info->shares_host_memory = type == KILN_DEVICE_CPU;
    info->max_work_group = 1024;
    info->local_memory = 48 << 10;
    info->cache = 1 << 20;
    info->memory = 8 * (uint64_t)IMAGINED_LARGEST;
    info->max_allocation = IMAGINED_LARGEST;
    context->runtime.device.traits = kiln__traits_for(info);
    context->runtime.forks = kiln__forks();
    context->plan_cache = kiln__plan_cache_create(&context->runtime, NULL, NULL);
    cr_assert(context->plan_cache);
    return context;
}

kiln_context *imagined_cpu(void)
{
    static kiln_context context;
    return imagine_context(&context, KILN_DEVICE_CPU, "Portable Computing Language");
}

kiln_context *imagined_gpu(void)
{
    static kiln_context context;
    return imagine_context(&context, KILN_DEVICE_GPU, "NVIDIA CUDA");
}

struct kiln__device imagined_hopper(void)
{
    struct kiln__device device = imagined_gpu()->runtime.device;
    device.info.has_inline_ptx = 1;
    device.info.max_work_group = 1024;
    device.info.compute_units = 132;
    device.ptx_level = 90;
    return device;
}

kiln_batch *imagined_batch(void)
{
    kiln_batch *batch = kiln_batch_create(imagined_cpu());
    cr_assert(batch);
    return batch;
}

/* ---- recording ---- */

/* As aligned as memory from malloc(). */
static _Alignas(64) char nowhere[64];

kiln_tensor imagine(kiln_batch *batch, size_t rank, const size_t *dims)
{
    return kiln_upload(batch, KILN_F32, rank, dims, nowhere);
}

kiln_tensor imagine_vector(kiln_batch *batch, size_t n)
{
    return imagine(batch, 1, (size_t[]){n});
}

kiln_tensor imagine_matrix(kiln_batch *batch, size_t m, size_t n)
{
    return imagine(batch, 2, (size_t[]){m, n});
}

void ask(kiln_batch *batch, kiln_tensor tensor)
{
    const struct kiln__node *node = kiln__batch_node(batch, tensor, "ask", "tensor");
    cr_assert(node, "%s", kiln_batch_error(batch));
    cr_assert_eq(kiln_read(batch, tensor, nowhere, kiln__node_bytes(node)), KILN_OK);
}

static kiln_buffer imagine_buffer(const kiln_batch *batch, const struct kiln__node *node)
{
    return (kiln_buffer){.references = 1000000,
                         .context = batch->context,
                         .type = (kiln_type)node->type,
                         .shape = node->shape,
                         .bytes = kiln__node_bytes(node),
                         .memory = (cl_mem)nowhere};
}

kiln_tensor imagine_weights(kiln_batch *batch, size_t m, size_t n)
{
    static kiln_buffer buffers[17];
    static size_t next;
    struct kiln__node node = {.type = KILN_F32};
    kiln_buffer *buffer = &buffers[next++ % 17];
    cr_assert(kiln__shape_make(2, (size_t[]){m, n}, &node.shape));
    *buffer = imagine_buffer(batch, &node);
    buffer->memory = (cl_mem)buffer; /* another one than all others' */
    return kiln_import(batch, buffer);
}

void imagine_update(kiln_batch *batch, kiln_tensor amount)
{
    static kiln_buffer buffer;
    const struct kiln__node *node = kiln__batch_node(batch, amount, "imagine", "tensor");
    cr_assert(node, "%s", kiln_batch_error(batch));
    buffer = imagine_buffer(batch, node);
    kiln_tensor old = kiln_import(batch, &buffer);
    cr_assert_eq(kiln_export(batch, kiln_sub(batch, old, amount), &buffer), KILN_OK, "%s",
                 kiln_batch_error(batch));
    struct kiln__request *request = &batch->graph.requests.items[batch->graph.requests.count - 1];
    request->replaces = 1 + kiln__batch_node(batch, old, "imagine", "tensor")->binding;
}

/* ---- stages ---- */

struct kiln__graph graph_of(const kiln_batch *batch)
{
    struct kiln__graph copy;
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    cr_assert(kiln__graph_copy(&batch->graph, &copy));
    return copy;
}

/* Of no device, but for passes that need no kernel. */
static const struct kiln__kernel_support no_support = {.reads_padded = true};

/* Each as kiln_batch_execute() goes through it. */
static struct kiln__graph after_passes(const kiln_batch *batch, struct kiln__text *log)
{
    struct kiln__graph graph;
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    cr_assert_eq(kiln__compile_rewrite(&batch->graph, &no_support, log, &graph, NULL), KILN_OK,
                 "%s", kiln_last_error());
    return graph;
}

void passes_text(const kiln_batch *batch, struct kiln__text *text)
{
    struct kiln__graph graph = after_passes(batch, text);
    kiln__graph_dump(&graph, text);
    kiln__graph_free(&graph);
}

struct kiln__fusion fusion_of(const kiln_batch *batch)
{
    struct kiln__graph graph = after_passes(batch, NULL);
    struct kiln__fusion fusion;
    cr_assert_eq(kiln__compile_fuse(&graph, &no_support, &fusion, NULL), KILN_OK, "%s",
                 kiln_last_error());
    return fusion;
}

void fusion_text(const kiln_batch *batch, struct kiln__text *text)
{
    struct kiln__fusion fusion = fusion_of(batch);
    for (uint32_t i = 0; i < fusion.graph.nodes.count; i++) {
        kiln__text_add(text, "  ");
        kiln__node_dump(&fusion.graph, i, text);
        if (fusion.why[i] > KILN__BECAUSE_INPUT)
            kiln__text_add(text, "    %s%s\n", kiln__fusion_why((enum kiln__why)fusion.why[i]),
                           fusion.stored[i] ? ", stored" : "");
    }
    for (size_t i = 0; i < fusion.groups.count; i++) {
        kiln__text_add(text, "group %zu: ", i);
        kiln__group_dump(&fusion.groups.items[i], text);
    }
    kiln__text_add(text, "saves %llu bytes\n", (unsigned long long)fusion.saved_bytes);
    kiln__fusion_free(&fusion);
}

struct kiln__plan plan_of(const kiln_batch *batch, bool shared)
{
    struct kiln__plan_options options = {.device = &batch->context->runtime.device,
                                         .shared = shared};
    struct kiln__plan plan;
    cr_assert_eq(kiln_batch_status(batch), KILN_OK, "%s", kiln_batch_error(batch));
    cr_assert_eq(kiln__compile_plan(&batch->graph, &options, NULL, &plan, NULL), KILN_OK, "%s",
                 kiln_last_error());
    return plan;
}

bool take_attention_backward(const kiln_batch *batch, kiln_type type, double scale, size_t d,
                             size_t e)
{
    (void)batch;
    (void)type;
    (void)scale;
    (void)d;
    (void)e;
    return true;
}
