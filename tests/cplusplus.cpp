/* SPDX-License-Identifier: Apache-2.0 */
/* kiln/kiln.hpp: tests/pages/test_cplusplus.sh compiles it with exceptions and without. Says what is
 * wrong, and nothing if all is right. */
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include <kiln/kiln.hpp>

#include "support/expect.hpp"
#include "support/missing.h"

using vector = std::vector<float>;

#ifdef KILN_EXCEPTIONS
/* Of how many allocations the last one fails; 0: none does. */
static thread_local int failing;

void *operator new(std::size_t bytes)
{
    void *content = failing && !--failing ? nullptr : std::malloc(bytes ? bytes : 1);
    if (!content)
        throw std::bad_alloc();
    return content;
}

/* The sanitizers' own would be no match for the delete below. */
void *operator new(std::size_t bytes, const std::nothrow_t &) noexcept
{
    return std::malloc(bytes);
}

void operator delete(void *content) noexcept
{
    std::free(content);
}

void operator delete(void *content, std::size_t) noexcept
{
    std::free(content);
}

/* Without memory nothing is left behind. */
static void lack_memory(const kiln::context &context)
{
    int failed = 0;
    std::uint64_t live = context.stats().buffers_live;
    for (int i = 1; i <= 4; i++) {
        kiln::buffer weights(context, {2}, vector{1, 2});
        kiln::optimizer optimizer(context, kiln::optimizer_options(KILN_ADAM), {weights});
        failing = i;
        try {
            EXPECT(optimizer.state().size() > 1);
        } catch (const std::bad_alloc &) {
            failed++;
        }
        failing = 0;
    }
    EXPECT(failed > 0 && context.stats().buffers_live == live);
}
#endif

// What it says of copies and moves, the compiler knows.
static_assert(!std::is_copy_constructible<kiln::context>::value, "handles are moved");
static_assert(std::is_nothrow_move_constructible<kiln::buffer>::value, "handles are moved");
static_assert(std::is_nothrow_move_assignable<kiln::batch>::value, "handles are moved");
static_assert(std::is_trivially_copyable<kiln::tensor>::value, "tensors are numbers");
static_assert(!std::is_convertible<kiln::tensor, bool>::value, "nor truths");

// What records without a kernel of its own: names, sizes and types, and that errors name operands.
static void describe(const kiln::context &context)
{
    EXPECT(context.device().memory > 0);
    kiln::batch b(context);
    kiln::tensor x = kiln::name(b.fill({2, 6, 4}, 1), "input"), positions, scale;
    EXPECT((kiln::split(x, 1, {2, 4}).size() == 2));
    EXPECT((kiln::topk(x, 2, -1, false, &positions).shape() == kiln::shape{2, 6, 2}));
    EXPECT(positions.type() == KILN_I32);
    EXPECT((kiln::einsum("ijk,ilk->ijl", {x, x}).shape() == kiln::shape{2, 6, 6}));
    EXPECT((kiln::elementwise("a * b + a", {x, x}).shape() == x.shape()));
    EXPECT((kiln::elementwise("b > 0", {x}, "b").type() == KILN_BOOL));
    EXPECT(kiln::elementwise_names("b + exp(a)") == "b a");
    EXPECT(kiln::quantize(x, {-1}, scale).type() == KILN_I8);
    std::vector<std::uint8_t> blocks;
    EXPECT(kiln::quantize_blocks(KILN_Q4_0, std::vector<float>(64, 1), blocks) == KILN_OK);
    kiln::buffer weights(context, KILN_Q4_0, {2, 32});
    EXPECT(weights.write(blocks) == KILN_OK);
    EXPECT(kiln::transpose(b.import(weights)).type() == KILN_F32);
    EXPECT((kiln::group_norm(x, {}, {}, 3).shape() == x.shape()));
    EXPECT((kiln::resize(x, {2, 12, 4}).shape() == kiln::shape{2, 12, 4}));
    EXPECT(kiln::clip_by_norm({x, x}, 1).size() == 2);
    EXPECT(b.window(KILN_TAPER_HANN, 8).shape().count() == 8);
    EXPECT(!b.name_calls("layer") && !b.set_batch_invariant() && !b.status());
#ifndef KILN_EXCEPTIONS
    EXPECT(!(x + b.fill({5}, 1)));
    EXPECT(std::strstr(b.error(), "(a is \"input\", b is \"layer\")"));
#endif
}

