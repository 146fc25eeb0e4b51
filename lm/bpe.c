/* SPDX-License-Identifier: Apache-2.0 */
/* Merging pairs in the order of their ranks, by a heap: a long piece takes no longer a byte than a
 * short one. */
#include "lm/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "lm/error.h"

struct kiln__bpe_merge {
    int32_t left, right, made;
    uint32_t rank;
};

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

/* ---- from the file ---- */

static int compare_pairs(const void *a, const void *b)
{
    const struct kiln__bpe_merge *x = a, *y = b;
    if (x->left != y->left)
        return x->left < y->left ? -1 : 1;
    if (x->right != y->right)
        return x->right < y->right ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* "left right": the first space behind the first character parts them. `room` has as many bytes as
 * the text. */
static bool read_merge(const struct kiln__vocabulary *vocabulary, struct kiln__gguf_text text,
                       char *room, struct kiln__bpe_merge *merge)
{
    const char *space = text.length > 1 ? memchr(text.bytes + 1, ' ', text.length - 1) : NULL;
    if (!space)
        return false;
    const size_t before = (size_t)(space - text.bytes);
    const size_t left = kiln__byte_level(text.bytes, before, room);
    const size_t right = kiln__byte_level(space + 1, text.length - before - 1, room + left);
    merge->left = kiln__vocabulary_find(vocabulary, room, left);
    merge->right = kiln__vocabulary_find(vocabulary, room + left, right);
    merge->made = kiln__vocabulary_find(vocabulary, room, left + right);
    return merge->left >= 0 && merge->right >= 0 && merge->made >= 0;
}

static kiln_status read_merges(const struct kiln__gguf *gguf, const struct kiln__gguf_key *key,
                               struct kiln__bpe *bpe)
{
    const uint8_t *at = key->values;
    size_t longest = 1;
    for (size_t i = 0; i < key->count; i++) {
        const size_t length = kiln__gguf_next_text(&at).length;
        longest = length > longest ? length : longest;
    }
    char *room = malloc(longest);
    bpe->merges = malloc((key->count + 1) * sizeof *bpe->merges);
    kiln_status status = room && bpe->merges ? KILN_OK : kiln__lm_no_memory("kiln_lm_load");
    at = key->values;
    for (size_t i = 0; i < key->count && !status; i++) {
        const struct kiln__gguf_text text = kiln__gguf_next_text(&at);
        bpe->merges[i].rank = (uint32_t)i;
        if (!read_merge(bpe->vocabulary, text, room, &bpe->merges[i]))
            status = kiln__lm_fail(KILN_INVALID_ARGUMENT,
                                   "kiln_lm_load: %s: merge %zu, \"%.*s\", is no pair of tokens "
                                   "that makes a token",
                                   gguf->path, i, KILN__GGUF_SAID(text));
    }
    free(room);
    if (!status && key->count)
        qsort(bpe->merges, key->count, sizeof *bpe->merges, compare_pairs);
    bpe->n_merges = key->count;
    return status;
}

kiln_status kiln__bpe_read(const struct kiln__gguf *gguf, const struct kiln__vocabulary *vocabulary,
                           struct kiln__bpe *bpe)
{
    struct kiln__gguf_text name = {"none", 4};
    const struct kiln__gguf_key *key;
    kiln_status status = kiln__gguf_string(gguf, "tokenizer.ggml.pre", &name);
    bpe->vocabulary = vocabulary;
    bpe->rule = kiln__split_rule(name);
    if (!status && !bpe->rule)
        status = kiln__lm_fail(KILN_UNSUPPORTED,
                               "kiln_lm_load: %s: the pre-tokenizer is \"%.*s\"; kiln knows %s",
                               gguf->path, KILN__GGUF_SAID(name), kiln__split_names());
    if (!status)
        status = kiln__gguf_array(gguf, "tokenizer.ggml.merges", KILN__GGUF_STRING, &key);
    if (status)
        return status;
    for (int byte = 0; byte < 256; byte++) {
        const char bytes[] = {(char)byte};
        bpe->bytes[byte] = kiln__vocabulary_find(vocabulary, bytes, 1);
    }
    return read_merges(gguf, key, bpe);
}

void kiln__bpe_free(struct kiln__bpe *bpe)
{
    free(bpe->merges);
}

/* ---- one piece ---- */

/* What a piece is made of so far. The last one's `next` is the count of all. */
struct symbol {
    int32_t token; /* -1: merged into the one before it */
    uint32_t before, next;
};

/* A pair that may be merged, unless one of the two has changed meanwhile. */
struct candidate {
    uint32_t rank, place;
    int32_t left, right, made;
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

/* The symbol at a place and the one behind it, if they merge. */
static bool consider(struct piece *piece, uint32_t place)
{
    const struct symbol *left = &piece->symbols[place];
    if (left->next == piece->count)
        return true;
    const int32_t right = piece->symbols[left->next].token;
    const struct kiln__bpe_merge *merge = find_merge(piece->bpe, left->token, right);
    return !merge ||
           push(piece, &(struct candidate){merge->rank, place, left->token, right, merge->made});
}

static bool merge_one(struct piece *piece, const struct candidate *candidate)
{
    struct symbol *symbols = piece->symbols, *left = &symbols[candidate->place];
    const uint32_t right = left->next;
    if (left->token != candidate->left || right == piece->count ||
        symbols[right].token != candidate->right)
        return true;
    left->token = candidate->made;
    left->next = symbols[right].next;
    symbols[right].token = -1;
    if (left->next < piece->count)
        symbols[left->next].before = candidate->place;
    return (!candidate->place || consider(piece, left->before)) &&
           consider(piece, candidate->place);
}

static bool encode_piece(struct piece *piece, const char *text, size_t bytes,
                         struct kiln__tokens *tokens)
{
    const struct kiln__bpe *bpe = piece->bpe;
    bool fine = true;
    piece->count = 0;
    piece->heap_count = 0;
    for (size_t i = 0; i < bytes; i++) {
        const int32_t token = bpe->bytes[(unsigned char)text[i]];
        const uint32_t at = piece->count;
        if (token >= 0)
            piece->symbols[piece->count++] = (struct symbol){token, at ? at - 1 : 0, at + 1};
    }
    for (uint32_t i = 0; i < piece->count && fine; i++)
        fine = consider(piece, i);
    while (piece->heap_count && fine) {
        const struct candidate candidate = pop(piece);
        fine = merge_one(piece, &candidate);
    }
    for (uint32_t i = 0; i < piece->count && fine; i = piece->symbols[i].next)
        fine = kiln__tokens_add(tokens, piece->symbols[i].token);
    return fine;
}

/* ---- a text ---- */

bool kiln__bpe_encode(const struct kiln__bpe *bpe, const char *text, size_t bytes,
                      struct kiln__tokens *tokens)
{
    struct piece piece = {.bpe = bpe};
    size_t capacity = 0, length;
    const char *at;
    bool fine = true;
    struct kiln__split split = kiln__split_begin(bpe->rule, text, bytes);
    while (fine && (length = kiln__split_next(&split, &at)) > 0) {
        const int32_t whole =
            bpe->rule->whole ? kiln__vocabulary_find(bpe->vocabulary, at, length) : -1;
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
