/* SPDX-License-Identifier: Apache-2.0 */
/* Loops and scans whose body is recorded once: as many turns as the device says, their gradients,
 * and what has to be unrolled. Beside ONNX Runtime they run in check-onnx. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/context.h"
#include "tests/onnx/models.h"

enum { ROWS = 2, WIDE = 3 };

TestSuite(onnx_loops, .init = begin_models, .fini = end_models);

static const float weights[WIDE * WIDE] = {0.5f,  -0.25f, 0.125f, 0.25f, 0.5f,
                                           0.25f, -0.5f,  0.125f, 0.375f};
static const float start[ROWS * WIDE] = {1, -0.5f, 0.25f, 0.75f, 2, -1};

/* Of an operator, the carried s and x of the model to s2, a node at a time; all is collected if
 * asked for. */
static Onnx__GraphProto *body_of(const char *op, const char *inputs, bool collects)
{
    Onnx__GraphProto *body = new_graph();
    graph_input(body, "turn");
    graph_input(body, "on");
    graph_input(body, "s");
    graph_node(body, new_node("Identity", "on", "on2"));
    graph_node(body, new_node(op, inputs, "part"));
    graph_node(body, new_node("Tanh", "part", "s2"));
    graph_output(body, "on2");
    graph_output(body, "s2");
    if (collects) {
        graph_node(body, new_node("Neg", "s2", "one"));
        graph_output(body, "one");
    }
    return body;
}

/* x carried through so many turns of tanh(s w); -1: an input says how many. */
static kiln_onnx_model *model_of(int64_t turns, const char *op, const char *inputs, bool collects)
{
    Onnx__ModelProto *proto = new_model(17);
    add_input(proto, "x", FLOAT, "2 3");
    add_floats(proto, "w", "3 3", weights);
    if (turns < 0)
        add_input(proto, "turns", INT64, "");
    else
        add_integers(proto, "turns", "", &turns);
    add_output(proto, collects ? "all" : "y", FLOAT, NULL);
    set_graph(add_node(proto, "Loop", "turns - x", collects ? "y all" : "y"), "body",
              body_of(op, inputs, collects));
    kiln_onnx_model *model;
    expect_ok(load_model(context, proto, NULL, &model));
    return model;
}

static void turn_host(double *s, int turns)
{
    for (int t = 0; t < turns; t++) {
        double next[ROWS * WIDE] = {0};
        for (int i = 0; i < ROWS * WIDE * WIDE; i++)
            next[i / WIDE / WIDE * WIDE + i % WIDE] +=
                s[i / WIDE] * (double)weights[i / WIDE % WIDE * WIDE + i % WIDE];
        for (int i = 0; i < ROWS * WIDE; i++)
            s[i] = tanh(next[i]);
    }
}

static void expect_turned(const float *y, int turns)
{
    double wanted[ROWS * WIDE];
    for (int i = 0; i < ROWS * WIDE; i++)
        wanted[i] = (double)start[i];
    turn_host(wanted, turns);
    for (int i = 0; i < ROWS * WIDE; i++)
        cr_expect_float_eq((double)y[i], wanted[i], 1e-6, "%d turns, %d: %g, not %g", turns, i,
                           (double)y[i], wanted[i]);
}

static const size_t dims[] = {ROWS, WIDE};

/* A turn stands in it once, and runs as often as it is asked for. */
Test(onnx_loops, record_a_body_once)
{
    static const int counts[] = {17, 500, 100000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        kiln_onnx_model *model = model_of(counts[i], "MatMul", "s w", false);
        kiln_batch *batch = kiln_batch_create(context);
        kiln_tensor x = kiln_upload(batch, KILN_F32, 2, dims, start), y;
        float got[ROWS * WIDE];
        expect_ok(kiln_model_record(model, batch, &x, NULL, &y));
        expect_ok(kiln_read(batch, y, got, sizeof got));
        cr_expect_eq(explains(batch, "a part that runs"), counts[i] > 500);
        run_batch(batch);
        expect_turned(got, counts[i]);
        kiln_batch_release(batch);
        kiln_model_release(model);
    }
}

