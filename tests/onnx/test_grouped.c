/* SPDX-License-Identifier: Apache-2.0 */
/* GroupQueryAttention, whose cache grows or has room: known answers of ONNX Runtime, caches that
 * are written in place, and what is refused. `make check-onnx` has more of them. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include <kiln/kiln.h>

#include "support/context.h"
#include "tests/onnx/models.h"

TestSuite(onnx_grouped, .init = begin_models, .fini = end_models);

#define INT32 ONNX__TENSOR_PROTO__DATA_TYPE__INT32

enum { HEADS = 2, SIZE = 16, WIDTH = HEADS * SIZE, ROOM = 9, MOST = 256 };

static float *numbers(size_t n, int seed, float *x)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((int)((i * 29 + (size_t)seed * 17) % 64) - 31) / 32;
    return x;
}

/* Operands are all inputs but for the angles; heads share one head of keys. */
#define MOST_INPUTS "q k v past_k past_v lengths total cosine sine"

static Onnx__NodeProto *make_with(Onnx__ModelProto *proto, const char *inputs)
{
    float angles[128];
    add_input(proto, "q", FLOAT, "b rows 32");
    add_input(proto, "k", FLOAT, "b rows 16");
    add_input(proto, "v", FLOAT, "b rows 16");
    add_input(proto, "past_k", FLOAT, "b 1 past 16");
    add_input(proto, "past_v", FLOAT, "b 1 past 16");
    add_input(proto, "lengths", INT32, "b");
    add_input(proto, "total", INT32, "");
    add_output(proto, "y", FLOAT, NULL);
    add_output(proto, "keys", FLOAT, NULL);
    add_output(proto, "values", FLOAT, NULL);
    add_floats(proto, "cosine", "16 8", numbers(128, 6, angles));
    add_floats(proto, "sine", "16 8", numbers(128, 7, angles));
    Onnx__NodeProto *node = add_node(proto, "GroupQueryAttention", inputs, "y keys values");
    node->domain = (char *)"com.microsoft";
    set_int(node, "num_heads", HEADS);
    set_int(node, "kv_num_heads", 1);
    set_int(node, "do_rotary", 1);
    return node;
}

static Onnx__NodeProto *make(Onnx__ModelProto *proto)
{
    return make_with(proto, MOST_INPUTS);
}

static kiln_onnx_model *load(const Onnx__ModelProto *proto)
{
    kiln_onnx_model *model;
    expect_ok(load_model(context, proto, NULL, &model));
    return model;
}

/* One text's arrays: `rows` new ones after `past` keys, of which so many count. */
struct step {
    float q[MOST], k[MOST], v[MOST], past_k[MOST], past_v[MOST];
    int32_t length, total;
    kiln_array in[7], out[3];
};

static void set(struct step *s, size_t rows, size_t past, int32_t length, int32_t total)
{
    s->length = length - 1;
    s->total = total;
    const kiln_array in[] = {{KILN_F32, 3, {1, rows, WIDTH}, s->q},
                             {KILN_F32, 3, {1, rows, SIZE}, s->k},
                             {KILN_F32, 3, {1, rows, SIZE}, s->v},
                             {KILN_F32, 4, {1, 1, past, SIZE}, s->past_k},
                             {KILN_F32, 4, {1, 1, past, SIZE}, s->past_v},
                             {KILN_I32, 1, {1}, &s->length},
                             {KILN_I32, 0, {0}, &s->total}};
    memcpy(s->in, in, sizeof in);
}

static void end(struct step *s)
{
    for (size_t i = 0; i < 3; i++)
        kiln_free(s->out[i].data);
}

static void expect_near(const char *what, const float *found, const float *wanted, size_t n)
{
    for (size_t i = 0; i < n; i++)
        cr_assert_float_eq(found[i], wanted[i], 1e-5, "%s %zu: %g, not %g", what, i,
                           (double)found[i], (double)wanted[i]);
}

/* ---- what ONNX Runtime 1.32 gives for two rows after three ---- */

