/* SPDX-License-Identifier: Apache-2.0 */
/* kiln beside the libraries that one would use instead. Each is a program of its own
 * (bench/process.h) that does a row's work when asked, and is stopped when not; those that are not
 * installed are left out. Operands stay where each library has its own.
 *
 *     kiln's context; all peers started and stopped
 *     every row: kiln and the peers in turn, each beside the others and, all else being frozen,
 * alone; who was much slower or faster beside the others is marked */
#include "work.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report.h"

/* ---- options ---- */

static struct {
    const char *python, *script, *set;
    size_t smaller, share, shares; /* shares 0: all rows */
    bool prepare, show, broken, trusting;
    bool on_gpu;
} settings = {.script = BENCH_FOLDER "/peers.py", .smaller = 1};

static const struct argp_option options[] = {
    {"python", 'p', "PROGRAM", 0,
     "Python that has the peers (bench-peers/bin/python if it is there, else python3)", 0},
    {"peers", 'e', "FILE", 0, "where peers.py is", 0},
    {"set", 'S', "SET", 0, "rows of which sizes: cpu or gpu (as the device is)", 0},
    {"smaller", 'm', "N", 0, "dimensions above 64 divided by N: a look at whether all is right", 0},
    {"part", 'I', "I/N", 0, "of the rows every Nth from the Ith on", 0},
    {"prepare", 'P', 0, 0, "compile the rows' kernels, no more", 0},
    {"show-rows", 'R', 0, 0, "the rows' operations and inputs, for peers.py --compile", 0},
    {"trust", 'T', 0, 0, "do not time ways alone, too: a quick look", 0},
    {"spinning-peer", 'X', 0, 0, "with a peer that does not rest: the rows have to be marked", 0},
    {0}};