/* The number of turns is a tensor: it may be another in each run, and none or fewer. */
Test(onnx_loops, turn_as_often_as_a_tensor_says)
{
    static const char *const bodies[][2] = {{"MatMul", "s w"}, {"Identity", "s"}};
    for (size_t b = 0; b < 2; b++) {
        kiln_onnx_model *model = model_of(-1, bodies[b][0], bodies[b][1], false);
        kiln_batch *batch = kiln_batch_create(context);
        int64_t turns = 3;
        kiln_tensor y;
        const kiln_tensor in[] = {kiln_upload(batch, KILN_F32, 2, dims, start),
                                  kiln_upload(batch, KILN_I64, 0, NULL, &turns)};
        float got[ROWS * WIDE];
        expect_ok(kiln_model_record(model, batch, in, NULL, &y));
        expect_ok(kiln_read(batch, y, got, sizeof got));
        static const int64_t counts[] = {3, 0, 1, 64, 65, -5, 200};
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            int64_t other = counts[i];
            expect_ok(kiln_rebind_upload(batch, in[1], &other));
            run_batch(batch);
            if (b == 0)
                expect_turned(got, other < 0 ? 0 : (int)other);
            for (int64_t k = 0; b && k < ROWS * WIDE; k++) {
                double wanted = (double)start[k];
                for (int64_t t = 0; t < other; t++)
                    wanted = tanh(wanted);
                cr_expect_float_eq((double)got[k], wanted, 1e-5);
            }
        }
        kiln_batch_release(batch);
        kiln_model_release(model);
    }
}

static double sum_after(int turns, int changed, double by)
{
    double s[ROWS * WIDE], sum = 0;
    for (int i = 0; i < ROWS * WIDE; i++)
        s[i] = (double)start[i] + (i == changed ? by : 0);
    turn_host(s, turns);
    for (int i = 0; i < ROWS * WIDE; i++)
        sum += s[i];
    return sum;
}

Test(onnx_loops, have_gradients)
{
    enum { TURNS = 20 };
    kiln_onnx_model *model = model_of(TURNS, "MatMul", "s w", false);
    kiln_batch *batch = kiln_batch_create(context);
    kiln_tensor x = kiln_upload(batch, KILN_F32, 2, dims, start), y, gradient;
    float got[ROWS * WIDE];
    expect_ok(kiln_model_record(model, batch, &x, NULL, &y));
    expect_ok(kiln_grad(batch, kiln_sum(batch, y, 0, NULL, 0), &x, 1, &gradient));
    expect_ok(kiln_read(batch, gradient, got, sizeof got));
    run_batch(batch);
    for (int i = 0; i < ROWS * WIDE; i++) {
        const double wanted = (sum_after(TURNS, i, 1e-4) - sum_after(TURNS, i, -1e-4)) / 2e-4;
        cr_expect_float_eq((double)got[i], wanted, 1e-5 + 1e-3 * fabs(wanted), "%d: %g, not %g", i,
                           (double)got[i], wanted);
    }
    kiln_batch_release(batch);
    kiln_model_release(model);
}

static void expect_refusal(kiln_onnx_model *model, const char *sentence)
{
    kiln_batch *batch = kiln_batch_create(context);
    int64_t turns = 3;
    kiln_tensor y;
    const kiln_tensor in[] = {kiln_upload(batch, KILN_F32, 2, dims, start),
                              kiln_upload(batch, KILN_I64, 0, NULL, &turns)};
    expect_error(kiln_model_record(model, batch, in, NULL, &y), KILN_UNSUPPORTED, sentence);
    kiln_batch_release(batch);
    kiln_model_release(model);
}

/* What only the device counts cannot be unrolled. */
Test(onnx_loops, say_why_a_body_cannot_be_recorded_once)
{
    expect_refusal(model_of(-1, "MatMul", "s w", true),
                   "node 'y' (Loop): its number of turns is not known when the model is recorded, "
                   "and it collects a value of each turn");
    expect_refusal(model_of(-1, "Reshape", "s turn", false),
                   "node 'y' (Loop): its number of turns is not known when the model is recorded, "
                   "and node 'part' (Reshape): operand 1, 'turn', decides about shapes, and is not "
                   "known when the model is recorded");
    expect_refusal(model_of(-1, "Transpose", "s", false),
                   "node 'y' (Loop): its number of turns is not known when the model is recorded, "
                   "and what it carries does not keep its type and shape");
}

/* ---- what shapes decide ---- */

static Onnx__GraphProto *branch(const char *op)
{
    Onnx__GraphProto *graph = new_graph();
    char name[16];
    snprintf(name, sizeof name, "%s_y", op);
    graph_node(graph, new_node(op, "x", name)); /* of the graph around it */
    graph_output(graph, name);
    return graph;
}

/* neg(x) if it has 2 rows, else abs(x). */
Test(onnx_loops, records_the_branch_that_shapes_choose)
{
    Onnx__ModelProto *proto = new_model(13);
    add_input(proto, "x", FLOAT, "n");
    add_output(proto, "y", FLOAT, NULL);
    add_integers(proto, "two", "1", (const int64_t[]){2});
    add_node(proto, "Shape", "x", "shape");
    add_node(proto, "Equal", "shape two", "is_two");
    Onnx__NodeProto *node = add_node(proto, "If", "is_two", "y");
    set_graph(node, "then_branch", branch("Neg"));
    set_graph(node, "else_branch", branch("Abs"));
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(2), (const float[]){1, -2}, DIMS(2), (const float[]){-1, 2});
    expect_floats(model, DIMS(3), (const float[]){1, -2, 3}, DIMS(3), (const float[]){1, 2, 3});
    kiln_model_release(model);
}

