/* SPDX-License-Identifier: Apache-2.0 */
/* Products on the tensor cores of NVIDIA's GPUs: of Hopper (kernels/matmul_wgmma.cl), and of what
 * has their instruction mma (kernels/matmul_mma.cl).
 *
 * Operands are read along k: others are packed first (kernels/matmul_gpu_pack.cl), those of f32x3
 * always, into two parts. Warps finish their own sums or, where that was measured to be faster
 * (long epilogue, long k, several tiles a core), hand them to other warps.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lower/matmul.h"

#define TILE_M 128
#define MAPS 256 /* bytes in which a work-group describes its operands to the copy engine */

/* Tilings of the result, fewest columns first. `pace`: what a column of a tile takes, since narrow
 * ones read more for each product. */
struct tiling {
    int64_t columns;
    int stages;            /* of local memory */
    int marks;             /* of instructions in the kernel's text */
    bool warp_specialised; /* warps of their own finish a tile while the next one is multiplied;
                              stages have half as long lines */
    double pace;
};
static const struct tiling any[] = {{64, 7, 44, false, 1.4},
                                    {128, 5, 44, false, 1.1},
                                    {256, 4, 44, false, 1.0},
                                    {256, 4, 42, true, 1.0}},
                           narrow[] = {{128, 3, 68, false, 1.0}},
                           of_mma[] = {{128, 3, 0, false, 1.0}};
enum { MOST_TILINGS = sizeof any / sizeof *any };

/* What is multiplied. Operands of `bytes` lie as `stored` in memory; those of several parts, and
 * others that do not lie as the kernel reads them, are packed. `short_lines`: what stages with
 * lines of half the length take, since they are waited for more often. */
struct kind {
    const char *type;
    kiln_type stored;
    int bytes, parts;
    double short_lines;
    const struct tiling *tilings;
    size_t tiling_count; /* 0: not multiplied */
};
enum { F16, BF16, S8, TF32, TF32X3 };
static const struct kind wgmma_kinds[] = {{"f16", KILN_F16, 2, 1, 1.03, any, 4},
                                          {"bf16", KILN_BF16, 2, 1, 1.03, any, 4},
                                          {"s8", KILN_I8, 1, 1, 1.14, any, 4},
                                          {"tf32", KILN_F32, 4, 1, 1.11, any, 4},
                                          {"tf32", KILN_F32, 4, 2, 1, narrow, 1}};
static const struct kind mma_kinds[] = {{"f16", KILN_F16, 2, 1, 1, of_mma, 1},
                                        {"bf16", KILN_BF16, 2, 1, 1, of_mma, 1},
                                        {"s8", KILN_I8, 1, 1, 1, of_mma, 1},
                                        {"tf32", KILN_F32, 4, 1, 1, of_mma, 1},
                                        {"tf32", KILN_F32, 4, 2, 1, NULL, 0}};

/* An instruction, and the kernel that is made of it. */
struct engine {
    enum kiln__product_kernel kernel;
    int items;      /* of a work-group */
    int line;       /* bytes along k in a stage, and in what costs count */
    double finish;  /* of such lines, what an operation on a tile's results takes */
    int64_t fewest; /* rows of 16 bits, of one product, from which on it is faster than others */
    bool lasts;     /* work-groups for all cores, which take one tile after the other, with maps */
    const struct kind *kinds;
};
static const struct engine wgmma = {KILN__BY_wgmma, 384, 128, 0.4, 9, true, wgmma_kinds};
static const struct engine mma = {KILN__BY_mma, 128, 64, 0, 32, false, mma_kinds};

static const struct kiln__kernel_row *kernel_of(const struct engine *engine)
{
    return kiln__kernel_of(KILN__KERNEL_PRODUCT, engine->kernel - 1u);
}

static int64_t tiles_of(const struct kiln__product *product, const struct tiling *tiling)
{
    return kiln__div_up(product->m, TILE_M) * kiln__div_up(product->n, tiling->columns) *
           product->batch;
}

/* ---- operands ---- */

/* Transposed: not by rows, as A and B are in a product of plain matrices. */
static bool is_transposed(const struct kiln__matrix *matrix)
{
    return matrix->column != 1;
}