static const struct {
    int64_t window;
    float cap;
    float y[2 * WIDTH];
} known[] = {
    {-1, 0, {0.3088613F,   -0.3238603F,  0.1213613F,   0.01156367F,  -0.06613868F, -0.1759363F,
             -0.2536387F,  0.193156F,    0.01988968F,  0.4651113F,   -0.1676103F,  0.2776113F,
             -0.3551103F,  0.09011129F,  -0.01968634F, -0.09738871F, 0.3494977F,   -0.3307914F,
             0.1619977F,   -0.09790922F, -0.02550228F, -0.2854092F,  -0.2130023F,  0.3647327F,
             0.01295855F,  0.5057477F,   -0.1745414F,  0.3182477F,   -0.3620414F,  0.1307477F,
             -0.1291592F,  -0.05675228F, -0.05353923F, -0.2265548F,  0.3600092F,   -0.006366367F,
             0.1725092F,   -0.1938664F,  -0.01499082F, -0.07080488F, 0.1171952F,   0.1027108F,
             -0.07030483F, -0.08478922F, -0.2578048F,  0.3287592F,   -0.03761635F, 0.1412592F,
             0.1438748F,   -0.2970706F,  0.3452165F,   -0.1234234F,  0.1577165F,   -0.3109234F,
             -0.02978348F, 0.06395543F,  0.04667949F,  0.3001248F,   -0.1408205F,  0.1126248F,
             -0.3283206F,  0.3139665F,   -0.1546734F,  0.1264665F}},
    {2, 0, {0.6532624F,  -0.4404876F, 0.4657624F,   -0.6279876F,  0.2782624F,  -0.8154875F,
            0.09076241F, 0.09261532F, -0.09673759F, 0.8095124F,   -0.2842376F, 0.6220124F,
            -0.4717376F, 0.4345124F,  -0.6592376F,  0.2470124F,   0.6426067F,  -0.4511433F,
            0.4551067F,  -0.6386433F, 0.2676067F,   -0.8261433F,  0.08010671F, 0.4229421F,
            -0.1073933F, 0.7988567F,  -0.2948933F,  0.6113567F,   -0.4823933F, 0.4238567F,
            -0.6698933F, 0.2363567F,  -0.3639895F,  -0.1390868F,  0.7671632F,  -0.3265868F,
            0.5796632F,  -0.5140868F, 0.3921632F,   -0.02023949F, 0.2046632F,  -0.2077395F,
            0.01716317F, -0.3952396F, -0.1703368F,  0.7359132F,   -0.3578368F, 0.5484132F,
            0.01182718F, -0.2643591F, 0.6418909F,   -0.4518591F,  0.4543909F,  -0.6393591F,
            0.2668909F,  0.3555772F,  0.07939094F,  0.1680772F,   -0.1081091F, -0.01942282F,
            -0.2956091F, 0.6106409F,  -0.4831091F,  0.4231409F}},
    {-1, 2, {0.3088067F,   -0.3237958F,  0.1213067F,   0.01163947F,  -0.06619328F, -0.1758605F,
             -0.2536933F,  0.1929827F,   0.0199542F,   0.4650567F,   -0.1675458F,  0.2775567F,
             -0.3550458F,  0.09005672F,  -0.01961054F, -0.09744328F, 0.3448075F,   -0.3284318F,
             0.1573075F,   -0.08840257F, -0.0301925F,  -0.2759026F,  -0.2176925F,  0.3543524F,
             0.0153182F,   0.5010575F,   -0.1721818F,  0.3135575F,   -0.3596818F,  0.1260575F,
             -0.1196526F,  -0.06144251F, -0.04946756F, -0.2277457F,  0.3571701F,   -0.005745195F,
             0.1696701F,   -0.1932452F,  -0.0178299F,  -0.06857585F, 0.1160043F,   0.1067824F,
             -0.07149573F, -0.08071757F, -0.2589957F,  0.3259201F,   -0.03699519F, 0.1384201F,
             0.1430051F,   -0.2963274F,  0.3445929F,   -0.1224425F,  0.1570929F,   -0.3099425F,
             -0.0304071F,  0.06284549F,  0.04742257F,  0.2992551F,   -0.1400774F,  0.1117551F,
             -0.3275774F,  0.3133429F,   -0.1536925F,  0.1258429F}}};