/* x doubled three times, and each of the steps. */
Test(onnx_loops, unrolls_loops)
{
    Onnx__ModelProto *proto = new_model(13);
    add_input(proto, "x", FLOAT, "2");
    add_output(proto, "steps", FLOAT, NULL);
    add_integers(proto, "turns", "", (const int64_t[]){3});
    Onnx__GraphProto *body = new_graph();
    graph_input(body, "turn");
    graph_input(body, "go_on");
    graph_input(body, "state");
    graph_node(body, new_node("Identity", "go_on", "still"));
    graph_node(body, new_node("Add", "state state", "doubled"));
    graph_node(body, new_node("Identity", "doubled", "step"));
    graph_output(body, "still");
    graph_output(body, "doubled");
    graph_output(body, "step");
    set_graph(add_node(proto, "Loop", "turns - x", "y steps"), "body", body);
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(2), (const float[]){1, -2}, DIMS(3, 2),
                  (const float[]){2, -4, 4, -8, 8, -16});
    kiln_model_release(model);
}

/* Sums of 0 to 65535 and the number of the turn, each in an array of its own; of each turn the
 * second element is collected. What is outside of the loop, collected or carried stays meanwhile.
 */
Test(onnx_loops, frees_what_turns_of_loops_knew)
{
    enum { TURNS = 600 };
    Onnx__ModelProto *proto = new_model(17);
    add_input(proto, "x", FLOAT, "1");
    add_output(proto, "y", FLOAT, NULL);
    add_integers(proto, "turns", "", (const int64_t[]){TURNS});
    add_integers(proto, "zero", "", (const int64_t[]){0});
    add_integers(proto, "one", "", (const int64_t[]){1});
    add_integers(proto, "end", "", (const int64_t[]){65536});
    add_node(proto, "Range", "zero end one", "table");
    add_node(proto, "Identity", "zero", "start");
    Onnx__GraphProto *body = new_graph();
    graph_input(body, "turn");
    graph_input(body, "on");
    graph_input(body, "carried");
    graph_node(body, new_node("Identity", "on", "again"));
    graph_node(body, new_node("Add", "table turn", "sums"));
    graph_node(body, new_node("Gather", "sums one", "element"));
    graph_node(body, new_node("Add", "carried element", "total"));
    graph_node(body, new_node("Identity", "total", "next"));
    graph_output(body, "again");
    graph_output(body, "next");
    graph_output(body, "element");
    set_graph(add_node(proto, "Loop", "turns - start", "total_of_all elements"), "body", body);
    add_node(proto, "Gather", "elements one", "second");
    add_node(proto, "Gather", "table one", "first");
    add_node(proto, "Sum", "total_of_all second first", "sum");
    set_int(add_node(proto, "Cast", "sum", "number"), "to", FLOAT);
    add_node(proto, "Mul", "x number", "y");
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(1), (const float[]){1}, DIMS(1),
                  (const float[]){TURNS * (TURNS + 1) / 2 + 2 + 1});
    kiln_model_release(model);
}

/* Sums along rows from their end, and each of the steps, the last one first. */
Test(onnx_loops, unrolls_scans)
{
    Onnx__ModelProto *proto = new_model(13);
    add_input(proto, "x", FLOAT, "2 n");
    add_output(proto, "steps", FLOAT, NULL);
    add_floats(proto, "zero", "2", (const float[]){0, 0});
    Onnx__GraphProto *body = new_graph();
    graph_input(body, "state");
    graph_input(body, "element");
    graph_node(body, new_node("Add", "state element", "sum"));
    graph_node(body, new_node("Identity", "sum", "step"));
    graph_output(body, "sum");
    graph_output(body, "step");
    Onnx__NodeProto *node = add_node(proto, "Scan", "zero x", "y steps");
    set_graph(node, "body", body);
    set_int(node, "num_scan_inputs", 1);
    set_ints(node, "scan_input_axes", 1, (const int64_t[]){-1});
    set_ints(node, "scan_input_directions", 1, (const int64_t[]){1});
    set_ints(node, "scan_output_axes", 1, (const int64_t[]){1});
    set_ints(node, "scan_output_directions", 1, (const int64_t[]){1});
    kiln_onnx_model *model = loaded(proto);
    expect_floats(model, DIMS(2, 3), (const float[]){1, 2, 3, 4, 5, 6}, DIMS(2, 3),
                  (const float[]){6, 5, 3, 15, 11, 6});
    expect_floats(model, DIMS(2, 1), (const float[]){1, 2}, DIMS(2, 1), (const float[]){1, 2});
    kiln_model_release(model);
}
