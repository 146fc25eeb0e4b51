/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of OpenCL C that kiln's kernels call, for a compiler that is told to leave its own
 * 14,500 declarations out: reading those takes it half of a quick kernel's time. Each has all its
 * overloads and attributes, so that a call means the same (tests/check-builtins.sh compares).
 *
 * A line DECLARE_...(word...) is for programs in which a word begins with this one; the others
 * stand before every program (programs/builtins.c). */
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define OF_DOUBLE(widths, one, name) widths(one, double, long, ulong, name)
#define FROM_DOUBLE(to, n, how) CONST_FN to##n convert_##to##n##how(double##n);
#else
#define OF_DOUBLE(widths, one, name)
#define FROM_DOUBLE(to, n, how)
#endif
#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#define OF_HALF(widths, one, name) widths(one, half, short, ushort, name)
#define FROM_HALF(to, n, how) CONST_FN to##n convert_##to##n##how(half##n);
#else
#define OF_HALF(widths, one, name)
#define FROM_HALF(to, n, how)
#endif

#define OVERLOAD __attribute__((overloadable))
#define CONST_FN __attribute__((overloadable, const))
#define PURE_FN __attribute__((overloadable, pure))

/* ---- types and widths: one(T, an integer like T, an unsigned one, width, name) ---- */

#define VECTORS(one, T, S, U, name)                                                                \
    one(T, S, U, 2, name) one(T, S, U, 3, name) one(T, S, U, 4, name) one(T, S, U, 8, name)        \
        one(T, S, U, 16, name)
#define WIDTHS(one, T, S, U, name) one(T, S, U, , name) VECTORS(one, T, S, U, name)

#define OF_FLOAT(widths, one, name) widths(one, float, int, uint, name)
#define OF_FLOATS(widths, one, name)                                                               \
    OF_FLOAT(widths, one, name) OF_DOUBLE(widths, one, name) OF_HALF(widths, one, name)
#define OF_SIGNED(widths, one, name)                                                               \
    widths(one, char, char, uchar, name) widths(one, short, short, ushort, name)                   \
        widths(one, int, int, uint, name) widths(one, long, long, ulong, name)
#define OF_INTEGERS(widths, one, name)                                                             \
    OF_SIGNED(widths, one, name)                                                                   \
    widths(one, uchar, char, uchar, name) widths(one, ushort, short, ushort, name)                 \
        widths(one, uint, int, uint, name) widths(one, ulong, long, ulong, name)
#define OF_ALL(widths, one, name) OF_INTEGERS(widths, one, name) OF_FLOATS(widths, one, name)

/* ---- functions ---- */

#define UNARY(T, S, U, n, name) CONST_FN T##n name(T##n);
#define BINARY(T, S, U, n, name) CONST_FN T##n name(T##n, T##n);
#define TERNARY(T, S, U, n, name) CONST_FN T##n name(T##n, T##n, T##n);
#define SCALED(T, S, U, n, name) CONST_FN T##n name(T##n, T);
#define BOUNDED(T, S, U, n, name) CONST_FN T##n name(T##n, T, T);
#define MAGNITUDE(T, S, U, n, name) CONST_FN U##n name(T##n);
#define VERDICT(T, S, U, n, name) CONST_FN int name(T##n);
#define CHOICE(T, S, U, n, name)                                                                   \
    CONST_FN T##n name(T##n, T##n, S##n);                                                          \
    CONST_FN T##n name(T##n, T##n, U##n);
#define LOAD_FROM(space, T, n) PURE_FN T##n vload##n(size_t, const space T *);
#define LOAD_OF(T, S, U, n, name)                                                                  \
    LOAD_FROM(__constant, T, n) LOAD_FROM(__global, T, n) LOAD_FROM(__local, T, n)                 \
        LOAD_FROM(__private, T, n)
#define STORE_TO(space, T, n) OVERLOAD void vstore##n(T##n, size_t, space T *);
#define STORE_OF(T, S, U, n, name)                                                                 \
    STORE_TO(__global, T, n) STORE_TO(__local, T, n) STORE_TO(__private, T, n)

#define FROM(T, to, n, how) CONST_FN to##n convert_##to##n##how(T##n);
#define FROM_ALL(to, n, how)                                                                       \
    FROM(char, to, n, how) FROM(uchar, to, n, how) FROM(short, to, n, how) FROM(ushort, to, n, how) \
        FROM(int, to, n, how) FROM(uint, to, n, how) FROM(long, to, n, how)                        \
            FROM(ulong, to, n, how) FROM(float, to, n, how) FROM_DOUBLE(to, n, how)                \
                FROM_HALF(to, n, how)
#define TO_WIDTHS(to, how)                                                                         \
    FROM_ALL(to, , how) FROM_ALL(to, 2, how) FROM_ALL(to, 3, how) FROM_ALL(to, 4, how)             \
        FROM_ALL(to, 8, how) FROM_ALL(to, 16, how)

#define ATOMIC(T, space, name, values) OVERLOAD T name(volatile space T *values(T));
#define NO_VALUE(T)
#define A_VALUE(T) , T
#define TWO_VALUES(T) , T, T

