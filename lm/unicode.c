/* SPDX-License-Identifier: Apache-2.0 */
/* Unicode by libutf8proc. */
#include "lm/unicode.h"

#include <utf8proc.h>

size_t kiln__unicode_next(const char *text, size_t bytes, int32_t *point)
{
    const utf8proc_ssize_t most = bytes < 4 ? (utf8proc_ssize_t)bytes : 4;
    utf8proc_ssize_t length = utf8proc_iterate((const utf8proc_uint8_t *)text, most, point);
    if (length > 0)
        return (size_t)length;
    *point = -1;
    return 1;
}

bool kiln__unicode_is_space(int32_t point)
{
    utf8proc_category_t category = utf8proc_category(point);
    return (point >= '\t' && point <= '\r') || point == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
           category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

enum kiln__class kiln__unicode_class(int32_t point)
{
    if (point < 0)
        return KILN__OTHER;
    utf8proc_category_t category = utf8proc_category(point);
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO)
        return KILN__LETTER;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO)
        return KILN__NUMBER;
    return kiln__unicode_is_space(point) ? KILN__SPACE : KILN__OTHER;
}
