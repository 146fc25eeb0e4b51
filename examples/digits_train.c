/* SPDX-License-Identifier: Apache-2.0 */
#include "digits_train.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "digits_saved.h"

#define BATCH_ROWS 128

static const char *program = "digits";

static void check(kiln_status status, const char *what)
{
    if (!status)
        return;
    fprintf(stderr, "%s: %s: %s\n", program, what, kiln_last_error());
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The same sequence on every machine. */
static uint64_t random_state = 2026;

static unsigned next_random(unsigned below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)((random_state >> 32) % below);
}

/* ---- the plain network ---- */

#define HIDDEN 128

static kiln_tensor two_layers(kiln_batch *b, kiln_tensor x, const kiln_tensor *p, size_t rows,
                              kiln_type type)
{
    (void)rows;
    kiln_tensor hidden = kiln_relu(b, kiln_add(b, kiln_matmul(b, x, p[0]), p[1]));
    kiln_name(b, hidden, "hidden");
    return kiln_add(b, kiln_matmul(b, kiln_cast(b, hidden, type), p[2]), p[3]);
}

const struct network digits_two_layers = {
    "64-128-10",
    4,
    {{2, {DIGIT_PIXELS, HIDDEN}, DIGIT_PIXELS},
     {1, {HIDDEN}, 0},
     {2, {HIDDEN, DIGIT_CLASSES}, HIDDEN},
     {1, {DIGIT_CLASSES}, 0}},
    two_layers,
};

/* ---- parameters ---- */

/* Round f32 values to the buffer's type, and leave them there. */
static void write_values(kiln_context *context, kiln_buffer *buffer, const float *values)
{
    size_t rank, dims[KILN_MAX_RANK];
    kiln_type type;
    check(kiln_buffer_shape(buffer, &type, &rank, dims), "a parameter");
    if (type == KILN_F32) {
        check(kiln_buffer_write(buffer, 0, values, kiln_buffer_bytes(buffer)), "a parameter");
        return;
    }
    kiln_batch *b = kiln_batch_create(context);
    kiln_export(b, kiln_cast(b, kiln_upload(b, KILN_F32, rank, dims, values), type), buffer);
    check(kiln_batch_execute(b), "a parameter");
    kiln_batch_release(b);
}

/* Uniform with variance 2 / inputs, as suits relu (K. He and others, ICCV 2015); biases 0. */
static kiln_buffer *make_parameter(kiln_context *context, const struct network *network, size_t i,
                                   kiln_type type)
{
    kiln_buffer *buffer;
    check(kiln_buffer_create(context, type, network->parameters[i].rank,
                             network->parameters[i].dims, &buffer),
          "a parameter");
    size_t count = kiln_buffer_bytes(buffer) / kiln_type_size(type),
           inputs = network->parameters[i].inputs;
    float *values = calloc(count, sizeof *values);
    if (!values)
        check(KILN_OUT_OF_HOST_MEMORY, "a parameter");
    double reach = inputs ? sqrt(6.0 / (double)inputs) : 0;
    for (size_t k = 0; k < count; k++)
        values[k] = (float)(reach * (next_random(1 << 20) / (double)(1 << 19) - 1));
    write_values(context, buffer, values);
    free(values);
    return buffer;
}

/* ---- batches ---- */

struct trainer {
    const struct digits *digits;
    const struct network *network;
    kiln_type type; /* of parameters in training, and of activations */
    kiln_buffer *parameters[MOST_PARAMETERS];
    kiln_buffer *scales[MOST_PARAMETERS]; /* of parameters in 8 bits; NULL: it is not */
    kiln_optimizer *optimizer;
    uint8_t pixels[BATCH_ROWS * DIGIT_PIXELS], labels[BATCH_ROWS];
    float loss;
    int64_t right; /* a sum of integers */
};

/* A parameter in f32, or as it is stored. */
static kiln_tensor import_parameter(const struct trainer *trainer, kiln_batch *b, size_t i)
{
    kiln_tensor stored = kiln_import(b, trainer->parameters[i]);
    if (!trainer->scales[i])
        return stored;
    return kiln_mul(b, kiln_cast(b, stored, KILN_F32), kiln_import(b, trainer->scales[i]));
}

