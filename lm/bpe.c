/* SPDX-License-Identifier: Apache-2.0 */
/* Merging pairs in the order of their ranks, by a heap: a long piece takes no longer a byte than a
 * short one. */
#include "lm/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "lm/unicode.h"

bool kiln__tokens_add(struct kiln__tokens *tokens, int32_t number)
{
    if (tokens->count == tokens->capacity) {
        const size_t capacity = tokens->capacity ? 2 * tokens->capacity : 64;
        int32_t *numbers = realloc(tokens->numbers, capacity * sizeof *numbers);
        if (!numbers)
            return false;
        tokens->numbers = numbers;
        tokens->capacity = capacity;
    }
    tokens->numbers[tokens->count++] = number;
    return true;
}

/* ---- merges ---- */

static int compare_pairs(const void *a, const void *b)
{
    const struct kiln__bpe_merge *x = a, *y = b;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    if (x->right != y->right)
        return x->right < y->right ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

void kiln__bpe_order(struct kiln__bpe *bpe)
{
    if (bpe->n_merges)
        qsort(bpe->merges, bpe->n_merges, sizeof *bpe->merges, compare_pairs);
}

void kiln__bpe_free(struct kiln__bpe *bpe)
{
    free(bpe->merges);
    free(bpe->ranks);
}

/* ---- one piece ---- */

/* What a piece is made of so far. The last one's `next` is the count of all. */
struct symbol {
    const char *text;
    uint32_t length; /* 0: merged into the one before it */
    int32_t token;   /* -1: these bytes are none */
    uint32_t before, next;
};

/* A pair that may be merged, unless one of the two has grown meanwhile. */
struct candidate {
    uint32_t rank, place;
    uint32_t length;
    int32_t made;
};

struct piece {
    const struct kiln__bpe *bpe;
    struct symbol *symbols;
    struct candidate *heap;
    uint32_t count;
    size_t heap_count, heap_capacity;
};

static const struct kiln__bpe_merge *find_merge(const struct kiln__bpe *bpe, int32_t left,
                                                int32_t right)
{
    const struct kiln__bpe_merge wanted = {left, right, 0, 0};
    size_t low = 0, high = bpe->n_merges;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_pairs(&bpe->merges[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    const struct kiln__bpe_merge *found = &bpe->merges[low];
    return low < bpe->n_merges && found->left == left && found->right == right ? found : NULL;
}

static bool comes_before(const struct candidate *a, const struct candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->place < b->place);
}

static bool push(struct piece *piece, const struct candidate *candidate)
{
    if (piece->heap_count == piece->heap_capacity) {
        const size_t capacity = piece->heap_capacity ? 2 * piece->heap_capacity : 32;
        struct candidate *heap = realloc(piece->heap, capacity * sizeof *heap);
        if (!heap)
            return false;
        piece->heap = heap;
        piece->heap_capacity = capacity;
    }
    size_t at = piece->heap_count++;
    for (; at && comes_before(candidate, &piece->heap[(at - 1) / 2]); at = (at - 1) / 2)
        piece->heap[at] = piece->heap[(at - 1) / 2];
    piece->heap[at] = *candidate;
    return true;
}

static struct candidate pop(struct piece *piece)
{
    struct candidate *heap = piece->heap;
    const struct candidate first = heap[0], last = heap[--piece->heap_count];
    size_t at = 0, below;
    while ((below = 2 * at + 1) < piece->heap_count) {
        if (below + 1 < piece->heap_count && comes_before(&heap[below + 1], &heap[below]))
            below++;
        if (!comes_before(&heap[below], &last))
            break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = last;
    return first;
}

/* What two symbols make, and how early. */
static bool find_pair(const struct kiln__bpe *bpe, const struct symbol *left,
                      const struct symbol *right, struct candidate *candidate)
{
    candidate->length = left->length + right->length;
    if (bpe->ranks) {
        candidate->made = kiln__vocabulary_find(bpe->vocabulary, left->text, candidate->length);
        candidate->rank = candidate->made >= 0 ? bpe->ranks[candidate->made] : 0;
        return candidate->made >= 0;
    }
    const struct kiln__bpe_merge *merge = find_merge(bpe, left->token, right->token);
    candidate->made = merge ? merge->made : -1;
    candidate->rank = merge ? merge->rank : 0;
    return merge;
}

/* The symbol at a place and the one behind it, if they merge. */
static bool consider(struct piece *piece, uint32_t place)
{
    const struct symbol *left = &piece->symbols[place];
    struct candidate candidate = {.place = place};
    return left->next == piece->count ||
           !find_pair(piece->bpe, left, &piece->symbols[left->next], &candidate) ||
           push(piece, &candidate);
}

static bool merge_one(struct piece *piece, const struct candidate *candidate)
{
    struct symbol *symbols = piece->symbols, *left = &symbols[candidate->place];
    const uint32_t right = left->next;
    if (!left->length || right == piece->count ||
        left->length + symbols[right].length != candidate->length)
        return true;
    left->token = candidate->made;
    left->length = candidate->length;
    left->next = symbols[right].next;
    symbols[right].length = 0;
    if (left->next < piece->count)
        symbols[left->next].before = candidate->place;
    return (!candidate->place || consider(piece, left->before)) &&
           consider(piece, candidate->place);
}

/* Bytes, or characters. */
static void begin_piece(struct piece *piece, const char *text, size_t bytes)
{
    const struct kiln__bpe *bpe = piece->bpe;
    piece->count = 0;
    piece->heap_count = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        const uint32_t place = piece->count;
        int32_t point, token = bpe->bytes[(unsigned char)text[at]];
        length = bpe->rule ? 1 : kiln__unicode_next(text + at, bytes - at, &point);
        const int32_t character =
            bpe->rule ? -1 : kiln__vocabulary_find(bpe->vocabulary, text + at, length);
        if (character >= 0 || bpe->ranks)
            token = character;
        else
            length = 1; /* of a character that is none */
        if (token >= 0 || bpe->ranks)
            piece->symbols[piece->count++] = (struct symbol){text + at, (uint32_t)length, token,
                                                             place ? place - 1 : 0, place + 1};
    }
}

/* A symbol's token, or those of its bytes. */
static bool add_symbol(const struct kiln__bpe *bpe, const struct symbol *symbol,
                       struct kiln__tokens *tokens)
{
    bool fine = true;
    if (symbol->token >= 0)
        return kiln__tokens_add(tokens, symbol->token);
    for (uint32_t i = 0; i < symbol->length && fine; i++) {
        const int32_t byte = bpe->bytes[(unsigned char)symbol->text[i]];
        const int32_t token = byte >= 0 ? byte : bpe->unknown;
        fine = token < 0 || kiln__tokens_add(tokens, token);
    }
    return fine;
}

static bool encode_piece(struct piece *piece, const char *text, size_t bytes,
                         struct kiln__tokens *tokens)
{
    bool fine = true;
    begin_piece(piece, text, bytes);
    for (uint32_t i = 0; i < piece->count && fine; i++)
        fine = consider(piece, i);
    while (piece->heap_count && fine) {
        const struct candidate candidate = pop(piece);
        fine = merge_one(piece, &candidate);
    }
    for (uint32_t i = 0; i < piece->count && fine; i = piece->symbols[i].next)
        fine = add_symbol(piece->bpe, &piece->symbols[i], tokens);
    return fine;
}

/* ---- a text ---- */

static bool encode_whole(const struct kiln__bpe *bpe, const char *text, size_t bytes,
                         struct kiln__tokens *tokens)
{
    struct piece piece = {.bpe = bpe};
    piece.symbols = bytes < UINT32_MAX / 2 ? malloc((bytes + 1) * sizeof *piece.symbols) : NULL;
    const bool fine = piece.symbols && encode_piece(&piece, text, bytes, tokens);
    free(piece.symbols);
    free(piece.heap);
    return fine;
}

/* One piece, in which U+2581 and spaces are the same. */
static bool encode_spaced(const struct kiln__bpe *bpe, const char *text, size_t bytes, bool leads,
                          struct kiln__tokens *tokens)
{
    char *spaced = malloc(bytes + 1);
    if (!spaced)
        return false;
    *spaced = ' ';
    const size_t length = kiln__spaced(text, bytes, spaced + leads) + leads;
    const bool fine = encode_whole(bpe, spaced, length, tokens);
    free(spaced);
    return fine;
}

bool kiln__bpe_encode(const struct kiln__bpe *bpe, const char *text, size_t bytes, bool begins,
                      struct kiln__tokens *tokens)
{
    struct piece piece = {.bpe = bpe};
    if (bpe->ranks)
        return encode_spaced(bpe, text, bytes, begins && bpe->leads, tokens);
    if (!bpe->rule)
        return encode_whole(bpe, text, bytes, tokens);
    size_t capacity = 0, length;
    const char *at;
    bool fine = true;
    struct kiln__split split = kiln__split_begin(bpe->rule, text, bytes);
    while (fine && (length = kiln__split_next(&split, &at)) > 0) {
        const int32_t whole = bpe->whole ? kiln__vocabulary_find(bpe->vocabulary, at, length) : -1;
        if (length > capacity) {
            free(piece.symbols);
            capacity = 2 * length;
            piece.symbols =
                length < UINT32_MAX / 2 ? malloc(capacity * sizeof *piece.symbols) : NULL;
            fine = piece.symbols != NULL;
        }
        if (fine)
            fine = whole >= 0 ? kiln__tokens_add(tokens, whole)
                              : encode_piece(&piece, at, length, tokens);
    }
    free(piece.symbols);
    free(piece.heap);
    return fine;
}
