/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of jinja_*.c share: values, nodes, and a run, which ends at the first error by a
 * jump out of whatever it is in. All that it makes lies in rooms that are freed together. */
#ifndef KILN_LM_JINJA_PARTS_H
#define KILN_LM_JINJA_PARTS_H

#include <setjmp.h>
#include <stdint.h>

#include "lm/jinja.h"

enum {
    KILN__JINJA_DEPTH = 100,     /* of expressions, blocks and values within each other */
    KILN__JINJA_ARGUMENTS = 8,   /* of a call */
    KILN__JINJA_STEPS = 1 << 22, /* of a run */
};

/* ---- values ---- */

enum kiln__jinja_kind {
    KILN__JINJA_UNDEFINED, /* `text` is what has no value */
    KILN__JINJA_NONE,
    KILN__JINJA_TRUTH,
    KILN__JINJA_WHOLE,
    KILN__JINJA_TEXT,
    KILN__JINJA_LIST,
    KILN__JINJA_DICT
};

struct kiln__jinja_value {
    enum kiln__jinja_kind kind;
    int64_t whole; /* of a truth, too */
    struct kiln__jinja_text text;
    struct kiln__jinja_list *list;
    struct kiln__jinja_dict *dict;
};

struct kiln__jinja_list {
    size_t count, capacity;
    struct kiln__jinja_value *items;
};

/* Keys are texts, in the order in which they came. */
struct kiln__jinja_dict {
    size_t count, capacity;
    struct kiln__jinja_pair *pairs;
    bool is_namespace; /* `set` may change it */
};

struct kiln__jinja_pair {
    struct kiln__jinja_text key;
    struct kiln__jinja_value value;
};

/* A text that grows. */
struct kiln__jinja_builder {
    char *bytes, *given;
    size_t length, capacity;
};

/* ---- nodes ---- */

enum kiln__jinja_node_kind {
    KILN__NODE_DATA,  /* text */
    KILN__NODE_PRINT, /* a */
    KILN__NODE_IF,    /* a; b, else c: bodies */
    KILN__NODE_FOR,   /* text, other: names; a: list, b: condition; items: body, c: else */
    KILN__NODE_SET,   /* text, other: attribute; a, or the text of the body `items` */
    KILN__NODE_BREAK,
    KILN__NODE_CONTINUE,
    KILN__NODE_BODY,  /* items */
    KILN__NODE_VALUE, /* value */
    KILN__NODE_NAME,  /* text */
    KILN__NODE_LIST,  /* items */
    KILN__NODE_DICT,  /* items: pairs of key a, value b */
    KILN__NODE_PAIR,
    KILN__NODE_DOT,    /* a.text */
    KILN__NODE_INDEX,  /* a[b] */
    KILN__NODE_SLICE,  /* a[items: three] */
    KILN__NODE_CALL,   /* a(items) */
    KILN__NODE_FILTER, /* a | text(items) */
    KILN__NODE_TEST,   /* a is text(items) */
    KILN__NODE_CHOICE, /* b if a else c */
    KILN__NODE_NOT,    /* a */
    KILN__NODE_NEGATE,
    KILN__NODE_OR, /* a, b */
    KILN__NODE_AND,
    KILN__NODE_EQUAL,
    KILN__NODE_UNEQUAL,
    KILN__NODE_LESS,
    KILN__NODE_GREATER,
    KILN__NODE_AT_MOST,
    KILN__NODE_AT_LEAST,
    KILN__NODE_IN,
    KILN__NODE_NOT_IN,
    KILN__NODE_ADD,
    KILN__NODE_SUBTRACT,
    KILN__NODE_JOIN,
    KILN__NODE_MULTIPLY,
    KILN__NODE_DIVIDE,
    KILN__NODE_MODULO
};

struct kiln__jinja_node {
    enum kiln__jinja_node_kind kind;
    int depth;                           /* of the nodes below it */
    size_t place;                        /* in the source */
    struct kiln__jinja_text text, other; /* an argument's name is `other` */
    struct kiln__jinja_value value;
    struct kiln__jinja_node *a, *b, *c;
    struct kiln__jinja_node *items, *next;
};

