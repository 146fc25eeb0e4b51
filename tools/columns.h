/* SPDX-License-Identifier: Apache-2.0 */
/* Tables on a terminal: what is too long for its line goes on under its own column. */
#ifndef KILN_TOOLS_COLUMNS_H
#define KILN_TOOLS_COLUMNS_H

#include <stddef.h>

/* Characters of a line: $COLUMNS, else those of the terminal that standard output is, 80 if it does
 * not say; SIZE_MAX: it is none, and lines are for programs. */
size_t kiln__tool_width(void);

/* Print the last column of a row, of which so many characters are printed already, and end the
 * line. Further lines begin below it, and are broken at blanks alone; where fewer than 30
 * characters are left for it, all of it stands in lines of its own. */
void kiln__tool_print_rest(int printed, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