/* Logits of rows of pixels in host memory; `parameters` receives the parameters' tensors. */
static kiln_tensor record_forward(struct trainer *trainer, kiln_batch *b, const uint8_t *pixels,
                                  size_t rows, kiln_tensor *parameters)
{
    for (size_t i = 0; i < trainer->network->n; i++)
        parameters[i] = import_parameter(trainer, b, i);
    kiln_tensor x = kiln_upload(b, KILN_U8, 2, (size_t[]){rows, DIGIT_PIXELS}, pixels);
    x = kiln_scale(b, kiln_cast(b, x, KILN_F32), 1.0 / 16);
    x = kiln_cast(b, x, trainer->type);
    return trainer->network->forward(b, x, parameters, rows, trainer->type);
}

/* One training step: forward, backward and update. Each run takes the rows that are then in
 * `pixels` and `labels`; only the loss comes back. */
static kiln_batch *record_step(struct trainer *trainer, kiln_context *context)
{
    kiln_tensor parameters[MOST_PARAMETERS], gradients[MOST_PARAMETERS];
    kiln_batch *b = kiln_batch_create(context);
    if (!b)
        check(KILN_OUT_OF_HOST_MEMORY, "no batch");
    kiln_tensor logits = record_forward(trainer, b, trainer->pixels, BATCH_ROWS, parameters);
    kiln_tensor labels = kiln_upload(b, KILN_U8, 1, (size_t[]){BATCH_ROWS}, trainer->labels);
    kiln_tensor loss = kiln_cross_entropy(b, logits, labels);
    kiln_grad(b, loss, parameters, trainer->network->n, gradients);
    kiln_optimizer_step(b, trainer->optimizer, gradients);
    check(kiln_read(b, loss, &trainer->loss, sizeof trainer->loss), "recording");
    return b;
}

/* How many of the test rows are recognised. */
static kiln_batch *record_test(struct trainer *trainer, kiln_context *context)
{
    size_t first = trainer->digits->count - TEST_ROWS;
    kiln_tensor parameters[MOST_PARAMETERS];
    kiln_batch *b = kiln_batch_create(context);
    if (!b)
        check(KILN_OUT_OF_HOST_MEMORY, "no batch");
    kiln_tensor logits = record_forward(trainer, b, trainer->digits->pixels + first * DIGIT_PIXELS,
                                        TEST_ROWS, parameters);
    kiln_tensor labels =
        kiln_upload(b, KILN_U8, 1, (size_t[]){TEST_ROWS}, trainer->digits->labels + first);
    kiln_tensor answers = kiln_argmax(b, logits, 1, (const int[]){1}, 0);
    kiln_tensor hits = kiln_equal(b, answers, kiln_cast(b, labels, KILN_I32));
    check(kiln_read(b, kiln_sum(b, hits, 0, NULL, 0), &trainer->right, sizeof trainer->right),
          "recording");
    return b;
}

/* ---- data ---- */

/* Row `row` of the digits, moved by up to a pixel, as row `place` of the batch. */
static void put_row(struct trainer *trainer, size_t row, size_t place)
{
    const uint8_t *from = trainer->digits->pixels + row * DIGIT_PIXELS;
    uint8_t *to = trainer->pixels + place * DIGIT_PIXELS;
    int down = (int)next_random(3) - 1, right = (int)next_random(3) - 1;
    for (int y = 0; y < DIGIT_SIDE; y++)
        for (int x = 0; x < DIGIT_SIDE; x++) {
            int v = y - down, u = x - right;
            int inside = v >= 0 && v < DIGIT_SIDE && u >= 0 && u < DIGIT_SIDE;
            to[y * DIGIT_SIDE + x] = inside ? from[v * DIGIT_SIDE + u] : 0;
        }
    trainer->labels[place] = trainer->digits->labels[row];
}

