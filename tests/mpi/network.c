/* SPDX-License-Identifier: Apache-2.0 */
/* y = relu(x @ a) @ b towards a target, some rows in each context of each rank. */
#include "network.h"

#include <stdio.h>
#include <string.h>

int rank, ranks;
struct world world;
float x[ROWS * IN];
static float target[ROWS];

void expect(int well, const char *what)
{
    if (well)
        return;
    fprintf(stderr, "rank %d: %s; last error: %s\n", rank, what, kiln_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

void ok(kiln_status status, const char *what)
{
    expect(status == KILN_OK, what);
}

void expect_error(kiln_status status, kiln_status wanted, const char *part)
{
    char what[1024];
    snprintf(what, sizeof what, "%s is not %s with \"%s\"", kiln_status_name(status),
             kiln_status_name(wanted), part);
    expect(status == wanted && strstr(kiln_last_error(), part), what);
}

static void fill(float *values, size_t count, unsigned seed, float scale)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = ((float)(seed >> 8) / (1 << 23) - 1) * scale;
    }
}

static kiln_buffer *make_matrix(kiln_context *context, size_t rows, size_t columns, unsigned seed,
                                float scale)
{
    static float content[IN * HIDDEN];
    kiln_buffer *buffer;
    fill(content, rows * columns, seed, scale);
    ok(kiln_buffer_create(context, KILN_F32, 2, (size_t[]){rows, columns}, &buffer), "a buffer");
    ok(kiln_buffer_write(buffer, 0, content, rows * columns * sizeof *content), "writing");
    return buffer;
}

static kiln_status record(kiln_batch *batch, size_t context, kiln_tensor *gradients, void *user)
{
    const size_t rows = world.rows[context], first = world.first[context];
    (void)user;
    kiln_tensor in = kiln_upload(batch, KILN_F32, 2, (size_t[]){rows, IN}, x + first * IN);
    kiln_tensor wanted = kiln_upload(batch, KILN_F32, 2, (size_t[]){rows, 1}, target + first);
    kiln_tensor weights[] = {kiln_import(batch, world.a[context]),
                             kiln_import(batch, world.b[context])};
    kiln_tensor hidden = kiln_relu(batch, kiln_matmul(batch, in, weights[0]));
    kiln_tensor loss =
        kiln_mean_squared_error(batch, kiln_matmul(batch, hidden, weights[1]), wanted);
    kiln_status status = kiln_grad(batch, loss, weights, 2, gradients);
    if (!status)
        status = kiln_read(batch, loss, &world.losses[context], sizeof(float));
    return world.answer ? world.answer : status;
}

static kiln_status update(kiln_batch *batch, size_t context, const kiln_tensor *gradients,
                          void *user)
{
    kiln_buffer *weights[] = {world.a[context], world.b[context]};
    if (world.optimizers[context])
        return kiln_optimizer_step(batch, world.optimizers[context], gradients);
    (void)user;
    for (int i = 0; i < 2; i++)
        kiln_export(
            batch,
            kiln_sub(batch, kiln_import(batch, weights[i]), kiln_scale(batch, gradients[i], 0.003)),
            weights[i]);
    return KILN_OK;
}

/* `count` contexts have the rows from `first` up to `end`, the first context most of them. */
void open_world(size_t count, size_t first, size_t end, unsigned seed)
{
    kiln_context_options how = KILN_CONTEXT_OPTIONS_INIT;
    fill(x, ROWS * IN, 1, 1);
    fill(target, ROWS, 2, 1);
    world = (struct world){.count = count};
    for (size_t i = 0; i < count; i++) {
        world.first[i] = first;
        world.rows[i] = i + 1 == count ? end - first : (end - first) * 2 / 3;
        first += world.rows[i];
        world.shares[i] = (double)world.rows[i];
        how.host_memory = KILN_HOST_MEMORY_SEPARATE;
        how.check_values = 1;
        ok(kiln_context_create(&how, &world.contexts[i]), "a context");
        world.a[i] = make_matrix(world.contexts[i], IN, HIDDEN, seed, 0.5f);
        world.b[i] = make_matrix(world.contexts[i], HIDDEN, 1, seed + 1, 0.1f);
    }
}

void open_optimizers(const kiln_reducer *reducer)
{
    kiln_optimizer_options how = KILN_ADAM_INIT;
    for (size_t i = 0; i < world.count; i++) {
        kiln_buffer **weights = world.weights + 2 * i, **shards = world.shards + 2 * i;
        weights[0] = world.a[i];
        weights[1] = world.b[i];
        for (int k = 0; k < 2; k++)
            ok(kiln_shard_create(world.contexts[i], reducer, weights[k], &shards[k]), "a shard");
        ok(kiln_optimizer_create(world.contexts[i], &how, 2, shards, &world.optimizers[i]),
           "an optimizer");
    }
}

kiln_status create(const kiln_reducer *reducer)
{
    kiln_training training = KILN_TRAINING_INIT;
    training.record = record;
    training.update = update;
    training.gradient_count = 2;
    training.shares = world.shares;
    training.reducer = reducer;
    if (world.shards[0] != world.weights[0]) {
        training.weights = world.weights;
        training.shards = world.shards;
    }
    return kiln_parallel_create(world.contexts, world.count, &training, &world.parallel);
}

void close_world(void)
{
    kiln_parallel_release(world.parallel);
    for (size_t i = 0; i < world.count; i++) {
        kiln_optimizer_release(world.optimizers[i]);
        kiln_buffer_release(world.shards[2 * i]);
        kiln_buffer_release(world.shards[2 * i + 1]);
        kiln_buffer_release(world.a[i]);
        kiln_buffer_release(world.b[i]);
        kiln_context_release(world.contexts[i]);
    }
}

void read_weights(size_t context, float *weights)
{
    ok(kiln_buffer_read(world.a[context], 0, weights, IN * HIDDEN * sizeof(float)), "reading");
    ok(kiln_buffer_read(world.b[context], 0, weights + IN * HIDDEN, HIDDEN * sizeof(float)),
       "reading");
}

void expect_equal_weights(void)
{
    float first[WEIGHTS], own[WEIGHTS];
    read_weights(0, first);
    MPI_Bcast(first, WEIGHTS, MPI_FLOAT, 0, MPI_COMM_WORLD);
    for (size_t i = 0; i < world.count; i++) {
        read_weights(i, own);
        expect(!memcmp(first, own, sizeof own), "weights differ from those of the first rank");
    }
}

/* Over all rows of all ranks, before each step. */
void step_all(double *losses)
{
    for (int step = 0; step < STEPS; step++) {
        double loss = 0;
        ok(kiln_parallel_step(world.parallel), "a step");
        for (size_t i = 0; i < world.count; i++)
            loss += (double)world.losses[i] * world.shares[i] / ROWS;
        MPI_Allreduce(MPI_IN_PLACE, &loss, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        losses[step] = loss;
    }
}

void open_share(size_t contexts, unsigned seed)
{
    size_t number = (size_t)rank, all = (size_t)ranks;
    open_world(contexts, ROWS * number / all, ROWS * (number + 1) / all, seed);
}