/* Lines of k, from multiples of the 16 bytes that are copied at once on. Of 16 bits they may also
 * be lines across k. */
static bool lies_right(const struct kind *kind, const struct kiln__matrix *matrix, bool along)
{
    return kind->parts == 1 && kiln__matrix_copies(matrix, kind->stored, 16 / kind->bytes) &&
           kiln__matrix_lead(matrix) > 0 && (kind->bytes == 2 || along);
}

static bool a_lies_right(const struct kind *kind, const struct kiln__product *product)
{
    return lies_right(kind, &product->a, !is_transposed(&product->a));
}

static bool b_lies_right(const struct kind *kind, const struct kiln__product *product)
{
    return lies_right(kind, &product->b, is_transposed(&product->b));
}

/* The kernel's program is for the layout that operands have once they are packed. */
static bool transposes_a(const struct kind *kind, const struct kiln__product *product)
{
    return kind->bytes == 2 && is_transposed(&product->a);
}

static bool transposes_b(const struct kind *kind, const struct kiln__product *product)
{
    return kind->bytes != 2 || is_transposed(&product->b);
}

static bool is_of_i8(const struct kiln__matrix *matrix)
{
    return matrix->stored == KILN_I8 && matrix->plain_load;
}

/* NULL: none of this. */
static const struct kind *kind_of(const struct engine *engine, const struct kiln__product *product)
{
    const struct kind *kinds = engine->kinds;
    for (int i = F16; i <= BF16; i++)
        if (a_lies_right(&kinds[i], product) && b_lies_right(&kinds[i], product))
            return &kinds[i];
    bool short_sums = product->k <= KILN__INTEGERS_IN_F32;
    if (product->sums == KILN__PRODUCT_EXACT_INTEGER ||
        (short_sums && is_of_i8(&product->a) && is_of_i8(&product->b)))
        return &kinds[S8];
    const struct kind *kind = product->sums == KILN__PRODUCT_TF32    ? &kinds[TF32]
                              : product->sums == KILN__PRODUCT_F32X3 ? &kinds[TF32X3]
                                                                     : NULL;
    return kind && kind->tiling_count ? kind : NULL;
}

/* ---- how a product is done ---- */

struct way {
    const struct engine *engine;
    const struct kind *kind;
    const struct tiling *tiling; /* NULL: not at all */
    int64_t splits;              /* of k */
};

/* Bytes along k in a stage. */
static int line_of(const struct way *way)
{
    return way->engine->line / (way->tiling->warp_specialised ? 2 : 1);
}

static int64_t rounds_of(const struct way *way, const struct kiln__product *product)
{
    return kiln__div_up(product->k, line_of(way) / way->kind->bytes);
}

/* In what a column of a tile takes for the engine's line: what a tile's end takes, what a launch
 * does, and how many elements all cores together write and read again meanwhile.
 * HANDED_ENDS, HANDED: the least that fewer warps take to finish a tile, and how many times as long
 * they take for what follows the sums; while others multiply, twice that. LOAD, HANDED_LOAD: for
 * how many additions warps wait for an operand that has an element for each sum. */
#define ENDS 2.5
#define HANDED_ENDS 9
#define HANDED 3
#define LOAD 15
#define HANDED_LOAD 25
#define LAUNCH 2000
#define SUMS 2500
#define MOST_SPLITS 32
#define LEAST_LINES 8 /* of a split */

/* What follows the sums of a tile. Those of a split are read by another launch, which waits for
 * memory alone. */
static double cost_of_finish(const struct kiln__product *product, const struct way *way)
{
    double load = way->tiling->warp_specialised ? HANDED_LOAD : LOAD;
    return way->splits > 1 ? 0 : way->engine->finish * (product->finish + load * product->loads);
}

static double cost_of_splits(const struct kiln__product *product, const struct way *way)
{
    double sums = (double)product->m * (double)product->n * (double)product->batch;
    double times = (double)(2 * way->splits + 1 + product->loads);
    return way->splits > 1 ? LAUNCH + sums * times / SUMS : 0;
}

/* Each core takes one tile after the other. One that is handed over is finished while the next one
 * is multiplied, or the next one waits. As measured: bench/results/2026-11-25-h200-handing-over.md.
 */
