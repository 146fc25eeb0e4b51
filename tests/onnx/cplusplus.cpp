/* SPDX-License-Identifier: Apache-2.0 */
/* kiln/onnx.hpp: tests/pages/test_cplusplus.sh compiles it with exceptions and without. Says what is
 * wrong, and nothing if all is right. */
#include <cstdio>
#include <cstring>

#include <kiln/onnx.hpp>

#include "../support/expect.hpp"
#include "../support/missing.h"

using vector = std::vector<float>;

// ---- a file, as protobuf has it: short fields only ----

static std::string field(int number, const std::string &content)
{
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(content.size())} +
           content;
}

static std::string number(int field, int value)
{
    return {static_cast<char>(field << 3), static_cast<char>(value)};
}

/* A float tensor's name and type, of [rows, 2]. */
static std::string value(const char *name)
{
    std::string dims = field(1, field(2, "rows")) + field(1, number(1, 2));
    return field(1, name) + field(2, field(1, number(1, 1) + field(2, dims)));
}

/* y = op(x) */
static std::string model_of(const char *op)
{
    std::string node = field(1, "x") + field(2, "y") + field(4, op);
    std::string graph =
        field(1, node) + field(2, "test") + field(11, value("x")) + field(12, value("y"));
    return number(1, 8) + field(7, graph) + field(8, number(2, 13));
}

static void run(const kiln::context &context, const kiln::onnx_model &model)
{
    const vector data{-1, 2, 3, -4}, small{-5, 6};
    vector found;
    std::vector<kiln::array> results = model.run({kiln::borrow({2, 2}, data)});
    EXPECT(results.size() == 1 && !results[0].read(found));
    EXPECT((found == vector{0, 2, 3, 0} && results[0].shape() == kiln::shape{2, 2}));
    EXPECT(results[0].type() == KILN_F32 && results[0].data());

    kiln::model_lease lease = model.lease({kiln::borrow({1, 2}, small)});
    EXPECT(lease && !lease.write(0, small) && !lease.execute() && !lease.read(0, found));
    EXPECT((found == vector{0, 6} && lease.output(0).dims[0] == 1));
    EXPECT(!lease.write(0, vector{7, -8}) && !lease.submit().wait() && !lease.read(0, found));
    EXPECT((found == vector{7, 0}));
    EXPECT(!lease.batch().status() && lease.input(0).rank == 2);
    vector elsewhere(2);
    EXPECT(!lease.rebind_read(0, elsewhere) && !lease.write(0, vector{1, 2}) && !lease.execute());
    EXPECT((elsewhere == vector{1, 2} && !lease.read(0, found) && found == vector{7, 0}));

    kiln::batch b(context);
    std::vector<kiln::tensor> y = model.record(b, {b.upload({2, 2}, data) * 2});
    EXPECT(y.size() == 1);
    y[0].read(found);
    EXPECT(!b.execute());
    EXPECT((found == vector{0, 4, 6, 0}));
}

static void fail(const kiln::context &context, const kiln::onnx_model &model)
{
    const vector data{1, 2};
    std::string unknown = model_of("Nonsense");
#ifdef KILN_EXCEPTIONS
    std::string said;
    try {
        kiln::onnx_model(context, unknown.data(), unknown.size());
    } catch (const kiln::error &thrown) {
        said = thrown.what();
    }
    EXPECT(said.find("Nonsense") != std::string::npos);
    try {
        model.run({});
    } catch (const kiln::error &thrown) {
        said = thrown.what();
    }
    EXPECT(said.find("kiln::onnx_model") == 0);
#else
    std::vector<std::int32_t> whole;
    EXPECT(!kiln::onnx_model(context, unknown.data(), unknown.size()));
    EXPECT(!kiln::onnx_model(context, missing_path("nowhere")));
    EXPECT(model.run({}).empty() && !model.lease({}));
    EXPECT(!std::strncmp(kiln_last_error(), "kiln::onnx_model", 16));
    EXPECT(model.run({kiln::borrow({1, 3}, data)}).empty());
    std::vector<kiln::array> results = model.run({kiln::borrow({1, 2}, data)});
    EXPECT(results.size() == 1 && results[0].read(whole) == KILN_INVALID_ARGUMENT);
    kiln::model_lease lease = model.lease({kiln::borrow({1, 2}, data)});
    EXPECT(lease && lease.write(0, vector{1}) == KILN_INVALID_ARGUMENT);
    kiln::batch b(context);
    EXPECT(model.record(b, {}).empty() && model.record(b, {b.fill({2, 3}, 1)}).empty());
    kiln::onnx_model none;
    EXPECT(none.inputs().empty() && none.notes().empty() && none.run({}).empty());
#endif
}

int main()
{
    kiln::context context;
    if (!context) {
        std::puts(kiln_last_error());
        return 77;
    }
    std::string file = model_of("Relu");
    kiln::onnx_model model(context, file.data(), file.size());
    EXPECT(model && model.inputs().size() == 1 && model.outputs().size() == 1);
    EXPECT(!std::strcmp(model.inputs()[0].name, "x") && model.notes().empty());
    EXPECT(kiln::model_operators().size() > 150);
    run(context, model);
    fail(context, model);
    return faults != 0;
}