// One batch, so that a few kernels are compiled: operators, functions of the tables and others.
static void compute(const kiln::context &context)
{
    const vector data{1, 2, 3, 4, 5, 6};
    vector sums, product, picked, turned, weights, gradient;
    std::vector<std::uint8_t> mask;
    float total = 0;
    kiln::batch b(context);
    kiln::tensor x = b.upload({2, 3}, data), none;
    EXPECT(x && !none);
    EXPECT((x.shape() == kiln::shape{2, 3}));
    EXPECT(x.type() == KILN_F32);
    kiln::tensor y = (1 - -x * 2) / 2.0; // x + 1/2
    y += 0.5;
    kiln::sum(y, {-1}).read(sums);
    kiln::matmul(x, kiln::transpose(x)).read(product);
    kiln::slice(x, {{1, 2}, {INT64_MAX, INT64_MIN, -2}}).read(picked);
    kiln::range backwards;
    backwards.step = -1;
    kiln::slice(x, {backwards, backwards}).read(turned);
    kiln::softmax(x * 0, {-1}).read(weights);
    (x >= 4).read(mask);
    kiln::tensor loss = kiln::sum(kiln::square(kiln::clamp(x, 0, 5)));
    loss.read(total);
    kiln::grad(loss, {x})[0].read(gradient);
    EXPECT(!b.status());
    EXPECT(!b.execute());
    EXPECT((sums == vector{9, 18}));
    EXPECT((product == vector{14, 32, 32, 77}));
    EXPECT((picked == vector{6, 4}));
    EXPECT((turned == vector{6, 5, 4, 3, 2, 1}));
    EXPECT(weights.size() == 6 && std::fabs(weights[5] - 1.0F / 3) < 1e-6F);
    EXPECT((mask == std::vector<std::uint8_t>{0, 0, 0, 1, 1, 1}));
    EXPECT(total == 1 + 4 + 9 + 16 + 25 + 25);
    EXPECT(gradient.size() == 6 && gradient[2] == 6);
    EXPECT(b.explain().find("group") != std::string::npos);
    vector elsewhere(2);
    EXPECT(b.read_count() == 8 && !b.rebind_read(0, elsewhere) && !b.execute());
    EXPECT(elsewhere == sums);
}

static void keep(const kiln::context &context)
{
    const char *folder = std::getenv("TMPDIR");
    std::string path = std::string(folder ? folder : "/tmp") + "/weights.safetensors";
    kiln::buffer weights(context, {2, 2}, vector{1, 2, 3, 4}), moved, other;
    EXPECT(weights && !moved);
    moved = std::move(weights);
    EXPECT(!weights && moved.bytes() == 16);
    EXPECT((moved.shape() == kiln::shape{2, 2} && moved.type() == KILN_F32));
    other = moved.share();
    moved.reset();

    kiln::batch b(context);
    kiln::optimizer_options options(KILN_SGD);
    options.learning_rate = 0.5;
    kiln::optimizer optimizer(context, options, {other});
    kiln::tensor w = b.import(other);
    EXPECT(optimizer.state().size() == 1 && optimizer.state()[0].bytes() == sizeof(float));
    EXPECT(optimizer.state_names({"w"}).size() == 1);
#ifndef KILN_EXCEPTIONS
    EXPECT(optimizer.state_names({}).empty());
#endif
    optimizer.step(b, kiln::grad(kiln::sum(w * w), {w}));
#ifndef KILN_EXCEPTIONS
    kiln::batch lacking(context);
    EXPECT(optimizer.step(lacking, {}) && lacking.status());
#endif
    kiln::event event = b.submit();
    EXPECT(event && !event.wait() && !event.poll());
    vector found;
    EXPECT(!other.read(found));
    EXPECT((found == vector{0, 0, 0, 0}));
    EXPECT(!other.write(vector{5, 6, 7, 8}));

    EXPECT(!kiln::save(path, {{"w", other}}));
    std::vector<kiln::buffer> loaded = kiln::load(context, path, {"w"});
    EXPECT(loaded.size() == 1 && !loaded[0].read(found));
    EXPECT((found == vector{5, 6, 7, 8}));
    std::remove(path.c_str());
}

