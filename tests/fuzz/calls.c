/* SPDX-License-Identifier: Apache-2.0 */
/* Sequences of public calls, chosen by bytes: each picks a row of calls.def and its arguments.
 * After every call its answer has to be in order, and at the end nothing may be left. */
#include "fuzz/calls.h"
#include "session/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/world.h"

#define MOST_KINDS 9
#define MOST_CALLS 64

/* ---- the table ---- */

enum result {
    RESULT_nothing,
    RESULT_tensor,
    RESULT_status,         /* of the call */
    RESULT_status_of_file, /* the sentence names the file instead, or is the caller's */
    RESULT_status_asked,   /* of a batch: no failure of the call */
    RESULT_new_batch,
    RESULT_size,
    RESULT_text,
    RESULT_address
};

struct answer {
    kiln_tensor tensor;
    kiln_status status, status_asked;
    kiln_batch *new_batch;
    size_t size;
    const char *text;
    const void *address;
};

/* The same for each argument of a row, whose number is `i`. */
#define EACH_1(what, a) what(0, a)
#define EACH_2(what, a, b) EACH_1(what, a), what(1, b)
#define EACH_3(what, a, b, c) EACH_2(what, a, b), what(2, c)
#define EACH_4(what, a, b, c, d) EACH_3(what, a, b, c), what(3, d)
#define EACH_5(what, a, b, c, d, e) EACH_4(what, a, b, c, d), what(4, e)
#define EACH_6(what, a, b, c, d, e, f) EACH_5(what, a, b, c, d, e), what(5, f)
#define EACH_7(what, a, b, c, d, e, f, g) EACH_6(what, a, b, c, d, e, f), what(6, g)
#define EACH_8(what, a, b, c, d, e, f, g, h) EACH_7(what, a, b, c, d, e, f, g), what(7, h)
#define EACH_N(a, b, c, d, e, f, g, h, n, ...) EACH_##n
#define EACH(what, ...) EACH_N(__VA_ARGS__, 8, 7, 6, 5, 4, 3, 2, 1, 0)(what, __VA_ARGS__)

#define VALUE(i, kind) v[i].kind
#define NUMBER(i, kind) KIND_##kind

#define TAKE_nothing(call) call
#define TAKE_tensor(call) answer->tensor = call
#define TAKE_status(call) answer->status = call
#define TAKE_status_of_file(call) answer->status = call
#define TAKE_status_asked(call) answer->status_asked = call
#define TAKE_new_batch(call) answer->new_batch = call
#define TAKE_size(call) answer->size = call
#define TAKE_text(call) answer->text = call
#define TAKE_address(call) answer->address = call

#define CALL(function, result, ...)                                                                \
    static void call_##function(const union value *v, struct answer *answer)                       \
    {                                                                                              \
        (void)answer;                                                                              \
        TAKE_##result(function(EACH(VALUE, __VA_ARGS__)));                                         \
    }
#define CALL_PLAIN(function, result)                                                               \
    static void call_##function(const union value *v, struct answer *answer)                       \
    {                                                                                              \
        (void)v;                                                                                   \
        TAKE_##result(function());                                                                 \
    }
#include "fuzz/calls.def"
#undef CALL_PLAIN
#undef CALL

