/* SPDX-License-Identifier: Apache-2.0 */
/* Indentation of generated texts. Who writes lines of a kernel need not know how deep they are. */
#ifndef KILN_CODEGEN_INDENT_H
#define KILN_CODEGEN_INDENT_H

#include "util/text.h"

/* Append `lines`, each as far in as the brackets before it are open; what they have of blanks at
 * their start does not count. */
void kiln__indent(const char *lines, struct kiln__text *text);

#endif