static const float known_keys[2 * SIZE] = {
    0.3251953F,  1.023438F,   0.2841797F,  0.6074219F,   -0.006835938F, 0.1914062F,  0.3271484F,
    0.4003906F,  0.06738281F, -0.375F,     0.1552734F,   -0.5917969F,   -0.4287109F, -0.6679688F,
    -0.4345703F, 0.2714844F,  -0.5029297F, -0.5546875F,  -0.5439453F,   -0.2207031F, -0.1474609F,
    0.1132812F,  -0.5634766F, -0.4277344F, -0.02636719F, -0.234375F,    0.1552734F,  -0.3574219F,
    -0.5849609F, -0.3398438F, -0.4970703F, 0.005859375F};

Test(onnx_grouped, is_that_of_onnx_runtime)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        static struct step s;
        Onnx__ModelProto *proto = new_model(21);
        Onnx__NodeProto *node = make(proto);
        set_int(node, "local_window_size", known[i].window);
        set_float(node, "softcap", known[i].cap);
        kiln_onnx_model *model = load(proto);
        numbers(2 * WIDTH, 1, s.q);
        numbers(2 * SIZE, 2, s.k);
        numbers(2 * SIZE, 3, s.v);
        numbers(3 * SIZE, 4, s.past_k);
        numbers(3 * SIZE, 5, s.past_v);
        set(&s, 2, 3, 5, 5);
        expect_ok(kiln_model_run(model, s.in, s.out));
        expect_near("y", s.out[0].data, known[i].y, 2 * WIDTH);
        cr_assert_eq(s.out[1].dims[2], 5);
        expect_near("old key", s.out[1].data, s.past_k, 3 * SIZE);
        expect_near("key", (float *)s.out[1].data + 3 * SIZE, known_keys, 2 * SIZE);
        expect_near("old value", s.out[2].data, s.past_v, 3 * SIZE);
        expect_near("value", (float *)s.out[2].data + 3 * SIZE, s.v, 2 * SIZE);
        end(&s);
        kiln_model_release(model);
    }
}

/* ---- places and biases that are operands ---- */

/* Two rows after three, with an operand more. */
static void run_with(const char *inputs, const kiln_array *more, struct step *s)
{
    kiln_array in[8];
    Onnx__ModelProto *proto = new_model(21);
    make_with(proto, inputs);
    if (more->type == KILN_I64)
        add_input(proto, "places", ONNX__TENSOR_PROTO__DATA_TYPE__INT64, "b rows");
    else
        add_input(proto, "bias", FLOAT, "one heads rows n");
    kiln_onnx_model *model = load(proto);
    numbers(2 * WIDTH, 1, s->q);
    numbers(2 * SIZE, 2, s->k);
    numbers(2 * SIZE, 3, s->v);
    numbers(3 * SIZE, 4, s->past_k);
    numbers(3 * SIZE, 5, s->past_v);
    set(s, 2, 3, 5, 5);
    memcpy(in, s->in, sizeof s->in);
    in[7] = *more;
    expect_ok(kiln_model_run(model, in, s->out));
    kiln_model_release(model);
}

/* The places that rows have anyway, and others, by which keys are turned. */
Test(onnx_grouped, rows_are_turned_by_their_places)
{
    static struct step s;
    float cosine[128], sine[128];
    int64_t places[] = {3, 4};
    const kiln_array operand = {KILN_I64, 2, {1, 2}, places};
    numbers(128, 6, cosine);
    numbers(128, 7, sine);
    run_with(MOST_INPUTS " places", &operand, &s);
    expect_near("y", s.out[0].data, known[0].y, 2 * WIDTH);
    end(&s);
    places[0] = 7;
    places[1] = 1;
    run_with(MOST_INPUTS " places", &operand, &s);
    for (size_t row = 0; row < 2; row++)
        for (size_t i = 0; i < SIZE / 2; i++) {
            const float *k = s.k + row * SIZE, *key = (float *)s.out[1].data + (3 + row) * SIZE;
            const float c = cosine[8 * places[row] + (int64_t)i],
                        d = sine[8 * places[row] + (int64_t)i];
            cr_assert_float_eq(key[i], k[i] * c - k[i + SIZE / 2] * d, 1e-5);
            cr_assert_float_eq(key[i + SIZE / 2], k[i + SIZE / 2] * c + k[i] * d, 1e-5);
        }
    end(&s);
}

/* A bias that leaves each row of each head one key gives that key's value; one number for all keys
 * changes nothing. */