static void serve(const kiln::context &context)
{
    kiln::model model{
        {kiln::row(KILN_F32, {4})},
        1,
        [](const kiln::recorder &, const std::vector<kiln::tensor> &inputs, std::size_t,
           std::size_t) { return std::vector<kiln::tensor>{kiln::sum(inputs[0], {1})}; }};
    kiln::executor_options options;
    options.max_batch = 4;
    kiln::executor executor({context}, model, options);
    EXPECT(executor);
    const vector rows{1, 2, 3, 4, 5, 6, 7, 8};
    vector sums(2), more(1);
    kiln::future first = executor.submit({kiln::input(rows)}, {kiln::output(sums)}, 2);
    std::thread([&] {
        const vector row{1, 1, 1, 1};
        kiln::future second = executor.submit({kiln::input(row)}, {kiln::output(more)}, 1);
        EXPECT(second && !second.wait());
    }).join();
    EXPECT(first && !first.wait_for(std::chrono::hours(1)) && first.ready());
    EXPECT((sums == vector{10, 26}));
    EXPECT(more[0] == 4);
#ifndef KILN_EXCEPTIONS
    EXPECT(!executor.submit({}, {kiln::output(sums)}, 2));
    EXPECT(executor.run({kiln::input(rows)}, {}, 2) == KILN_INVALID_ARGUMENT);
    EXPECT(!std::strncmp(kiln_last_error(), "kiln::executor", 14));
#endif
    EXPECT(!executor.shutdown());
}

// Ready-made models: known answers of the example's own arithmetic.
static void serve_ready(const kiln::context &context)
{
    const vector a{0, 2}, b{4, 4}, weight{0.25, 0.5}, ones(2, 1);
    vector between(2), found(2), by_a(2);
    kiln::ready_model lerp = kiln::lerp_model({1}), slope = kiln::gradient_model(lerp, {0});
    EXPECT(lerp && slope && kiln::slerp_model({4}));
    kiln::executor plain({context}, lerp), sloped({context}, slope);
    lerp.reset();
    slope.reset();
    EXPECT(!plain.run({kiln::input(a), kiln::input(b), kiln::input(weight)},
                      {kiln::output(between)}, 2));
    EXPECT((between == vector{1, 3}));
    EXPECT(!sloped.run({kiln::input(a), kiln::input(b), kiln::input(weight)},
                       {kiln::output(found), kiln::output(by_a)}, 2));
    EXPECT((found == vector{1, 3} && by_a == vector{0.75, 0.5}));

    kiln::model square{
        {kiln::row(KILN_F32, {})},
        1,
        [](const kiln::recorder &, const std::vector<kiln::tensor> &inputs, std::size_t,
           std::size_t) { return std::vector<kiln::tensor>{inputs[0] * inputs[0]}; }};
    EXPECT(kiln::choose_batch(context, square, 8) == 8);
    kiln::executor derived({context}, kiln::gradient_model(square, {0}));
    EXPECT(!derived.run({kiln::input(b)}, {kiln::output(found), kiln::output(by_a)}, 2));
    EXPECT((found == vector{16, 16} && by_a == vector{8, 8}));
#ifndef KILN_EXCEPTIONS
    EXPECT(!kiln::slerp_model({}) && !kiln::gradient_model(square, {1}));
    EXPECT(!kiln::gradient_model(kiln::ready_model(), {0}));
    EXPECT(std::strstr(kiln_last_error(), "of is NULL"));
    EXPECT(!kiln::executor({context}, kiln::ready_model()));
#endif
}

// One context is enough for what the header adds: the callbacks, and what they may not do.
static void train(const kiln::context &context)
{
    const vector start{1, 2}, data{3, 4};
    vector found(2);
    kiln::buffer weights(context, {2}, start);
    kiln::training training{
        1,
        [&](const kiln::recorder &in, std::size_t) {
            kiln::tensor w = in.import(weights);
            return kiln::grad(kiln::sum(w * in.upload({2}, data)), {w});
        },
        [&](const kiln::recorder &in, std::size_t, const std::vector<kiln::tensor> &gradients) {
            (in.import(weights) - gradients[0]).store(weights);
        },
        {}};
    kiln::parallel parallel({context}, training);
    EXPECT(parallel && !parallel.step() && !parallel.step());
    EXPECT(!weights.read(found));
    EXPECT((found == vector{-5, -6}));
    const kiln::buffer whole = weights.shard(context, nullptr); // there are no other processes
    EXPECT(whole && whole.get() == weights.get());
    training.weights = {weights.get()};
    training.shards = {whole.get()};
    kiln::parallel divided({context}, training);
    EXPECT(divided && !divided.step());
    EXPECT(!weights.read(found));
    EXPECT((found == vector{-8, -10}));
    training.weights.push_back(weights.get());
#ifdef KILN_EXCEPTIONS
    bool thrown = false;
    try {
        kiln::parallel({context}, training);
    } catch (const kiln::error &caught) {
        thrown = !std::strncmp(caught.what(), "kiln::parallel", 14);
    }
    EXPECT(thrown);
#else
    EXPECT(!kiln::parallel({context}, training));
    EXPECT(!std::strncmp(kiln_last_error(), "kiln::parallel", 14));
#endif
}