/* ---- their kinds ---- */

#define DECLARE_ITEM(name) CONST_FN size_t name(uint);
#define DECLARE_FENCE(name) OVERLOAD void name(cl_mem_fence_flags);
#define DECLARE_BARRIER(name) OVERLOAD __attribute__((convergent)) void name(cl_mem_fence_flags);
#define DECLARE_ATOMIC(name, values)                                                               \
    ATOMIC(int, __global, name, values) ATOMIC(uint, __global, name, values)                       \
    ATOMIC(int, __local, name, values) ATOMIC(uint, __local, name, values)
#define DECLARE_FLOAT(name) OF_FLOATS(WIDTHS, UNARY, name)
#define DECLARE_FLOATS(name) OF_FLOATS(WIDTHS, BINARY, name)
#define DECLARE_FLOATS_3(name) OF_FLOATS(WIDTHS, TERNARY, name)
#define DECLARE_FLOAT_EXTREME(name)                                                                \
    OF_FLOATS(WIDTHS, BINARY, name) OF_FLOATS(VECTORS, SCALED, name)
#define DECLARE_NATIVE(name) OF_FLOAT(WIDTHS, UNARY, name)
#define DECLARE_EXTREME(name) OF_ALL(WIDTHS, BINARY, name) OF_ALL(VECTORS, SCALED, name)
#define DECLARE_CLAMP(name) OF_ALL(WIDTHS, TERNARY, name) OF_ALL(VECTORS, BOUNDED, name)
#define DECLARE_INTEGER(name) OF_INTEGERS(WIDTHS, UNARY, name)
#define DECLARE_INTEGERS(name) OF_INTEGERS(WIDTHS, BINARY, name)
#define DECLARE_MAGNITUDE(name) OF_INTEGERS(WIDTHS, MAGNITUDE, name)
#define DECLARE_VERDICT(name) OF_SIGNED(WIDTHS, VERDICT, name)
#define DECLARE_CHOICE(name) OF_ALL(WIDTHS, CHOICE, name)
#define DECLARE_LOADS(name) OF_ALL(VECTORS, LOAD_OF, name)
#define DECLARE_STORES(name) OF_ALL(VECTORS, STORE_OF, name)
#define DECLARE_TO_FLOAT(name, T) TO_WIDTHS(T, )
#define DECLARE_TO_INTEGER(name, T) TO_WIDTHS(T, ) TO_WIDTHS(T, _sat)

/* ---- all ---- */

DECLARE_ITEM(get_global_id)
DECLARE_ITEM(get_global_offset)
DECLARE_ITEM(get_global_size)
DECLARE_ITEM(get_group_id)
DECLARE_ITEM(get_local_id)
DECLARE_ITEM(get_local_size)
DECLARE_ITEM(get_num_groups)
DECLARE_FENCE(mem_fence)
DECLARE_BARRIER(barrier)
DECLARE_ATOMIC(atomic_add, A_VALUE)
DECLARE_ATOMIC(atomic_cmpxchg, TWO_VALUES)
DECLARE_ATOMIC(atomic_inc, NO_VALUE)
DECLARE_ATOMIC(atomic_max, A_VALUE)
DECLARE_ATOMIC(atomic_min, A_VALUE)
DECLARE_ATOMIC(atomic_or, A_VALUE)
DECLARE_FLOAT(ceil)
DECLARE_FLOAT(exp)
DECLARE_FLOAT(exp2)
DECLARE_FLOAT(fabs)
DECLARE_FLOAT(floor)
DECLARE_FLOAT(log)
DECLARE_FLOAT(log2)
DECLARE_FLOAT(rint)
DECLARE_FLOAT(rsqrt)
DECLARE_FLOAT(sqrt)
DECLARE_FLOAT(trunc)
DECLARE_FLOATS(copysign)
DECLARE_FLOATS(fmod)
DECLARE_FLOATS_3(fma)
DECLARE_FLOAT_EXTREME(fmax)
DECLARE_FLOAT_EXTREME(fmin)
DECLARE_NATIVE(native_exp2)
DECLARE_NATIVE(native_recip)
DECLARE_EXTREME(max)
DECLARE_EXTREME(min)
DECLARE_CLAMP(clamp)
DECLARE_INTEGER(clz)
DECLARE_INTEGERS(mul_hi)
DECLARE_MAGNITUDE(abs)
DECLARE_VERDICT(all)
DECLARE_VERDICT(any)
DECLARE_CHOICE(select)
DECLARE_LOADS(vload)
DECLARE_STORES(vstore)
DECLARE_TO_INTEGER(convert_char, char)
DECLARE_TO_INTEGER(convert_uchar, uchar)
DECLARE_TO_INTEGER(convert_short, short)
DECLARE_TO_INTEGER(convert_ushort, ushort)
DECLARE_TO_INTEGER(convert_int, int)
DECLARE_TO_INTEGER(convert_uint, uint)
DECLARE_TO_INTEGER(convert_long, long)
DECLARE_TO_INTEGER(convert_ulong, ulong)
DECLARE_TO_FLOAT(convert_float, float)
