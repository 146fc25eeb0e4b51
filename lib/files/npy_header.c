/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of the .npy header, a Python dictionary with type, order and shape, from files that nobody
 * trusts. */
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "files/npy.h"

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define OWN_ORDER '>'
#else
#define OWN_ORDER '<'
#endif

/* ---- reading ---- */

struct parser {
    const char *at;
    struct kiln__npy *npy;
    struct kiln__phrase *why;
    bool has_type, has_order, has_shape;
};

static kiln_status damaged(struct parser *parser, const char *what)
{
    *parser->why = kiln__phrase("its header has %s at \"%.40s\"", what, parser->at);
    kiln__phrase_clean(parser->why);
    return KILN_IO_ERROR;
}

static void skip_blanks(struct parser *parser)
{
    while (isspace((unsigned char)*parser->at))
        parser->at++;
}

static bool npy_header_take(struct parser *parser, const char *word)
{
    skip_blanks(parser);
    size_t length = strlen(word);
    if (strncmp(parser->at, word, length))
        return false;
    parser->at += length;
    return true;
}

/* A text in quotation marks without any inside, which starts after the first. */
static bool take_text(struct parser *parser, const char **text, size_t *length)
{
    skip_blanks(parser);
    char mark = *parser->at;
    const char *end = mark == '\'' || mark == '"' ? strchr(parser->at + 1, mark) : NULL;
    if (!end)
        return false;
    *text = parser->at + 1;
    *length = (size_t)(end - *text);
    parser->at = end + 1;
    return true;
}

/* "<f4": the order of bytes, a letter, and how many bytes. */
static kiln_status read_type(struct parser *parser)
{
    const char *text;
    size_t length;
    if (npy_header_take(parser, "[")) {
        *parser->why = kiln__phrase("its elements are structures, which kiln has not");
        return KILN_UNSUPPORTED;
    }
    if (!take_text(parser, &text, &length))
        return damaged(parser, "no type");
    parser->npy->swapped = length && *text == (OWN_ORDER == '<' ? '>' : '<');
    if (length == 3 && strchr("<>|=", *text))
        parser->npy->type = kiln__file_type_by_letter(text[1], (size_t)(text[2] - '0'));
    parser->has_type = true;
    if (parser->npy->type)
        return KILN_OK;
    *parser->why = kiln__phrase("kiln has nothing for its type \"%.*s\"",
                                (int)(length < 40 ? length : 40), text);
    kiln__phrase_clean(parser->why);
    return KILN_UNSUPPORTED;
}

static kiln_status read_order(struct parser *parser)
{
    parser->npy->fortran = npy_header_take(parser, "True");
    parser->has_order = parser->npy->fortran || npy_header_take(parser, "False");
    return parser->has_order ? KILN_OK : damaged(parser, "no True or False");
}

/* Digits, and the L that Python 2 wrote after them. */
static bool take_number(struct parser *parser, size_t *number)
{
    skip_blanks(parser);
    if (!isdigit((unsigned char)*parser->at))
        return false;
    for (*number = 0; isdigit((unsigned char)*parser->at); parser->at++) {
        size_t digit = (size_t)(*parser->at - '0');
        if (*number > (SIZE_MAX - digit) / 10)
            return false;
        *number = *number * 10 + digit;
    }
    npy_header_take(parser, "L");
    return true;
}

static kiln_status read_shape(struct parser *parser)
{
    size_t rank = 0, dims[KILN_MAX_RANK];
    bool more = npy_header_take(parser, "(");
    if (!more)
        return damaged(parser, "no shape");
    while (more && !npy_header_take(parser, ")")) {
        if (rank == KILN_MAX_RANK) {
            *parser->why = kiln__phrase("it has more than %d dimensions", KILN_MAX_RANK);
            return KILN_UNSUPPORTED;
        }
        if (!take_number(parser, &dims[rank]))
            return damaged(parser, "no dimension");
        rank++;
        more = npy_header_take(parser, ",");
        if (!more && !npy_header_take(parser, ")"))
            return damaged(parser, "no end of a shape");
    }
    parser->has_shape = true;
    if (kiln__shape_make(rank, dims, &parser->npy->shape))
        return KILN_OK;
    *parser->why = kiln__phrase("its shape has too many elements");
    return KILN_TOO_LARGE;
}

static const struct {
    const char *key;
    size_t had; /* the member that says it was read */
    kiln_status (*read)(struct parser *parser);
} entries[] = {
    {"descr", offsetof(struct parser, has_type), read_type},
    {"fortran_order", offsetof(struct parser, has_order), read_order},
    {"shape", offsetof(struct parser, has_shape), read_shape},
};
enum { ENTRIES = sizeof entries / sizeof *entries };

static kiln_status read_entry(struct parser *parser)
{
    const char *key;
    size_t length;
    if (!take_text(parser, &key, &length) || !npy_header_take(parser, ":"))
        return damaged(parser, "no key");
    for (size_t i = 0; i < ENTRIES; i++)
        if (strlen(entries[i].key) == length && !memcmp(entries[i].key, key, length)) {
            const bool *had = (const bool *)((const char *)parser + entries[i].had);
            return *had ? damaged(parser, "a key twice") : entries[i].read(parser);
        }
    return damaged(parser, "a key that is none");
}

kiln_status kiln__npy_parse(const char *text, struct kiln__npy *npy, struct kiln__phrase *why)
{
    struct parser parser = {.at = text, .npy = npy, .why = why};
    *npy = (struct kiln__npy){0};
    bool more = npy_header_take(&parser, "{");
    if (!more)
        return damaged(&parser, "no dictionary");
    while (more && !npy_header_take(&parser, "}")) {
        kiln_status status = read_entry(&parser);
        if (status)
            return status;
        more = npy_header_take(&parser, ",");
        if (!more && !npy_header_take(&parser, "}"))
            return damaged(&parser, "no end of an entry");
    }
    if (!parser.has_type || !parser.has_order || !parser.has_shape)
        return damaged(&parser, "too few entries");
    skip_blanks(&parser);
    return *parser.at ? damaged(&parser, "more") : KILN_OK;
}

/* ---- writing ---- */

void kiln__npy_print(kiln_type type, const struct kiln__shape *shape, struct kiln__text *text)
{
    enum { BEFORE = KILN__NPY_MAGIC_BYTES + 4, ALIGNMENT = 64 };
    const struct kiln__file_type *row = kiln__file_type_of(type == KILN_BF16 ? KILN_F32 : type);
    struct kiln__text words = {0};
    kiln__text_add(&words, "{'descr': '%c%c%zu', 'fortran_order': False, 'shape': (",
                   row->bytes > 1 ? OWN_ORDER : '|', row->kind, row->bytes);
    for (uint32_t i = 0; i < shape->rank; i++)
        kiln__text_add(&words, "%s%zu", i ? ", " : "", shape->dims[i]);
    kiln__text_add(&words, "%s), }", shape->rank == 1 ? "," : "");
    size_t whole = (BEFORE + words.length + 1 + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t length = whole - BEFORE; /* some 300 at most: two bytes hold it */
    kiln__text_add_bytes(text, KILN__NPY_MAGIC "\x01\0", KILN__NPY_MAGIC_BYTES + 2);
    kiln__text_add_bytes(text, (unsigned char[]){length & 255, (unsigned char)(length >> 8)}, 2);
    kiln__text_add(text, "%s%*s\n", words.data ? words.data : "", (int)(length - words.length - 1),
                   "");
    text->failed = text->failed || words.failed;
    kiln__text_free(&words);
}