static int take_option(int key, const char *value)
{
    switch (key) {
    case 'p': settings.python = value; return 0;
    case 'e': settings.script = value; return 0;
    case 'S': settings.set = value; return 0;
    case 'm': settings.smaller = strtoul(value, NULL, 10); return 0;
    case 'P': settings.prepare = true; return 0;
    case 'I': return sscanf(value, "%zu/%zu", &settings.share, &settings.shares) == 2 ? 0 : EINVAL;
    case 'R': settings.show = true; return 0;
    case 'T': settings.trusting = true; return 0;
    case 'X': settings.broken = true; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- peers ---- */

/* Which these are is put in at the start. */
#define PYTHON NULL, NULL

static struct peer {
    const char *name;
    const char *arguments[5];
    unsigned sets; /* rows that it is timed beside */
    struct process *process;
    struct timed {
        struct peer *peer;
        size_t mode;
        char name[64];
        double seconds; /* of the last run */
    } modes[PROCESS_MODES];
} peers[] = {
    {"numpy", {PYTHON, "numpy"}, WORK_CPU, NULL, {{0}}},
    {"PyTorch", {PYTHON, "pytorch", "cpu"}, WORK_CPU | WORK_GPU, NULL, {{0}}},
    {"ONNX Runtime", {PYTHON, "onnxruntime"}, WORK_CPU, NULL, {{0}}},
    {"PyOpenCL", {PYTHON, "pyopencl"}, WORK_CPU, NULL, {{0}}},
    {"oneDNN", {"bench/peer_onednn"}, WORK_CPU, NULL, {{0}}},
    {"ViennaCL", {"bench/peer_viennacl"}, WORK_CPU, NULL, {{0}}},
    {"one that spins", {PYTHON, "spinning"}, 0, NULL, {{0}}}, /* --spinning-peer */
};
enum { PEERS = sizeof peers / sizeof *peers };

static void start_peer(struct peer *peer)
{
    if (!peer->arguments[0]) {
        peer->arguments[0] = settings.python;
        peer->arguments[1] = settings.script;
        if (peer->arguments[3] && settings.on_gpu)
            peer->arguments[3] = "cuda";
    }
    peer->process = process_start(peer->arguments);
    if (!peer->process)
        printf("  %s is not here\n", peer->name);
}

static void end_peer(struct peer *peer)
{
    process_end(peer->process);
    peer->process = NULL;
}

/* ---- a row's data ---- */

static struct now {
    const struct work *work; /* its shapes made smaller where that was asked for */
    size_t inputs, results;
    struct recording recording;
    kiln_buffer *outputs[WORK_RESULTS];
} now;

static void shrink(struct process_shape *shape)
{
    for (size_t d = 0; d < shape->rank; d++)
        if (shape->dims[d] > 64)
            shape->dims[d] /= settings.smaller;
}

/* Makes row `index` the one that is worked on. */
static void choose(size_t index)
{
    static struct work work;
    work = works[index];
    now = (struct now){.work = &work};
    for (size_t i = 0; i < work.input_count; i++) {
        shrink(&work.inputs[i].shape);
        now.inputs += process_count(&work.inputs[i].shape);
        if (work.inputs[i].classes > 64)
            work.inputs[i].classes /= settings.smaller;
    }
    for (size_t i = 0; i < work.result_count; i++) {
        shrink(&work.results[i]);
        now.results += process_count(&work.results[i]);
    }
}

static void fill(const struct work_input *input, size_t number, float *values)
{
    size_t count = process_count(&input->shape);
    bench_fill(values, count, (unsigned)number + 1);
    for (size_t i = 0; i < count; i++)
        values[i] = input->classes ? (float)((size_t)((values[i] + 2) * 4194304) % input->classes)
                                   : values[i] * (float)input->scale;
}

static void share_inputs(void)
{
    float *values = process_share(now.inputs, now.results);
    for (size_t i = 0; i < now.work->input_count; i++) {
        fill(&now.work->inputs[i], i, values);
        values += process_count(&now.work->inputs[i].shape);
    }
}

static struct process_shape *list_shapes(struct process_shape *shapes)
{
    for (size_t i = 0; i < now.work->input_count; i++)
        shapes[i] = now.work->inputs[i].shape;
    return shapes;
}

static bool take(struct peer *peer)
{
    struct process_shape shapes[WORK_INPUTS];
    return process_take(peer->process, now.work->operation, now.work->input_count,
                        list_shapes(shapes), now.results);
}

static bool is_wanted(const struct work *work, unsigned set, size_t index)
{
    return (work->sets & set) && bench_wants(work->name) &&
           (set == WORK_GPU || !bench_is_quick() || (work->sets & WORK_QUICK)) &&
           (!settings.shares || index % settings.shares == settings.share);
}

/* ---- alone ---- */

static void isolate_kiln(void *user, bool frozen)
{
    (void)user;
    if (frozen)
        process_freeze_others(NULL);
    else
        process_thaw_others();
}

static void isolate_peer(void *user, bool frozen)
{
    const struct timed *timed = user;
    if (frozen)
        process_freeze_others(timed->peer->process);
    else
        process_thaw_others();
}

/* ---- kiln's side ---- */

static kiln_buffer *make_buffer(kiln_context *context, const struct process_shape *shape)
{
    kiln_buffer *buffer;
    bench_ok(kiln_buffer_create(context, shape->type, shape->rank, shape->dims, &buffer),
             "making a buffer");
    return buffer;
}

/* buffer = values, as its type has them: kiln's own conversion. */
static void write_buffer(kiln_context *context, const struct process_shape *shape,
                         const float *values, kiln_buffer *buffer)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, shape->rank, shape->dims, values);
    bench_ok(kiln_export(batch, kiln_cast(batch, x, shape->type), buffer), "an input");
    bench_ok(kiln_batch_execute(batch), "an input");
    kiln_batch_release(batch);
}

static void read_buffer(kiln_context *context, const struct process_shape *shape,
                        kiln_buffer *buffer, float *values)
{
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_cast(batch, kiln_import(batch, buffer), KILN_F32);
    bench_ok(kiln_read(batch, x, values, process_count(shape) * sizeof *values), "a result");
    bench_ok(kiln_batch_execute(batch), "a result");
    kiln_batch_release(batch);
}

static void prepare(kiln_context *context)
{
    struct recording *r = &now.recording;
    r->context = context;
    r->batch = kiln_batch_create(context);
    for (size_t i = 0; i < now.work->input_count; i++) {
        r->buffers[i] = make_buffer(context, &now.work->inputs[i].shape);
        r->in[i] = kiln_import(r->batch, r->buffers[i]);
    }
    now.work->record(r);
    for (size_t i = 0; i < now.work->result_count; i++) {
        now.outputs[i] = make_buffer(context, &now.work->results[i]);
        bench_ok(kiln_export(r->batch, r->out[i], now.outputs[i]), now.work->name);
    }
}

