/* SPDX-License-Identifier: Apache-2.0 */
/* How files of matrix products read their operands, for files that include this after LOAD. A text
 * before the file may say what it makes of the elements of one, OPERAND_A of those of A:
 *
 *   OPERAND_A_TYPE                          what lies in memory; what is made of it is a float
 *   OPERAND_A(from, batch, line, k)         the element at `from`
 *   OPERAND_A_VECTOR(from, batch, line, k)  as many as a vector has, neighbours from there on
 *   OPERAND_A_PARAMETERS, _ARGUMENTS        what they take beside, starting with a comma
 *
 * by where it is in the matrix, which a function that reads A has as further parameters: PLACE_A,
 * and, where it is called, AT_A(batch, line, lines, k): the place of its pointer, and how many lines
 * there are; beyond the last one that is read again. PLACED_A hands them on to a function that has
 * PLACE_A. By default all that is nothing. */
#ifdef OPERAND_A
#define PLACE_A , long a_in, long a_line, long a_lines, long a_k OPERAND_A_PARAMETERS
#define PLACED_A , a_in, a_line, a_lines, a_k OPERAND_A_ARGUMENTS
#define AT_A(batch, line, lines, k) , batch, line, lines, k OPERAND_A_ARGUMENTS
#define READ_A(from, at, line, k)                                                                  \
    OPERAND_A(from + (at), a_in, min(a_line + (line), a_lines - 1), a_k + (k))
#define READ_A_VECTOR(i, from, line, k)                                                            \
    OPERAND_A_VECTOR(from + (i) * VECTOR, a_in, min(a_line + (line), a_lines - 1), a_k + (k))
#else
#define OPERAND_A_TYPE float
#define OPERAND_A_PARAMETERS
#define PLACE_A
#define PLACED_A
#define AT_A(batch, line, lines, k)
#define READ_A(from, at, line, k) from[at]
#define READ_A_VECTOR(i, from, line, k) LOAD(i, __global, from)
#endif

#ifdef OPERAND_B
#define PLACE_B , long b_in, long b_line, long b_lines, long b_k OPERAND_B_PARAMETERS
#define PLACED_B , b_in, b_line, b_lines, b_k OPERAND_B_ARGUMENTS
#define AT_B(batch, line, lines, k) , batch, line, lines, k OPERAND_B_ARGUMENTS
#define READ_B(from, at, line, k)                                                                  \
    OPERAND_B(from + (at), b_in, min(b_line + (line), b_lines - 1), b_k + (k))
#define READ_B_VECTOR(i, from, line, k)                                                            \
    OPERAND_B_VECTOR(from + (i) * VECTOR, b_in, min(b_line + (line), b_lines - 1), b_k + (k))
#else
#define OPERAND_B_TYPE float
#define OPERAND_B_PARAMETERS
#define PLACE_B
#define PLACED_B
#define AT_B(batch, line, lines, k)
#define READ_B(from, at, line, k) from[at]
#define READ_B_VECTOR(i, from, line, k) LOAD(i, __global, from)
#endif