/* What a time is in C: what has passed is not for ever, and what is very long is no overflow. */
static void wait(const kiln::context &context)
{
    using namespace std::chrono;
    EXPECT(kiln::detail::microseconds(nanoseconds(1500)) == 1);
    EXPECT(kiln::detail::microseconds(hours(-1)) == 0);
    EXPECT(kiln::detail::microseconds(duration<double>(NAN)) == 0);
    EXPECT(kiln::detail::microseconds(hours::max()) == UINT64_MAX);
    EXPECT(kiln::detail::microseconds(duration<double>(INFINITY)) == UINT64_MAX);
    kiln::model model{{kiln::row(KILN_F32, {4})},
                      1,
                      [](const kiln::recorder &, const std::vector<kiln::tensor> &inputs,
                         std::size_t,
                         std::size_t) { return std::vector<kiln::tensor>{inputs[0] * 2}; }};
    kiln::executor_options options;
    options.max_batch = options.min_batch = 64;
    options.max_wait_us = 600000000;
    kiln::executor executor({context}, model, options);
    const vector data{1, 2, 3, 4};
    vector found(4);
    kiln::future future = executor.submit({kiln::input(data)}, {kiln::output(found)}, 1);
    for (int64_t passed : {int64_t(-1), int64_t(0), INT64_MIN})
        EXPECT(future.wait_for(microseconds(passed)) == KILN_NOT_READY);
    EXPECT(!future.cancel());
}

/* What a function throws that C calls does not go through C: it comes out behind. */
#ifdef __cpp_exceptions
struct thrown {
    int value;
};

template <class F> static int thrown_by(const F &call)
{
    try {
        call();
    } catch (const thrown &caught) {
        return caught.value;
    } catch (...) {
        return -1;
    }
    return 0;
}

static void throw_through(const kiln::context &context)
{
    kiln::model model{{kiln::row(KILN_F32, {4})},
                      1,
                      [](const kiln::recorder &, const std::vector<kiln::tensor> &, std::size_t,
                         std::size_t) -> std::vector<kiln::tensor> { throw thrown{7}; }};
    EXPECT(thrown_by([&] { kiln::executor({context}, model); }) == 7);
    EXPECT(thrown_by([&] {
               kiln::choose_batch(context, model, 8, 0, std::chrono::microseconds(9));
           }) == 7);
    EXPECT(thrown_by([&] { kiln::executor({context}, kiln::gradient_model(model, {0})); }) == 7);
    kiln::buffer weights(context, {2}, vector{1, 2});
    auto record = [&](const kiln::recorder &in, std::size_t) {
        kiln::tensor w = in.import(weights);
        return kiln::grad(kiln::sum(w), {w});
    };
    auto update = [](const kiln::recorder &, std::size_t, const std::vector<kiln::tensor> &) {};
    kiln::training at_once{
        1,
        [](const kiln::recorder &, std::size_t) -> std::vector<kiln::tensor> { throw thrown{8}; },
        update,
        {}};
    kiln::training later{1,
                         record,
                         [](const kiln::recorder &, std::size_t,
                            const std::vector<kiln::tensor> &) { throw thrown{9}; },
                         {}};
    EXPECT(thrown_by([&] { kiln::parallel({context}, at_once); }) == 8);
    EXPECT(thrown_by([&] { kiln::parallel({context}, later); }) == 9);
    kiln::training good{1, record, update, {}};
    EXPECT(thrown_by([&] { kiln::parallel({context}, good); }) == 0); // nothing is left
}
#else
static void throw_through(const kiln::context &)
{
}
#endif