static void write_inputs(void)
{
    const float *values = process_results() - now.inputs;
    for (size_t i = 0; i < now.work->input_count; i++) {
        write_buffer(now.recording.context, &now.work->inputs[i].shape, values,
                     now.recording.buffers[i]);
        values += process_count(&now.work->inputs[i].shape);
    }
}

static void release(void)
{
    kiln_batch_release(now.recording.batch);
    kiln_optimizer_release(now.recording.optimizer);
    for (size_t i = 0; i < now.work->input_count; i++)
        kiln_buffer_release(now.recording.buffers[i]);
    for (size_t i = 0; i < now.work->result_count; i++)
        kiln_buffer_release(now.outputs[i]);
}

static void run_kiln(void *user)
{
    (void)user;
    bench_ok(settings.on_gpu ? kiln_batch_submit(now.recording.batch, NULL)
                             : kiln_batch_execute(now.recording.batch),
             now.work->name);
}

static void finish_kiln(void *user)
{
    (void)user;
    bench_ok(kiln_context_finish(now.recording.context), now.work->name);
}

/* ---- checks ---- */

static const double *want;

static bool check_shared(void)
{
    return bench_close(now.work->name, now.results, process_results(), want, now.work->slack,
                       now.work->slack);
}

static bool check_peer(void *user)
{
    const struct timed *timed = user;
    if (!want)
        return true;
    process_result(timed->peer->process, timed->mode);
    return check_shared();
}

static void work_out_reference(void)
{
    static double *memory;
    const float *in[WORK_INPUTS], *values = process_results() - now.inputs;
    struct process_shape shapes[WORK_INPUTS];
    free(memory);
    want = memory = NULL;
    if (!now.work->reference)
        return;
    for (size_t i = 0; i < now.work->input_count; i++) {
        in[i] = values;
        shapes[i] = now.work->inputs[i].shape;
        values += process_count(&shapes[i]);
    }
    want = memory = malloc(now.results * sizeof *memory);
    if (!memory)
        bench_fail("out of memory");
    now.work->reference(shapes, in, memory);
}

/* By a peer, where there is no reference; false if none can. */
static bool check_by_peer(void)
{
    bool known = false;
    for (size_t p = 0; p < PEERS && !known; p++) {
        const char *wrong = peers[p].process && process_mode(peers[p].process, 0)
                                ? process_check(peers[p].process, now.work->slack, &known)
                                : NULL;
        if (wrong)
            bench_mark("the result is wrong: %s", wrong);
    }
    return known;
}

static void check_kiln(void)
{
    float *values = process_results();
    for (size_t i = 0; i < (now.work->steps ? now.work->steps : 1); i++)
        bench_ok(kiln_batch_execute(now.recording.batch), now.work->name);
    for (size_t i = 0; i < now.work->result_count; i++) {
        read_buffer(now.recording.context, &now.work->results[i], now.outputs[i], values);
        values += process_count(&now.work->results[i]);
    }
    if (want && !check_shared())
        bench_fail("%s: the result of kiln is wrong; nothing was timed", now.work->name);
    if (!want && !check_by_peer())
        bench_note("not checked: no peer here works it out in double precision");
}

/* ---- a row ---- */

static double bytes_of(const struct work *work)
{
    double bytes = 0;
    for (size_t i = 0; i < work->input_count; i++)
        bytes += (double)process_count(&work->inputs[i].shape) *
                 (double)kiln_type_size(work->inputs[i].shape.type);
    for (size_t i = 0; i < work->result_count; i++)
        bytes += (double)process_count(&work->results[i]) *
                 (double)kiln_type_size(work->results[i].type);
    return work->bytes > 0 ? work->bytes : bytes;
}

static void run_peer(void *user)
{
    struct timed *timed = user;
    timed->seconds = process_run(timed->peer->process, timed->mode);
}

static double seconds_of_peer(void *user)
{
    return ((struct timed *)user)->seconds;
}