static void shuffle(int32_t *order, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t k = next_random((unsigned)i);
        int32_t swap = order[k];
        order[k] = order[i - 1];
        order[i - 1] = swap;
    }
}

/* ---- 8 bits ---- */

/* Put weights into 8 bits, with a scale for each output that its largest one needs. Biases stay. */
static void quantise(struct trainer *trainer, kiln_context *context, size_t i)
{
    static const int inputs[] = {0, 1, 2};
    size_t rank, dims[KILN_MAX_RANK], scales[KILN_MAX_RANK] = {1, 1, 1, 1};
    kiln_buffer *weights = trainer->parameters[i], *narrow;
    check(kiln_buffer_shape(weights, NULL, &rank, dims), "weights");
    scales[rank - 1] = dims[rank - 1];
    check(kiln_buffer_create(context, KILN_I8, rank, dims, &narrow), "weights in i8");
    check(kiln_buffer_create(context, KILN_F32, rank, scales, &trainer->scales[i]), "scales");
    kiln_batch *b = kiln_batch_create(context);
    kiln_tensor w = kiln_import(b, weights);
    kiln_tensor largest = kiln_max(b, kiln_abs(b, w), rank - 1, inputs, 1);
    kiln_tensor scale = kiln_scale(b, largest, 1.0 / 127);
    kiln_tensor rounded = kiln_round(b, kiln_div(b, w, scale));
    kiln_export(b, kiln_cast(b, rounded, KILN_I8), narrow);
    kiln_export(b, scale, trainer->scales[i]);
    check(kiln_batch_execute(b), "weights in i8");
    kiln_batch_release(b);
    kiln_buffer_release(weights);
    trainer->parameters[i] = narrow;
}

/* ---- training ---- */

static void add_memory(const struct trainer *trainer, kiln_batch *step, struct outcome *outcome)
{
    kiln_batch_cost cost;
    size_t count;
    kiln_buffer *const *state = kiln_optimizer_state(trainer->optimizer, &count);
    check(kiln_batch_get_cost(step, &cost), "the plan");
    outcome->peak_bytes = cost.peak_bytes;
    for (size_t i = 0; i < count; i++)
        outcome->state_bytes += kiln_buffer_bytes(state[i]);
}

/* All rows once, in whole batches; the mean loss. */
static float run_epoch(struct trainer *trainer, kiln_batch *step, int32_t *order, size_t rows)
{
    size_t steps = rows / BATCH_ROWS;
    double sum = 0;
    shuffle(order, rows);
    for (size_t s = 0; s < steps; s++) {
        for (size_t i = 0; i < BATCH_ROWS; i++)
            put_row(trainer, (size_t)order[s * BATCH_ROWS + i], i);
        check(kiln_batch_execute(step), "a step");
        sum += trainer->loss;
    }
    return (float)(sum / (double)steps);
}

static uint64_t count_plans(kiln_context *context)
{
    kiln_context_stats stats;
    check(kiln_context_get_stats(context, &stats), "stats");
    return stats.plans_made + stats.kernels_compiled + stats.kernels_from_disk;
}

/* Rows as they come, or all as a file has it. */
static void begin_progress(const struct trainer *trainer, kiln_context *context, const char *resume,
                           struct progress *progress)
{
    progress->order = calloc(progress->rows, sizeof *progress->order);
    if (!progress->order)
        check(KILN_OUT_OF_HOST_MEMORY, "the order of rows");
    for (size_t i = 0; i < progress->rows; i++)
        progress->order[i] = (int32_t)i;
    if (resume)
        check(digits_resume(resume, context, trainer->network->n, trainer->parameters,
                            trainer->optimizer, progress),
              "going on");
}