static const struct row {
    const char *name;
    void (*call)(const union value *v, struct answer *answer);
    enum result result;
    enum kind kinds[MOST_KINDS];
} rows[] = {
#define CALL(function, result, ...)                                                                \
    {#function, call_##function, RESULT_##result, {EACH(NUMBER, __VA_ARGS__)}},
#define CALL_PLAIN(function, result) {#function, call_##function, RESULT_##result, {KIND_END}},
#include "fuzz/calls.def"
#undef CALL_PLAIN
#undef CALL
};

#define ROWS (sizeof rows / sizeof *rows)

/* ---- what is wrong ---- */

static const struct row *history[MOST_CALLS];
static unsigned called;
static struct fuzz_counts counts;

static void stop(const char *why) __attribute__((noreturn));
static void stop(const char *why)
{
    fprintf(stderr, "\nafter these calls:");
    for (unsigned i = 0; i < called; i++)
        fprintf(stderr, " %s", history[i]->name);
    fprintf(stderr, "\n%s\nkiln_last_error(): %s\n", why, kiln_last_error());
    for (unsigned i = 0; i < BATCHES; i++)
        if (world.batches[i].batch)
            fprintf(stderr, "batch %u: %s\n", i, kiln_batch_error(world.batches[i].batch));
    __builtin_trap(); /* not abort(): OpenCL's driver takes that signal from libFuzzer */
}

static void check(bool condition, const char *why)
{
    if (!condition)
        stop(why);
}

/* What holds before a call. */
struct before {
    struct batch_slot *slot; /* of its batch, or NULL */
    kiln_status status;      /* of that */
    char text[480];
};

static const char marker[] = "no call has failed since";

static bool is_status(kiln_status status)
{
    return strcmp(kiln_status_name(status), "UNKNOWN");
}

/* What a driver or the system refuses may be told in their words. */
static bool names_call(kiln_status status)
{
    switch (status) {
    case KILN_DEVICE_ERROR:
    case KILN_BUILD_FAILED:
    case KILN_OUT_OF_HOST_MEMORY:
    case KILN_OUT_OF_DEVICE_MEMORY:
    case KILN_NO_DEVICE:
    case KILN_IO_ERROR: return false;
    default: return true;
    }
}

static void check_sentence(const struct row *row, kiln_status status, const char *sentence)
{
    check(*sentence && strcmp(sentence, marker), "a failure without a sentence");
    check(row->result == RESULT_status_of_file || !names_call(status) ||
              strstr(sentence, row->name),
          "a sentence that does not name the call");
}

/* The first error of a batch stays, and says what it said. */
static void check_batch(const struct row *row, const struct before *before)
{
    kiln_batch *batch = before->slot ? before->slot->batch : NULL;
    if (!batch)
        return;
    kiln_status status = kiln_batch_status(batch);
    const char *text = kiln_batch_error(batch);
    check(is_status(status) && status <= 0, "a batch with a status that is none");
    check(!status || *text, "a batch with a status and without a sentence");
    if (before->status && row->call != call_kiln_batch_reset)
        check(status == before->status && !strcmp(text, before->text), "the first error is gone");
    else if (status)
        check_sentence(row, status, text);
}

static void check_status(const struct row *row, const struct before *before, kiln_status status)
{
    const char *sentence = kiln_last_error();
    check(is_status(status), "a status that is none");
    counts.failures += status < 0;
    bool repeated = before->status && status == before->status;
    if (status < 0 && !(repeated && !strcmp(sentence, marker)) && strcmp(sentence, before->text))
        check_sentence(row, status, sentence);
    else if (status >= 0)
        check(!strcmp(sentence, marker), "a success with a sentence");
}

static void check_tensor(const struct before *before, kiln_tensor tensor)
{
    kiln_batch *batch = before->slot ? before->slot->batch : NULL;
    size_t rank, dims[KILN_MAX_RANK];
    kiln_type type;
    if (!batch) {
        check(!tensor.id, "a tensor without a batch");
        check(strcmp(kiln_last_error(), marker), "a failure without a sentence");
        return;
    }
    check(!tensor.id == !!kiln_batch_status(batch), "an error and a tensor, or neither");
    if (!tensor.id)
        return;
    check(!kiln_tensor_shape(batch, tensor, &type, &rank, dims), "a tensor that is none");
    check(kiln_type_size(type) && rank <= KILN_MAX_RANK, "a tensor of no shape");
    batch_note(before->slot, tensor);
}

static void check_answer(const struct row *row, const struct before *before,
                         const struct answer *answer)
{
    switch (row->result) {
    case RESULT_tensor: check_tensor(before, answer->tensor); break;
    case RESULT_status:
    case RESULT_status_of_file: check_status(row, before, answer->status); break;
    case RESULT_status_asked:
        check(is_status(answer->status_asked), "a status that is none");
        break;
    case RESULT_text: check(answer->text, "a text that is NULL"); break;
    case RESULT_new_batch:
        if (!answer->new_batch)
            check_sentence(row, KILN_INVALID_ARGUMENT, kiln_last_error());
        batch_adopt(answer->new_batch);
        break;
    case RESULT_nothing:
    case RESULT_size:
    case RESULT_address: break;
    }
    if (answer->status < 0)
        check(!world.new_context && !world.new_buffer && !world.new_event && !world.new_optimizer &&
                  !world.new_executor && !world.new_future && !world.new_parallel &&
                  !world.new_model && !world.new_host && !world.text && !world.array.data &&
                  !world.saved && !world.words && !world.new_buffers[0],
              "a failure that leaves an object");
}

/* Tensors that a call wrote, where it went well. */
static void note_results(const struct before *before)
{
    for (unsigned i = 0; i < SHORTEST; i++)
        if (world.results[i].id && before->slot && before->slot->batch &&
            !kiln_batch_status(before->slot->batch))
            batch_note(before->slot, world.results[i]);
}

/* ---- calls ---- */

static struct before look(const struct row *row, const union value *values)
{
    struct before before = {0};
    for (unsigned i = 0; row->kinds[i]; i++)
        if (row->kinds[i] == KIND_batch || row->kinds[i] == KIND_runnable)
            before.slot = batch_slot_of(values[i].batch);
    if (before.slot) {
        before.status = kiln_batch_status(before.slot->batch);
        strcpy(before.text, kiln_batch_error(before.slot->batch));
    }
    world.new_context = NULL;
    world.new_buffer = NULL;
    memset(world.new_buffers, 0, sizeof world.new_buffers);
    world.saved = NULL;
    world.words = NULL;
    world.new_event = NULL;
    world.new_optimizer = NULL;
    world.new_executor = NULL;
    world.new_parallel = NULL;
    world.new_future = NULL;
    world.new_model = NULL;
    world.array.data = NULL;
    world.new_host = NULL;
    world.text = NULL;
    memset(world.results, 0, sizeof world.results);
    kiln__fail(NULL, KILN_INVALID_ARGUMENT, "%s", marker);
    return before;
}

/* A batch that has failed is of little use, though not at once. */
static void renew(struct batch_slot *slot)
{
    if (!slot || !slot->batch)
        return;
    bool failed = kiln_batch_status(slot->batch);
    if ((failed && byte() % 2) || batch_is_full(slot->batch))
        check(!kiln_batch_reset(slot->batch), "a reset that fails");
    if (!slot->batch->graph.nodes.count)
        batch_fill(slot);
}

/* All rows alike, and more often those that show what was recorded to what comes after. */
static const struct row *take_row(void)
{
    uint8_t number = byte();
    if (number < 160)
        return &rows[(number << 8 | byte()) % ROWS];
    for (unsigned i = 0; i < ROWS; i++)
        if (rows[i].call == (number < 220   ? call_kiln_read
                             : number < 230 ? call_kiln_export
                             : number < 245 ? call_kiln_batch_explain
                                            : call_kiln_batch_execute))
            return &rows[i];
    return rows;
}

static void make_call(void)
{
    const struct row *row = take_row();
    union value values[MOST_KINDS];
    struct answer answer = {0};
    values_begin();
    for (unsigned i = 0; row->kinds[i]; i++)
        values[i] = value_of(row->kinds[i]);
    struct before before = look(row, values);
    history[called++] = row;
    counts.calls++;
    row->call(values, &answer);
    check_answer(row, &before, &answer);
    check_batch(row, &before);
    note_results(&before);
    world_settle();
    renew(before.slot);
}

static void verify(const kiln_batch *batch)
{
    char wrong[160];
    if (batch && !kiln_batch_status(batch))
        check(!kiln__graph_verify(&batch->graph, wrong), "a graph that is not in order");
}

static void fill_world(void)
{
    batch_adopt(kiln_batch_create(world.contexts[0]));
    batch_adopt(kiln_batch_create(world.contexts[1]));
    for (unsigned i = 0; i < 3; i++) {
        check(!kiln_buffer_create(world.contexts[i == 2], i ? KILN_F32 : KILN_I32, 1,
                                  (size_t[]){i ? 4 : 2}, &world.buffers[i]),
              "no buffer");
        world.buffer_references[i] = 1;
    }
}

struct fuzz_counts fuzz_count(void)
{
    for (unsigned i = 0; i < LASTING && world.contexts[i]; i++) {
        const struct kiln__counters *done = &world.contexts[i]->runtime.counters;
        counts.runs += atomic_load(&done->batches);
        counts.plans += atomic_load(&done->plans_made);
    }
    return counts;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool begun;
    static unsigned runs;
    if (!begun && !world_begin())
        exit(FUZZ_NO_DEVICE);
    begun = true;
    called = 0;
    bytes_begin(data, size);
    world_builds = byte() == 0xff ? 2 : 0;
    fill_world();
    while (bytes_left() && called < MOST_CALLS)
        make_call();
    for (unsigned i = 0; i < BATCHES; i++)
        verify(world.batches[i].batch);
    const char *left = world_clear();
    check(!left, left);
    if (++runs % 64 == 0)
        check(canary_sings(), "a batch gives other results than before");
    return 0;
}