static void name_mode(struct timed *timed, struct peer *peer, size_t mode)
{
    const char *name = process_mode(peer->process, mode);
    bool only = *name == '-';
    timed->peer = peer;
    timed->mode = mode;
    snprintf(timed->name, sizeof timed->name, "%s%s%s", peer->name, only ? "" : " ",
             only ? "" : name);
}

static void add_peers(struct bench_row *row)
{
    for (size_t p = 0; p < PEERS; p++) {
        struct peer *peer = &peers[p];
        bool taken = peer->process && take(peer);
        for (size_t m = 0; taken && process_mode(peer->process, m); m++) {
            struct timed *timed = &peer->modes[m];
            name_mode(timed, peer, m);
            struct bench_way *way = bench_peer(row, timed->name, run_peer, check_peer, timed);
            way->seconds = seconds_of_peer;
            way->isolate = isolate_peer;
            bench_compare(row, "kiln", timed->name);
        }
    }
}

static void measure(kiln_context *context, size_t index)
{
    choose(index);
    struct bench_row row = {.name = now.work->name, .unit = BENCH_MS, .trusted = settings.trusting};
    share_inputs();
    work_out_reference();
    prepare(context);
    write_inputs();
    struct bench_way *way = bench_way(&row, "kiln", run_kiln, NULL, NULL);
    way->finish = settings.on_gpu ? finish_kiln : NULL;
    way->isolate = isolate_kiln;
    add_peers(&row);
    check_kiln();
    if (now.work->unit == WORK_PLAIN) {
        row.flops = now.work->flops;
        row.bytes = bytes_of(now.work);
    }
    bench_measure(&row);
    release();
}

/* ---- the program ---- */

static void prepare_all(kiln_context *context, unsigned set)
{
    for (size_t i = 0; works[i].name; i++) {
        if (!is_wanted(&works[i], set, i))
            continue;
        choose(i);
        prepare(context);
        bench_ok(kiln_batch_prepare(now.recording.batch, 1), now.work->name);
        release();
    }
    bench_store();
}

static void show_all(unsigned set)
{
    char line[1024];
    for (size_t i = 0; works[i].name; i++) {
        if (!is_wanted(&works[i], set, i))
            continue;
        choose(i);
        struct process_shape shapes[WORK_INPUTS];
        process_describe(now.work->input_count, list_shapes(shapes), line, sizeof line);
        printf("%s%s\n", now.work->operation, line);
    }
}

static unsigned choose_set(void)
{
    kiln_device_info info;
    size_t device;
    bench_ok(kiln_device_find(bench_device(), &device), "looking for the device");
    bench_ok(kiln_device_describe(device, &info), "looking at the device");
    settings.on_gpu = info.type == KILN_DEVICE_GPU;
    if (settings.set)
        return strcmp(settings.set, "gpu") ? WORK_CPU : WORK_GPU;
    return info.type == KILN_DEVICE_GPU ? WORK_GPU : WORK_CPU;
}

static void find_python(void)
{
    if (!settings.python)
        settings.python =
            access("bench-peers/bin/python", X_OK) ? "python3" : "bench-peers/bin/python";
}

int main(int argc, char **argv)
{
    static const struct bench_program program = {
        .name = "libraries",
        .purpose = "kiln beside numpy, PyTorch, ONNX Runtime, PyOpenCL, oneDNN and ViennaCL",
        .options = options,
        .option = take_option};
    bench_parse(&program, argc, argv);
    find_python();
    unsigned set = choose_set();
    if (settings.show) {
        show_all(set);
        return EXIT_SUCCESS;
    }
    kiln_context *context = bench_start(&program, argc, argv);
    if (settings.prepare) {
        prepare_all(context, set);
        return bench_end(context);
    }
    for (size_t p = 0; p < PEERS && !bench_is_alone(); p++)
        if (peers[p].sets ? peers[p].sets & set : settings.broken)
            start_peer(&peers[p]);
    for (size_t i = 0; works[i].name; i++)
        if (is_wanted(&works[i], set, i))
            measure(context, i);
    for (size_t p = 0; p < PEERS; p++)
        end_peer(&peers[p]);
    process_share(0, 0);
    return bench_end(context);
}