static void run_epochs(struct trainer *trainer, kiln_context *context,
                       const struct training *training, struct outcome *outcome)
{
    size_t rows = trainer->digits->count - TEST_ROWS;
    uint64_t plans = 0;
    int32_t e = 0, stop = (int32_t)(training->stop ? training->stop : training->epochs);
    const double steps = (double)(rows / BATCH_ROWS);
    struct progress progress = {&e, &random_state, NULL, rows, outcome->losses, MOST_EPOCHS};
    begin_progress(trainer, context, training->resume, &progress);
    kiln_batch *step = record_step(trainer, context);
    for (; e < stop; e++) {
        double done = (double)e / training->epochs, pi = acos(-1);
        double rate = training->learning_rate * (1 + cos(pi * done)) / 2;
        check(kiln_optimizer_set_learning_rate(trainer->optimizer, rate), "the learning rate");
        double start = now();
        outcome->losses[e] = run_epoch(trainer, step, progress.order, rows);
        double seconds = (now() - start) / steps;
        if (outcome->step_seconds == 0 || seconds < outcome->step_seconds)
            outcome->step_seconds = seconds;
        plans = plans ? plans : count_plans(context);
        if ((e + 1) % 10 == 0 || e == 0)
            printf("epoch %3d  loss %.4f\n", (int)e + 1, outcome->losses[e]);
    }
    outcome->epochs = (unsigned)e;
    outcome->planned_again = plans && count_plans(context) != plans;
    add_memory(trainer, step, outcome);
    if (training->save)
        check(digits_save(training->save, context, trainer->network->n, trainer->parameters,
                          trainer->optimizer, &progress),
              "saving");
    kiln_batch_release(step);
    free(progress.order);
}

/* What the test rows say, and the fastest of a few runs. */
static void run_test(struct trainer *trainer, kiln_context *context, struct outcome *outcome)
{
    kiln_batch_cost cost;
    kiln_batch *test = record_test(trainer, context);
    check(kiln_batch_get_cost(test, &cost), "the test's plan");
    outcome->test_peak_bytes = cost.peak_bytes;
    for (int run = 0; run < 5; run++) {
        double start = now();
        check(kiln_batch_execute(test), "the test");
        double seconds = now() - start;
        if (!run || seconds < outcome->test_seconds)
            outcome->test_seconds = seconds;
    }
    outcome->right = (size_t)trainer->right;
    for (size_t i = 0; i < trainer->network->n; i++)
        outcome->parameter_bytes +=
            kiln_buffer_bytes(trainer->parameters[i]) + kiln_buffer_bytes(trainer->scales[i]);
    kiln_batch_release(test);
}

static void print_outcome(const struct outcome *outcome)
{
    printf("%.1f%% right; bytes: parameters %zu, optimiser %zu, step's peak %" PRIu64
           ", test's peak %" PRIu64 "; step: %.3f ms, test: %.3f ms\n",
           100.0 * (double)outcome->right / TEST_ROWS, outcome->parameter_bytes,
           outcome->state_bytes, outcome->peak_bytes, outcome->test_peak_bytes,
           1e3 * outcome->step_seconds, 1e3 * outcome->test_seconds);
}

void digits_train(kiln_context *context, const struct digits *digits, const struct network *network,
                  const struct training *training, struct outcome *outcome)
{
    const int narrow = training->type == KILN_I8;
    struct trainer trainer = {
        .digits = digits, .network = network, .type = narrow ? KILN_F32 : training->type};
    kiln_optimizer_options options = KILN_ADAMW_INIT;
    double start = now();
    options.learning_rate = training->learning_rate;
    options.weight_decay = training->weight_decay;
    *outcome = (struct outcome){0};
    for (size_t i = 0; i < network->n; i++)
        trainer.parameters[i] = make_parameter(context, network, i, trainer.type);
    check(kiln_optimizer_create(context, &options, network->n, trainer.parameters,
                                &trainer.optimizer),
          "the optimizer");
    printf("%s in %s, %u epochs of %zu digits\n", network->name, kiln_type_name(training->type),
           training->epochs, digits->count - TEST_ROWS);
    run_epochs(&trainer, context, training, outcome);
    kiln_optimizer_release(trainer.optimizer);
    for (size_t i = 0; narrow && i < network->n; i++)
        if (network->parameters[i].inputs)
            quantise(&trainer, context, i);
    run_test(&trainer, context, outcome);
    outcome->seconds = now() - start;
    print_outcome(outcome);
    for (size_t i = 0; i < network->n; i++) {
        if (training->trained)
            training->trained[i] = trainer.parameters[i];
        else
            kiln_buffer_release(trainer.parameters[i]);
        kiln_buffer_release(trainer.scales[i]);
    }
}

