/* SPDX-License-Identifier: Apache-2.0 */
/* Which tokenizer a file has. */
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

#ifdef HAVE_LM
#include <kiln/lm.h>
#endif

#include "../lm/subwords.h"
#include "../lm/wordpiece.h"

static bool read_json(const struct kiln__tokenizer_json *reading, struct tokenizer *to)
{
    const char *type = kiln__json_text(json_object_get(reading->root, "model"), "type");
    if (!kiln__tokenizer_read_around(reading))
        return false;
    if (!strcmp(type, "WordPiece"))
        return (to->words = kiln__wordpiece_read(reading)) != NULL;
    return (to->subwords = kiln__subwords_read(reading)) != NULL;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), tail = strlen(end);
    return length >= tail && !strcmp(text + length - tail, end);
}

struct tokenizer *tokenizer_open(const char *path, char error[KILN__TOKENIZER_ERROR])
{
    struct tokenizer *to = calloc(1, sizeof *to);
    struct kiln__tokenizer_json reading = {path, NULL, error, to ? &to->facts : NULL};
    json_error_t why;
    bool fine = to || kiln__tokenizer_refuse(&reading, "out of memory");
    if (fine && !ends_with(path, ".json")) {
        fine = (to->words = kiln__wordpiece_read(&reading)) != NULL;
    } else if (fine) {
        json_t *root = json_load_file(path, 0, &why);
        reading.root = root;
        fine = root ? read_json(&reading, to) : kiln__tokenizer_refuse(&reading, "%s", why.text);
        json_decref(root);
    }
    if (fine)
        return to;
    tokenizer_close(to);
    return NULL;
}

#ifdef HAVE_LM
struct tokenizer *tokenizer_of_model(kiln_lm *lm)
{
    struct tokenizer *to = calloc(1, sizeof *to);
    kiln_lm_info info;
    if (!to || kiln_lm_get_info(lm, &info)) {
        free(to);
        return NULL;
    }
    to->lm = lm;
    to->facts.around = (struct kiln__tokenizer_around){{info.begin}, {info.end}, 1, 1};
    to->facts.largest = (int32_t)info.vocabulary - 1;
    return to;
}

static bool encode_by_model(const struct tokenizer *tokenizer, const char *text, size_t bytes,
                            size_t most, int32_t *ids, size_t *count)
{
    int32_t *tokens;
    if (kiln_lm_tokenize(tokenizer->lm, text, bytes, KILN_LM_CONTROL, &tokens, count))
        return false;
    if (*count > most)
        *count = most;
    memcpy(ids, tokens, *count * sizeof *ids);
    kiln_free(tokens);
    return true;
}
#endif

struct tokenizer *tokenizer_share(const struct tokenizer *tokenizer)
{
    struct tokenizer *shared = malloc(sizeof *shared);
    if (!shared)
        return NULL;
    *shared = *tokenizer;
    if (tokenizer->words)
        kiln__wordpiece_hold(tokenizer->words);
    if (tokenizer->subwords)
        kiln__subwords_hold(tokenizer->subwords);
    return shared;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    kiln__wordpiece_close(tokenizer->words);
    kiln__subwords_close(tokenizer->subwords);
    free(tokenizer);
}

static bool encode(const struct tokenizer *tokenizer, const char *text, size_t bytes, size_t most,
                   int32_t *ids, size_t *count)
{
    const struct kiln__reading reading = {text, bytes, true, NULL};
    struct kiln__tokens tokens = {0};
#ifdef HAVE_LM
    if (tokenizer->lm)
        return encode_by_model(tokenizer, text, bytes, most, ids, count);
#endif
    const bool fine = tokenizer->words
                          ? kiln__wordpiece_encode(tokenizer->words, text, bytes, most, &tokens)
                          : kiln__subwords_encode(tokenizer->subwords, &reading, most, &tokens);
    *count = tokens.count;
    if (tokens.count)
        memcpy(ids, tokens.numbers, tokens.count * sizeof *ids);
    free(tokens.numbers);
    return fine;
}

bool tokenizer_encode(struct tokenizer *tokenizer, const char *text, size_t bytes, size_t most,
                      int32_t *ids, size_t *count)
{
    const struct kiln__tokenizer_around *around = &tokenizer->facts.around;
    const size_t after = around->after_count, room = most > after ? most - after : 0;
    size_t begin = 0, own = 0;
    while (begin < around->before_count && begin < room) {
        ids[begin] = around->before[begin];
        begin++;
    }
    if (!encode(tokenizer, text, bytes, room - begin, ids + begin, &own))
        return false;
    *count = begin + own;
    for (size_t i = 0; i < after && *count < most; i++)
        ids[(*count)++] = around->after[i];
    return true;
}