Test(onnx_grouped, biases_are_added)
{
    enum { KEYS = 5 };
    static struct step s;
    float bias[HEADS * 2 * KEYS];
    const kiln_array operand = {KILN_F32, 4, {1, HEADS, 2, KEYS}, bias};
    for (size_t i = 0; i < HEADS * 2 * KEYS; i++)
        bias[i] = 2.5F;
    run_with(MOST_INPUTS " - bias", &operand, &s);
    expect_near("y", s.out[0].data, known[0].y, 2 * WIDTH);
    end(&s);
    for (size_t head = 0; head < HEADS; head++)
        for (size_t row = 0; row < 2; row++)
            for (size_t key = 0; key < KEYS; key++)
                bias[(head * 2 + row) * KEYS + key] = key == head + 2 * row ? 1 : -INFINITY;
    run_with(MOST_INPUTS " - bias", &operand, &s);
    for (size_t head = 0; head < HEADS; head++)
        for (size_t row = 0; row < 2; row++)
            expect_near("y", (float *)s.out[0].data + row * WIDTH + head * SIZE,
                        (float *)s.out[2].data + (head + 2 * row) * SIZE, SIZE);
    end(&s);
}

/* A cache may have room for more texts than go on: these are the first ones, others stay. */
Test(onnx_grouped, caches_have_room_for_other_texts)
{
    static struct step s, more;
    enum { KEYS = 5, TEXTS = 2 };
    Onnx__ModelProto *proto = new_model(21);
    make(proto);
    kiln_onnx_model *model = load(proto);
    for (struct step *each = &s; each; each = each == &s ? &more : NULL) {
        numbers(2 * WIDTH, 1, each->q);
        numbers(2 * SIZE, 2, each->k);
        numbers(2 * SIZE, 3, each->v);
        numbers(KEYS * TEXTS * SIZE, 4, each->past_k);
        numbers(KEYS * TEXTS * SIZE, 5, each->past_v);
        set(each, 2, KEYS, 5, KEYS);
    }
    more.in[3].dims[0] = more.in[4].dims[0] = TEXTS;
    expect_ok(kiln_model_run(model, s.in, s.out));
    expect_ok(kiln_model_run(model, more.in, more.out));
    expect_near("y", more.out[0].data, s.out[0].data, 2 * WIDTH);
    cr_assert(more.out[1].dims[0] == TEXTS && more.out[2].dims[0] == TEXTS);
    expect_near("key", more.out[1].data, s.out[1].data, KEYS * SIZE);
    expect_near("other key", (float *)more.out[1].data + KEYS * SIZE, more.past_k + KEYS * SIZE,
                KEYS * SIZE);
    expect_near("other value", (float *)more.out[2].data + KEYS * SIZE, more.past_v + KEYS * SIZE,
                KEYS * SIZE);
    end(&s);
    more.in[3].dims[0] = 1; /* keys of one text, and values of two */
    for (size_t i = 0; i < 3; i++)
        kiln_free(more.out[i].data);
    cr_expect_neq(kiln_model_run(model, more.in, more.out), KILN_OK);
    kiln_model_release(model);
}

/* ---- a prompt, then token after token ---- */

/* A model recorded for a cache with room, in buffers that its results go to. */
struct resident {
    kiln_batch *batch;
    kiln_buffer *cache[2];
    float q[WIDTH], k[SIZE], v[SIZE], y[WIDTH];
    int32_t length, total;
};

static void record(struct resident *r, kiln_onnx_model *model)
{
    static const float last[ROOM * SIZE] = {[ROOM * SIZE - 1] = 77};
    kiln_batch *b = r->batch = kiln_batch_create(context);
    kiln_array contents[7] = {[6] = {KILN_I32, 0, {0}, &r->total}};
    kiln_tensor in[7], out[3];
    r->total = ROOM;
    in[0] = kiln_upload(b, KILN_F32, 3, (size_t[]){1, 1, WIDTH}, r->q);
    in[1] = kiln_upload(b, KILN_F32, 3, (size_t[]){1, 1, SIZE}, r->k);
    in[2] = kiln_upload(b, KILN_F32, 3, (size_t[]){1, 1, SIZE}, r->v);
    for (size_t i = 0; i < 2; i++) {
        expect_ok(
            kiln_buffer_create(context, KILN_F32, 4, (size_t[]){1, 1, ROOM, SIZE}, &r->cache[i]));
        expect_ok(kiln_buffer_write(r->cache[i], 0, last, sizeof last));
        in[3 + i] = kiln_import(b, r->cache[i]);
    }
    in[5] = kiln_upload(b, KILN_I32, 1, (size_t[]){1}, &r->length);
    in[6] = (kiln_tensor){0};
    expect_ok(kiln_model_record(model, b, in, contents, out));
    for (size_t i = 0; i < 2; i++)
        kiln_export(b, out[1 + i], r->cache[i]);
    kiln_read(b, out[0], r->y, sizeof r->y);
    expect_ok(kiln_batch_status(b));
}

