/* SPDX-License-Identifier: Apache-2.0 */
/* Programs with instructions that the compiler for OpenCL C does not know. Where a driver's binary
 * is text of a lower language (PTX), such an instruction can stand in a comment of inline assembly,
 * which the compiler keeps, and the binary is edited before it is built once more. The source says
 * so in lines of its own:
 *
 *   //edit 8 "//!" ""
 *   //edit 1 "[1024]" "[$LOCAL]"
 *
 * that is: the first text is there so many times, or else the program is refused, and the second
 * one takes its place; in that, and for the number, $NAME is the value of -DNAME=value among the
 * build options. Edits follow each other. The text that results is the program's binary, on disk,
 * too. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define KILN__EDIT_WHY 160

/* Whether a source has such lines. */
bool kiln__edit_is_wanted(const char *source);

/* `length` bytes of `text`, which end before that where there is a 0, with all edits of the source.
 * NULL: `why` says what is not as it should be. Owner: the caller, free(). */
char *kiln__edit_apply(const char *source, const char *options, const char *text, size_t length,
                       char why[KILN__EDIT_WHY]);
