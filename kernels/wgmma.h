/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels for NVIDIA's Hopper are made of that multiply by its instruction wgmma: barriers that
 * items wait at for each other and for the copy engine, what that engine is told of an operand, and
 * what the instruction is told. Files that include this say, after helpers.h:
 *
 *     BYTES    of an element: 1, 2 or 4        ELEMENT  its type
 *     MOVED    what the engine takes it for: "0" to "2", which it only moves, or "11", floats that
 *              it rounds to tf32
 *
 * Instructions of sm_90a stand behind "//!" (matmul_wgmma.cl). In local memory a line of 128 bytes
 * has chunk c of 16 bytes at c ^ line % 8, one of 64 bytes at c ^ line / 2 % 4. */
/* ---- barriers ---- */

INLINE void barrier_make(uint at, uint arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}

INLINE void barrier_wait(uint at, uint phase)
{
    asm volatile("{\n.reg .pred done;\nAGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra.uni READY;\nbra.uni AGAIN;\nREADY:\n}" ::"r"(at),
                 "r"(phase)
                 : "memory");
}

INLINE void barrier_arrive(uint at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

INLINE void barrier_expect(uint at, uint bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
                 : "memory");
}

/* ---- loading ---- */

/* What the copy engine is told of an operand stands in 128 bytes of global memory, whose layout is
 * its own: it is zeroed, and each part is set by an instruction. Dimensions: what is contiguous,
 * the lines, the batch. A box has `box` lines of `line` bytes, 128 or 64. */
#define SET_WORD(part, value)                                                                      \
    asm volatile("//!tensormap.replace.tile." part ".global.b1024.b32 [%0], " value ";" ::"l"(map) \
                 : "memory")
#define SET_INT(part, number, value)                                                               \
    asm volatile("//!tensormap.replace.tile." part ".global.b1024.b32 [%0], " number ", %1;" ::    \
                     "l"(map),                                                                     \
                 "r"((uint)(value))                                                                \
                 : "memory")
#define SET_LONG(part, number, value)                                                              \
    asm volatile("//!tensormap.replace.tile." part ".global.b1024.b64 [%0], " number "%1;" ::"l"(  \
                     map),                                                                         \
                 "l"(value)                                                                        \
                 : "memory")

INLINE void describe_operand(__global uint4 *map, __global const ELEMENT *from, long contiguous,
                             long lines, long batches, long lead, long batch, const int box,
                             const int line)
{
    for (int i = 0; i < 8; i++)
        map[i] = (uint4)(0);
    SET_LONG("global_address", "", from);
    SET_WORD("rank", "2"); /* less one */
    SET_WORD("elemtype", MOVED);
    SET_WORD("interleave_layout", "0");
    if (line == 128)
        SET_WORD("swizzle_mode", "3");
    else
        SET_WORD("swizzle_mode", "2");
    SET_WORD("fill_mode", "0");
    SET_INT("box_dim", "0", line / BYTES);
    SET_INT("box_dim", "1", box);
    SET_INT("box_dim", "2", 1);
    SET_INT("global_dim", "0", contiguous);
    SET_INT("global_dim", "1", lines);
    SET_INT("global_dim", "2", batches);
    SET_LONG("global_stride", "0, ", lead * BYTES);
    SET_LONG("global_stride", "1, ", batch * BYTES);
    SET_INT("element_stride", "0", 1);
    SET_INT("element_stride", "1", 1);
    SET_INT("element_stride", "2", 1);
    asm volatile("fence.proxy.tensormap::generic.release.gpu;\n"
                 "fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map)
                 : "memory");
}

/* From element x of line y of matrix z on. */
INLINE void copy_box(uint to, __global const uint4 *map, int x, int y, int z, uint full)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier"
                 "::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(z), "r"(full)
                 : "memory");
}

/* ---- multiplying ---- */

/* What wgmma is told of an operand in local memory; `boxes`: 16 bytes from box to box. */
INLINE ulong describe(uint at, uint boxes)
{
    return (ulong)((at & 0x3ffff) >> 4) | (ulong)boxes << 16 | (ulong)64 << 32 | (ulong)1 << 62;
}

/* Of one whose lines of k have 64 bytes. */
INLINE ulong describe_short(uint at)
{
    return (ulong)((at & 0x3ffff) >> 4) | (ulong)1 << 16 | (ulong)32 << 32 | (ulong)2 << 62;
}

/* Of sums: the registers %0 to %31, %63 or %127. */
#define NAMES_32                                                                                   \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_64                                                                                   \
    NAMES_32                                                                                       \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES_128                                                                                  \
    NAMES_64                                                                                       \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "       \
    "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "   \
    "%126, %127"
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