static double matmul_wgmma_cost(const struct kiln__product *product, const struct way *way)
{
    const struct tiling *tiling = way->tiling;
    int64_t cores = product->device->info.compute_units;
    int64_t rounds = kiln__div_up(rounds_of(way, product), way->splits);
    double lines = (double)(rounds * line_of(way)) / way->engine->line;
    double turns = (double)kiln__div_up(tiles_of(product, tiling) * way->splits, cores);
    double finish = cost_of_finish(product, way), multiplied = (lines + ENDS) * tiling->pace;
    double tiles = turns * (multiplied + finish);
    if (tiling->warp_specialised) {
        double handed = HANDED_ENDS + HANDED * finish;
        multiplied *= way->kind->short_lines;
        tiles = multiplied + (turns - 1) * fmax(multiplied, handed + multiplied / 2) + handed;
    }
    return (double)tiling->columns * tiles + cost_of_splits(product, way);
}

static bool is_proven(struct kiln__self_tester *self_tester, const struct way *way,
                      bool transpose_a, bool transpose_b)
{
    const struct kiln__self_test self_test = {.kernel = kernel_of(way->engine),
                                              .type = way->kind->stored,
                                              .transpose_a = transpose_a,
                                              .transpose_b = transpose_b,
                                              .parts = (uint8_t)way->kind->parts,
                                              .tile = (uint16_t)way->tiling->columns,
                                              .form = way->tiling->warp_specialised};
    return self_tester && self_tester->passes(self_tester, &self_test);
}

/* The cheapest way with this tiling, or the tuned one. Sums of a split are floats, which does not
 * do for whole numbers, and are added up in an order of their own. */
static struct way choose_splits(const struct kiln__plan *plan, const struct kiln__product *product,
                                struct way way)
{
    int64_t rounds = rounds_of(&way, product), lines = rounds * line_of(&way) / way.engine->line;
    bool whole = way.kind->stored == KILN_I8 || plan->fusion.graph.batch_invariant;
    int64_t most = whole ? 1 : MOST_SPLITS;
    int64_t tuned = product->device->traits->splits;
    struct way best = way;
    for (way.splits = 2; way.splits <= most && way.splits * LEAST_LINES <= lines; way.splits++) {
        bool none_empty = kiln__div_up(rounds, kiln__div_up(rounds, way.splits)) == way.splits;
        bool better = tuned ? way.splits == tuned
                            : matmul_wgmma_cost(product, &way) < matmul_wgmma_cost(product, &best);
        if (none_empty && better)
            best = way;
    }
    return best;
}

/* The cheapest way whose kernel is proven; the tuned tiling is as good as the cheapest. */
static struct way choose_way(const struct kiln__plan *plan, const struct engine *engine,
                             const struct kiln__product *product)
{
    const struct kind *kind = kind_of(engine, product);
    struct way ways[MOST_TILINGS];
    size_t best = 0;
    for (size_t i = 0; i < kind->tiling_count; i++) {
        ways[i] = choose_splits(plan, product, (struct way){engine, kind, &kind->tilings[i], 1});
        if (matmul_wgmma_cost(product, &ways[i]) <= matmul_wgmma_cost(product, &ways[best]))
            best = i;
    }
    unsigned tuned = product->device->traits->tile;
    if (tuned && tuned <= kind->tiling_count)
        best = tuned - 1;
    for (size_t i = 0; i < kind->tiling_count; i++) {
        struct way way = ways[(best + kind->tiling_count - i) % kind->tiling_count];
        if (is_proven(plan->options.self_tester, &way, transposes_a(kind, product),
                      transposes_b(kind, product)))
            return way;
    }
    return (struct way){engine, kind, NULL, 1};
}

/* ---- what it takes ---- */

/* Rows, columns and numbers of tiles are counted in 32 bits. */
static bool is_countable(const struct kiln__product *product)
{
    const int64_t most = INT32_MAX / 2;
    return product->k > 0 && product->k < most && product->m < most && product->n < most &&
           product->batch < most &&
           tiles_of(product, &wgmma.kinds[F16].tilings[0]) < most / MOST_SPLITS;
}