/* ---- tokens ---- */

enum kiln__jinja_token_kind {
    KILN__TOKEN_DATA,
    KILN__TOKEN_PRINT,     /* {{ */
    KILN__TOKEN_PRINT_END, /* }} */
    KILN__TOKEN_BLOCK,     /* {% */
    KILN__TOKEN_BLOCK_END, /* %} */
    KILN__TOKEN_NAME,
    KILN__TOKEN_TEXT,
    KILN__TOKEN_WHOLE,
    KILN__TOKEN_SIGN, /* an operator, a bracket */
    KILN__TOKEN_END
};

struct kiln__jinja_token {
    enum kiln__jinja_token_kind kind;
    size_t place;
    struct kiln__jinja_text text; /* of a text what it says */
    int64_t whole;
};

struct kiln__jinja_tokens {
    size_t count, capacity;
    struct kiln__jinja_token *items;
};

/* ---- a run ---- */

/* The newest comes last and is found first; a loop's turn forgets what it has set. */
struct kiln__jinja_names {
    size_t count, capacity;
    size_t scope; /* names from here on belong to the innermost turn */
    struct kiln__jinja_pair *pairs;
};

struct kiln__jinja {
    jmp_buf end;
    kiln_status status;
    const struct kiln__jinja_request *request;
    struct kiln__jinja_text source; /* new lines are \n */
    size_t place;                   /* in it, for sentences */
    struct kiln__jinja_room *rooms; /* each points to the one before it */
    size_t left;                    /* bytes that may still be taken */
    size_t steps, looked;           /* `looked`: bytes that have not become steps */
    int depth;                      /* of values within each other, while they are walked through */
    struct kiln__jinja_names names;
    struct kiln__jinja_builder text;    /* what comes of it */
    struct kiln__jinja_builder *output; /* where it is written: `text`, or what `set` takes */
};

