/* SPDX-License-Identifier: Apache-2.0 */
/* math.cl's names go: the next type's, and the kernel's own, may be the same. */
#undef F
#undef I
#undef KIND
#undef FN
#undef AS_F
#undef AS_I
#undef U
#undef AS_U
#undef TO_F
#undef LOAD
#undef STORE
#undef FMA
#undef QUOTIENT
#undef C