static void fail(const kiln::context &context)
{
    const vector data{1, 2, 3};
#ifdef KILN_EXCEPTIONS
    std::string said;
    kiln_status code = KILN_OK;
    auto caught = [&](auto call) {
        said.clear();
        try {
            call();
        } catch (const kiln::error &thrown) {
            said = thrown.what();
            code = thrown.code();
        }
        return said;
    };
    kiln::batch b(context);
    kiln::tensor x = b.upload({3}, data), y = b.iota({2}, 0);
    EXPECT(caught([&] { x + kiln::cast(y, KILN_F32); }) ==
           "kiln_add, call 4: shapes [3] and [2] do not broadcast");
    EXPECT(code == KILN_SHAPE_MISMATCH);
    EXPECT(caught([&] { b.execute(); }) == "kiln_add, call 4: shapes [3] and [2] do not broadcast");
    EXPECT(caught([&] { kiln::load(context, missing_path("nowhere"), {"x"}); }).find("/nowhere") !=
           std::string::npos);
    EXPECT(caught([&] { kiln::buffer(context, {4}, data); }) ==
           "kiln::buffer: 3 elements for shape [4]");
    kiln::batch wide(context);
    EXPECT(caught([&] {
               wide.upload({2, 2}, data);
           }) == "kiln::recorder::upload: 3 elements for shape [2,2]");
    kiln::buffer bytes(context, KILN_U8, {5});
    EXPECT(caught([&] { bytes.write(vector{1}); }).find("kiln::buffer::write") == 0);
    kiln::model model{
        {kiln::row(KILN_F32, {4})},
        1,
        [](const kiln::recorder &, const std::vector<kiln::tensor> &inputs, std::size_t,
           std::size_t) { return std::vector<kiln::tensor>{kiln::matmul(inputs[0], inputs[0])}; }};
    EXPECT(caught([&] { kiln::executor({context}, model); }).find("kiln_matmul") !=
           std::string::npos);
#else
    kiln::batch b(context);
    kiln::tensor x = b.upload({3}, data), y = b.iota({2}, 0);
    EXPECT(!(x + kiln::cast(y, KILN_F32)));
    EXPECT(!kiln::exp(x)); // nothing is recorded any more
    EXPECT(b.status() == KILN_SHAPE_MISMATCH && b.execute() == KILN_SHAPE_MISMATCH);
    EXPECT(!std::strcmp(b.error(), "kiln_add, call 4: shapes [3] and [2] do not broadcast"));
    EXPECT(!b.reset() && !b.status());
    EXPECT(!b.upload({4}, data));
    EXPECT(!std::strcmp(b.error(), "kiln::recorder::upload: 3 elements for shape [4]"));
    EXPECT(b.execute() == KILN_INVALID_ARGUMENT);
    EXPECT(!std::strcmp(kiln_last_error(), b.error()));
    EXPECT(!b.reset());
    EXPECT(!b.upload({1, 1, 1, 1, 1, 1, 1, 1, 1}, data));
    EXPECT(kiln::load(context, missing_path("nowhere"), {"x"}).empty());
    EXPECT(!kiln::buffer(context, {4}, data));
    EXPECT(!std::strcmp(kiln_last_error(), "kiln::buffer: 3 elements for shape [4]"));
    kiln::buffer bytes(context, KILN_U8, {5}), floats(context, {3}, data), none;
    vector found;
    std::vector<std::int32_t> whole(3);
    EXPECT(bytes.write(vector{1}) == KILN_INVALID_ARGUMENT);
    EXPECT(bytes.write(std::vector<std::uint8_t>(4)) == KILN_INVALID_ARGUMENT);
    EXPECT(!bytes.write(std::vector<std::uint8_t>(5)));
    EXPECT(floats.write(whole) == KILN_INVALID_ARGUMENT);
    EXPECT(floats.read(whole) == KILN_INVALID_ARGUMENT);
    EXPECT(bytes.read(found) == KILN_INVALID_ARGUMENT);
    EXPECT(none.write(data) == KILN_INVALID_ARGUMENT && none.read(found) == KILN_INVALID_ARGUMENT);
    kiln::buffer truths(context, KILN_BOOL, {2}), halves(context, KILN_F16, {2});
    EXPECT(!truths.write(std::vector<std::uint8_t>{0, 1}));
    EXPECT(!halves.write(std::vector<std::uint16_t>{0, 1}));
    kiln::context_options options;
    options.device = "no such device";
    EXPECT(!kiln::context(options));
#endif
}

int main()
{
    kiln::context context;
    if (!context) {
        std::puts(kiln_last_error());
        return 77;
    }
    describe(context);
    compute(context);
    keep(context);
    serve(context);
    serve_ready(context);
    train(context);
    wait(context);
    throw_through(context);
    fail(context);
#ifdef KILN_EXCEPTIONS
    lack_memory(context);
#endif
    EXPECT(!context.finish());
    return faults != 0;
}