/* Ends the run: a sentence with the call and the line. */
_Noreturn void kiln__jinja_fail(struct kiln__jinja *j, kiln_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For "%.*s": most of a text in a sentence. */
#define KILN__JINJA_SAID(text) (int)((text).length < 100 ? (text).length : 100), (text).bytes

/* Counts a step, and work on so many bytes: a run ends in time. */
void kiln__jinja_work(struct kiln__jinja *j, size_t bytes);

/* Counts bytes that are looked at beside a step. */
void kiln__jinja_look(struct kiln__jinja *j, size_t bytes);

/* One value deeper, and back. */
void kiln__jinja_enter(struct kiln__jinja *j);
void kiln__jinja_leave(struct kiln__jinja *j);

/* Zeros, until the run ends. */
void *kiln__jinja_take(struct kiln__jinja *j, size_t bytes);
void kiln__jinja_free_rooms(struct kiln__jinja *j);

/* Room for one element more behind `count` of a growing array. */
void *kiln__jinja_grow(struct kiln__jinja *j, void *items, size_t count, size_t *capacity,
                       size_t size);

/* ---- from a source to nodes ---- */

struct kiln__jinja_tokens kiln__jinja_lex(struct kiln__jinja *j);
struct kiln__jinja_node *kiln__jinja_parse(struct kiln__jinja *j);

/* ---- running ---- */

/* Give a name of the innermost turn a value. */
void kiln__jinja_set(struct kiln__jinja *j, struct kiln__jinja_text name,
                     struct kiln__jinja_value value);
void kiln__jinja_run(struct kiln__jinja *j, const struct kiln__jinja_node *body);

/* ---- texts ---- */

struct kiln__jinja_text kiln__jinja_word(const char *word);
bool kiln__jinja_is(struct kiln__jinja_text text, const char *word);
bool kiln__jinja_same(struct kiln__jinja_text a, struct kiln__jinja_text b);
struct kiln__jinja_text kiln__jinja_part(struct kiln__jinja_text text, size_t from, size_t to);

/* Where `part` lies in a text, from a place on; SIZE_MAX: nowhere. */
size_t kiln__jinja_find(struct kiln__jinja *j, struct kiln__jinja_text text,
                        struct kiln__jinja_text part, size_t from);

/* Without characters of `which` at its beginning and at its end; white space where it is NULL. */
struct kiln__jinja_text kiln__jinja_strip(struct kiln__jinja *j, struct kiln__jinja_text text,
                                          const struct kiln__jinja_text *which, bool front,
                                          bool back);

/* Behind the character that begins at a place. */
size_t kiln__jinja_step(struct kiln__jinja_text text, size_t at);

/* Room for so many bytes in all. */
void kiln__jinja_reserve(struct kiln__jinja *j, struct kiln__jinja_builder *builder,
                         size_t capacity);
void kiln__jinja_append(struct kiln__jinja *j, struct kiln__jinja_builder *builder,
                        struct kiln__jinja_text text);
struct kiln__jinja_text kiln__jinja_built(const struct kiln__jinja_builder *builder);

/* ---- values ---- */

struct kiln__jinja_value kiln__jinja_truth(bool truth);
struct kiln__jinja_value kiln__jinja_whole(int64_t whole);
struct kiln__jinja_value kiln__jinja_of_text(struct kiln__jinja_text text);
struct kiln__jinja_value kiln__jinja_undefined(struct kiln__jinja_text name);
struct kiln__jinja_value kiln__jinja_new_list(struct kiln__jinja *j);
struct kiln__jinja_value kiln__jinja_new_dict(struct kiln__jinja *j);
void kiln__jinja_add(struct kiln__jinja *j, struct kiln__jinja_list *list,
                     struct kiln__jinja_value item);
void kiln__jinja_put(struct kiln__jinja *j, struct kiln__jinja_dict *dict,
                     struct kiln__jinja_text key, struct kiln__jinja_value value);

/* NULL: there is none. */
struct kiln__jinja_value *kiln__jinja_get(struct kiln__jinja *j,
                                          const struct kiln__jinja_dict *dict,
                                          struct kiln__jinja_text key);

const char *kiln__jinja_kind_name(struct kiln__jinja_value value);
bool kiln__jinja_is_true(struct kiln__jinja_value value);
bool kiln__jinja_equal(struct kiln__jinja *j, struct kiln__jinja_value a,
                       struct kiln__jinja_value b);
bool kiln__jinja_contains(struct kiln__jinja *j, struct kiln__jinja_value whole,
                          struct kiln__jinja_value part);

/* As it is printed. */
struct kiln__jinja_text kiln__jinja_print(struct kiln__jinja *j, struct kiln__jinja_value value);

/* What a loop goes over: elements, keys, characters. */
struct kiln__jinja_list *kiln__jinja_items(struct kiln__jinja *j, struct kiln__jinja_value value);

/* object[key]; undefined where there is none. */
struct kiln__jinja_value kiln__jinja_index(struct kiln__jinja *j, struct kiln__jinja_value object,
                                           struct kiln__jinja_value key);

/* Ends the run if a value is undefined: its name has none. */
void kiln__jinja_need(struct kiln__jinja *j, struct kiln__jinja_value value);

/* ---- calls ---- */

/* What stands in brackets: names are empty but for keywords. */
struct kiln__jinja_arguments {
    size_t count;
    struct kiln__jinja_pair given[KILN__JINJA_ARGUMENTS];
};

struct kiln__jinja_value kiln__jinja_filter(struct kiln__jinja *j, struct kiln__jinja_text name,
                                            struct kiln__jinja_value self,
                                            const struct kiln__jinja_arguments *arguments);
bool kiln__jinja_test(struct kiln__jinja *j, struct kiln__jinja_text name,
                      struct kiln__jinja_value self, const struct kiln__jinja_arguments *arguments);
struct kiln__jinja_value kiln__jinja_method(struct kiln__jinja *j, struct kiln__jinja_text name,
                                            struct kiln__jinja_value self,
                                            const struct kiln__jinja_arguments *arguments);
struct kiln__jinja_value kiln__jinja_function(struct kiln__jinja *j, struct kiln__jinja_text name,
                                              const struct kiln__jinja_arguments *arguments);

#endif