static void set_token(struct step *s, struct resident *r, int32_t token)
{
    memcpy(s->q, numbers(WIDTH, 10 + token, r->q), sizeof r->q);
    memcpy(s->k, numbers(SIZE, 20 + token, r->k), sizeof r->k);
    memcpy(s->v, numbers(SIZE, 30 + token, r->v), sizeof r->v);
    set(s, 1, (size_t)token, token + 1, token + 1);
    r->length = token;
}

/* The cache that grows is run anew for each length; the one with room is recorded once. */
Test(onnx_grouped, caches_are_written_in_place)
{
    static struct step s;
    static struct resident r;
    float found[ROOM * SIZE];
    Onnx__ModelProto *proto = new_model(21);
    make(proto);
    kiln_onnx_model *model = load(proto);
    record(&r, model);
    for (int32_t token = 0; token < 4; token++) {
        const size_t filled = ((size_t)token + 1) * SIZE;
        set_token(&s, &r, token);
        expect_ok(kiln_model_run(model, s.in, s.out));
        expect_ok(kiln_batch_execute(r.batch));
        expect_near("y", r.y, s.out[0].data, WIDTH);
        memcpy(s.past_k, s.out[1].data, filled * sizeof *s.past_k);
        memcpy(s.past_v, s.out[2].data, filled * sizeof *s.past_v);
        expect_ok(kiln_buffer_read(r.cache[0], 0, found, sizeof found));
        expect_near("key", found, s.past_k, filled);
        cr_assert_eq(found[ROOM * SIZE - 1], 77);
        expect_ok(kiln_buffer_read(r.cache[1], 0, found, sizeof found));
        expect_near("value", found, s.past_v, filled);
        end(&s);
    }
    kiln_batch_release(r.batch);
    kiln_buffer_release(r.cache[0]);
    kiln_buffer_release(r.cache[1]);
    kiln_model_release(model);
}

/* ---- what is refused ---- */

static const struct {
    const char *attribute; /* that gets `value` */
    int64_t value;
    size_t rows, past;
    int32_t total;
    const char *words;
} wrong[] = {
    {"num_heads", 3, 1, 4, 5, "queries, keys and values of 3 and 1 heads do not fit"},
    {"num_heads", 0, 1, 4, 5, "of 0 and 1 heads"},
    {"num_heads", INT64_MAX, 1, 4, 5, "heads do not fit"},
    {"kv_num_heads", -1, 1, 4, 5, "of 2 and -1 heads"},
    {"kv_num_heads", 2, 1, 4, 5, "heads do not fit"},
    {"smooth_softmax", 1, 1, 4, 5, "a smooth softmax"},
    {"num_heads", 2, 3, 0, 2, "a cache of 2 keys does not fit 3 rows"},
    {"num_heads", 2, 3, 2, -5, "a cache of 2 keys does not fit 3 rows"},
};

static void set_attribute(Onnx__NodeProto *node, const char *name, int64_t value)
{
    for (size_t k = 0; k < node->n_attribute; k++)
        if (!strcmp(node->attribute[k]->name, name)) {
            node->attribute[k]->i = value;
            return;
        }
    set_int(node, name, value);
}

Test(onnx_grouped, wrong_nodes_are_refused)
{
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        static struct step s;
        Onnx__ModelProto *proto = new_model(21);
        set_attribute(make(proto), wrong[i].attribute, wrong[i].value);
        kiln_onnx_model *model = load(proto);
        set(&s, wrong[i].rows, wrong[i].past, 1, wrong[i].total);
        cr_expect(kiln_model_run(model, s.in, s.out) != KILN_OK, "case %zu", i);
        cr_expect(strstr(kiln_last_error(), wrong[i].words), "'%s' is not in '%s'", wrong[i].words,
                  kiln_last_error());
        kiln_model_release(model);
    }
}