static bool is_able(const struct kiln__plan_options *options, const struct engine *engine)
{
    return options->device->info.max_work_group >= (size_t)engine->items && !options->shared;
}

/* Whether the kernel would be taken whatever the number of rows, of which either operand may have
 * any: each element is then the same sum along k in all batches. Lines along k, and those of
 * weights across it, lie as they do however many rows there are. */
static bool is_batch_invariant(const struct kind *kind, const struct kiln__product *product)
{
    return (kind->stored == KILN_F16 || kind->stored == KILN_BF16) &&
           (!is_transposed(&product->a) || product->a.frozen) &&
           (is_transposed(&product->b) || product->b.frozen);
}

static bool matmul_wgmma_fits(const struct kiln__plan *plan, const struct engine *engine,
                              const struct kiln__product *product)
{
    const struct kind *kind =
        is_able(&plan->options, engine) && is_countable(product) ? kind_of(engine, product) : NULL;
    return kind && (!plan->fusion.graph.batch_invariant || is_batch_invariant(kind, product)) &&
           choose_way(plan, engine, product).tiling;
}

static bool adds_integers(const struct kiln__plan_options *options, const struct engine *engine)
{
    const struct kind *kind = &engine->kinds[S8];
    const struct kiln__kernel_row *kernel = kernel_of(engine);
    if (!is_able(options, engine) || !kiln__kernel_is_for(kernel, options->device) ||
        (options->matmul && strcmp(options->matmul, kernel->name) != 0))
        return false;
    for (size_t i = 0; i < kind->tiling_count; i++)
        if (is_proven(options->self_tester, &(struct way){engine, kind, &kind->tilings[i], 1},
                      false, true))
            return true;
    return false;
}

bool kiln__matmul_has_exact_integers(const struct kiln__plan_options *options)
{
    return adds_integers(options, &wgmma) || adds_integers(options, &mma);
}

/* Smaller ones are done before their operands are packed. */
#define LEAST_PACKED 128
#define LEAST_WEIGHTS ((int64_t)512 * 512)

/* A tile that is mostly empty takes as long as a full one. Where it reads narrow weights, that is
 * as long as these take: 16 rows by 768 x 768 in bf16 took an H200 6.9 us, by 4096 x 4096 21 us; in
 * tiles of f32 10.8 us and 57 us. */
static bool matmul_wgmma_suits(const struct kiln__plan *plan, const struct engine *engine,
                               const struct kiln__product *product)
{
    const int bytes = kind_of(engine, product)->bytes;
    const int64_t least = bytes == 4 ? LEAST_PACKED : 32;
    const bool reads_weights =
        bytes == 2 && product->batch == 1 && product->n * product->k >= LEAST_WEIGHTS;
    const int64_t rows = reads_weights ? engine->fewest : least;
    return product->sums == KILN__PRODUCT_EXACT_INTEGER || plan->fusion.graph.batch_invariant ||
           (product->m >= rows && product->n >= least && product->k >= least);
}

/* ---- launching ---- */

/* The same with its operands where the kernel can take them. */
static struct kiln__product matmul_wgmma_prepare(struct kiln__plan *plan, uint32_t group,
                                                 const struct kiln__product *product,
                                                 const struct kind *kind)
{
    struct kiln__product prepared = *product;
    if (!a_lies_right(kind, product))
        prepared.a =
            kiln__product_pack(plan, group, product, &product->a, kind->bytes, kind->parts);
    if (!b_lies_right(kind, product))
        prepared.b =
            kiln__product_pack(plan, group, product, &product->b, kind->bytes, kind->parts);
    return prepared;
}

/* Stages, barriers, and what warps write their sums to: all of a tile if it is handed over. */
static int local_bytes(struct way way)
{
    int columns = (int)way.tiling->columns;
    int stage = way.kind->parts * (TILE_M + columns) * line_of(&way);
    return way.tiling->stages * stage + 512 +
           TILE_M * (way.tiling->warp_specialised ? columns : 64) * 4;
}