/* ---- what it prints ---- */

#define CURVE_HEIGHT 8
#define CURVE_WIDTH 60

/* Each column is an epoch or several, each row a third of the loss of the one above. */
void digits_print_curve(const float *losses, unsigned count)
{
    unsigned width = count < CURVE_WIDTH ? count : CURVE_WIDTH;
    double top = losses[0];
    for (int row = 0; row < CURVE_HEIGHT; row++) {
        double upper = top * pow(2, -row), lower = row + 1 < CURVE_HEIGHT ? upper / 2 : 0;
        printf("%8.3f |", upper);
        for (unsigned i = 0; i < width; i++) {
            float loss = losses[i * count / width];
            putchar(loss > lower && (loss <= upper || row == 0) ? '*' : ' ');
        }
        printf("\n");
    }
    printf("         +");
    for (unsigned i = 0; i < width; i++)
        putchar('-');
    printf(" %u epochs\n", count);
}

/* ---- the command line ---- */

static const char usage[] =
    "usage: %s [--precision f32|bf16|f16|i8] [--stop EPOCH] [--save FILE] [--resume FILE] "
    "[DEVICE]\n"
    "  -p, --precision TYPE  what weights and activations are stored as (f32);\n"
    "                        i8: weights after training in f32, for the test\n"
    "      --stop EPOCH      end training after that epoch\n"
    "      --save FILE       leave there, then, all that training goes on from\n"
    "      --resume FILE     go on from there\n"
    "  -h, --help            say this\n";

static kiln_type find_type(const char *name)
{
    static const kiln_type types[] = {KILN_F32, KILN_BF16, KILN_F16, KILN_I8};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(name, kiln_type_name(types[i])))
            return types[i];
    fprintf(stderr, usage, program);
    exit(2);
}

static void end_with_usage(int option)
{
    fprintf(option == 'h' ? stdout : stderr, usage, program);
    exit(option == 'h' ? 0 : 2);
}

static unsigned find_epoch(const char *text, const struct training *training)
{
    char *end;
    unsigned long epoch = strtoul(text, &end, 10);
    if (*end || !epoch || epoch > training->epochs)
        end_with_usage('?');
    return (unsigned)epoch;
}

/* Answers the device's name, or NULL. */
static const char *read_options(int argc, char **argv, struct training *training)
{
    static const struct option known[] = {{"precision", required_argument, NULL, 'p'},
                                          {"stop", required_argument, NULL, 'e'},
                                          {"save", required_argument, NULL, 's'},
                                          {"resume", required_argument, NULL, 'r'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    for (int option; (option = getopt_long(argc, argv, "p:h", known, NULL)) != -1;)
        switch (option) {
        case 'p': training->type = find_type(optarg); break;
        case 'e': training->stop = find_epoch(optarg, training); break;
        case 's': training->save = optarg; break;
        case 'r': training->resume = optarg; break;
        default: end_with_usage(option);
        }
    if (optind + 1 < argc)
        end_with_usage('?');
    return argv[optind];
}

kiln_context *digits_begin(const char *name, int argc, char **argv, struct digits *digits,
                           struct training *training)
{
    kiln_context_options options = KILN_CONTEXT_OPTIONS_INIT;
    kiln_context *context;
    program = name;
    options.device = read_options(argc, argv, training);
    if (digits_read(DIGITS_DATA, digits))
        exit(1);
    if (digits->count <= TEST_ROWS + BATCH_ROWS) {
        fprintf(stderr, "%s: %s has too few digits\n", name, DIGITS_DATA);
        exit(1);
    }
    check(kiln_context_create(&options, &context), "no context");
    return context;
}
