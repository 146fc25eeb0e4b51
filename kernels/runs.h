/* SPDX-License-Identifier: Apache-2.0 */
/* PASTE(TO_, RUNS)(x): x(0) to x(RUNS - 1), for each of a kernel's leading dimensions. */
#define TO_1(x) x(0)
#define TO_2(x) TO_1(x) x(1)
#define TO_3(x) TO_2(x) x(2)
#define TO_4(x) TO_3(x) x(3)
#define TO_5(x) TO_4(x) x(4)
#define TO_6(x) TO_5(x) x(5)