/* The product, or each split's sums. */
static void add_product(struct kiln__plan *plan, uint32_t group,
                        const struct kiln__product *product, struct way way,
                        const struct kiln__matrix *c)
{
    const struct kind *kind = way.kind;
    const struct tiling *tiling = way.tiling;
    const struct engine *engine = way.engine;
    bool aligned = kiln__matrix_by(c, 4), sums = c->slot != KILN__NO_SLOT;
    int64_t tiles = tiles_of(product, tiling) * way.splits;
    int64_t cores = product->device->info.compute_units;
    int64_t groups = engine->lasts && tiles > cores ? cores : tiles;
    uint32_t maps = engine->lasts ? kiln__plan_scratch(plan, (size_t)groups * MAPS) : KILN__NO_SLOT;
    const char *file = kernel_of(engine)->file;
    struct kiln__launch launch = kiln__product_launch(group, file, file);
    size_t length = (size_t)snprintf(
        launch.options, sizeof launch.options,
        "-DTYPE=%s -DBYTES=%d -DTRANSPOSE_A=%d -DTRANSPOSE_B=%d -DRESULT=%d -DALIGNED=%d",
        kind->type, kind->bytes, transposes_a(kind, product), transposes_b(kind, product), sums,
        aligned);
    if (engine->lasts)
        snprintf(launch.options + length, sizeof launch.options - length,
                 " -DPARTS=%d -DTILE_N=%d -DSTAGES=%d -DHANDS_OVER=%d -DMARKS=%d -DLOCAL=%d",
                 kind->parts, (int)tiling->columns, tiling->stages, tiling->warp_specialised,
                 tiling->marks, local_bytes(way));
    kiln__product_range(&launch, groups * engine->items, 1, 1);
    launch.local[0] = (size_t)engine->items;
    launch.self_tested = true;
    kiln__launch_memory(&launch, product->a.slot);
    kiln__launch_memory(&launch, product->b.slot);
    if (engine->lasts) {
        kiln__launch_memory(&launch, maps);
        kiln__launch_offset(&launch, maps, 0, 16);
    }
    KILN__LAUNCH_INDICES(&launch, product->m, product->n, product->k, product->batch, way.splits);
    kiln__launch_matrix(&launch, &product->a);
    kiln__launch_matrix(&launch, &product->b);
    if (sums) {
        kiln__launch_memory(&launch, c->slot);
        kiln__launch_matrix(&launch, c);
    }
    struct kiln__extras extras = {NULL, NULL, way.splits > 1 ? NULL : product, 4, aligned};
    kiln__plan_add_product_launch(plan, &extras, &launch);
}

static void matmul_wgmma_lower(struct kiln__plan *plan, const struct engine *engine, uint32_t group,
                               const struct kiln__product *product)
{
    struct way way = choose_way(plan, engine, product);
    if (!way.tiling) /* proven a moment ago */
        way.tiling = &way.kind->tilings[0];
    const struct kiln__product prepared = matmul_wgmma_prepare(plan, group, product, way.kind);
    if (way.splits == 1) {
        add_product(plan, group, &prepared, way, &product->c);
        return;
    }
    struct kiln__product added = *product;
    if (added.c.slot == KILN__NO_SLOT)
        added.c.slot = kiln__plan_scratch(plan, (size_t)(product->batch * product->m * product->n) *
                                                    sizeof(float));
    struct kiln__matrix sums = kiln__product_split_k(plan, product, way.splits);
    sums.batch = product->m * product->n; /* from split to split */
    add_product(plan, group, &prepared, way, &sums);
    sums.batch *= way.splits;
    kiln__plan_product_sums(plan, group, &added, &sums, way.splits);
}

#define ROW(name)                                                                                  \
    static bool name##_fits(const struct kiln__plan *plan, const void *work)                       \
    {                                                                                              \
        return matmul_wgmma_fits(plan, &name, work);                                               \
    }                                                                                              \
    static bool name##_suits(const struct kiln__plan *plan, const void *work)                      \
    {                                                                                              \
        return matmul_wgmma_suits(plan, &name, work);                                              \
    }                                                                                              \
    static void lower_##name(struct kiln__plan *plan, uint32_t group, const void *work)            \
    {                                                                                              \
        matmul_wgmma_lower(plan, &name, group, work);                                              \
    }                                                                                              \
    const struct kiln__lowering kiln__matmul_##name = {name##_fits, name##_suits, lower_##name}
ROW(wgmma);
ROW(mma);
