/* SPDX-License-Identifier: Apache-2.0 */
/* Indentation by the braces and parentheses that a line opens and closes. */
#include "codegen/indent.h"

#include <string.h>

/* Brackets that a line opens and leaves open. */
static int count_open(const char *line, size_t length)
{
    int open = 0;
    for (size_t i = 0; i < length; i++)
        open += (line[i] == '{' || line[i] == '(') - (line[i] == '}' || line[i] == ')');
    return open;
}

/* Whether the statement goes on in the next line: "if (...)", "else", "a &&". */
static bool goes_on(const char *line, size_t length, bool inside)
{
    char last = length ? line[length - 1] : ';';
    return inside && *line != '#' ? !strchr("{};,", last) : last == '\\';
}

void kiln__indent(const char *lines, struct kiln__text *text)
{
    int open = 0;
    bool continues = false;
    for (const char *line = lines; *line;) {
        line += strspn(line, " ");
        size_t length = strcspn(line, "\n");
        int depth = *line == '#' ? 0 : open + continues - (*line == '}');
        if (length && depth > 0)
            kiln__text_add(text, "%*s", 4 * depth, "");
        kiln__text_add_bytes(text, line, length + (line[length] == '\n'));
        open += count_open(line, length);
        continues = goes_on(line, length, open > 0);
        line += length + (line[length] == '\n');
    }
}
