/* SPDX-License-Identifier: Apache-2.0 */
/* Who comes, who leaves, and whether their logits are those that they had alone. */
#include "lm_company.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../support/cache.h"
#include "lm/batcher.h"

enum {
    SLOTS = 32,
    TEXTS = 48,
    LONGEST = 300, /* of a prompt */
    MOST_ANSWER = 64,
    CONTEXT = LONGEST + MOST_ANSWER,
    STAYS = 150,      /* steps in which company is of one size */
    CANCELLED_OF = 40 /* texts, one */
};

static const struct {
    const char *name, *file;
    kiln_type weights;
} models[] = {
    {"llama, Q8_0, Q4_1 and Q6_K", "tiny.gguf", 0},
    {"gemma3", "gemma3.gguf", 0},
    {"phi3", "phi3.gguf", 0},
    {"mistral with its window", "mistral.gguf", 0},
    {"llama in bf16", "tiny.gguf", KILN_BF16},
    {"llama in f16", "tiny.gguf", KILN_F16},
    {"gemma3 in f32", "gemma3.gguf", KILN_F32},
};

/* A text, and its logits where it is alone. */
struct text {
    int32_t prompt[LONGEST];
    size_t length, answer; /* tokens */
    kiln_lm_request_options options;
    float *logits; /* [answer,words] */
};

/* A text under way. */
struct guest {
    kiln_lm_request *request; /* NULL: none */
    const struct text *text;
    size_t seen; /* tokens of its answer */
};

struct company {
    unsigned model;
    kiln_lm *lm;
    kiln_lm_batcher *batcher;
    size_t words;
    uint64_t random;
    struct text texts[TEXTS];
    struct guest guests[SLOTS];
    unsigned size; /* guests that there are to be */
    unsigned last; /* number of the text that came last */
};

unsigned company_models(void)
{
    return sizeof models / sizeof *models;
}

const char *company_name(unsigned model)
{
    return models[model].name;
}

static bool complain(const struct company *company)
{
    printf("%s: %s\n", models[company->model].name, kiln_last_error());
    return false;
}

static unsigned below(struct company *company, unsigned count)
{
    return (unsigned)(fake_random(&company->random) >> 20) % count;
}

/* ---- texts ---- */

/* Half of them begin as the one before does, with one part or two of 128 tokens. */
static void make_text(struct company *company, unsigned number)
{
    struct text *text = &company->texts[number];
    text->length = 1 + below(company, LONGEST);
    text->answer = 1 + below(company, MOST_ANSWER);
    for (size_t i = 0; i < LONGEST; i++)
        text->prompt[i] = 3 + (int32_t)below(company, (unsigned)company->words - 3);
    if (number % 2) {
        memcpy(text->prompt, text[-1].prompt, (number % 4 == 1 ? 128 : 256) * sizeof *text->prompt);
        text->length = LONGEST - below(company, 40);
    }
    kiln_lm_request_options_init(&text->options);
    text->options.max_tokens = text->answer;
    text->options.temperature = number % 3 ? 0 : 1.2;
    text->options.seed = number;
}

static bool submit(struct company *company, const struct text *text, kiln_lm_request **request)
{
    return !kiln_lm_batcher_submit(company->batcher, text->prompt, text->length, &text->options,
                                   request) ||
           complain(company);
}

/* Behind a text of one token, so that nothing of its prompt has been read before. */
static bool run_alone(struct company *company, struct text *text)
{
    struct text other = {.length = 1, .answer = 1};
    kiln_lm_request *before, *request;
    kiln_lm_request_options_init(&other.options);
    other.options.max_tokens = 1;
    text->logits = malloc(text->answer * company->words * sizeof *text->logits);
    if (!text->logits || !submit(company, &other, &before))
        return false;
    kiln_status status;
    while (!(status = kiln_lm_batcher_step(company->batcher)))
        ;
    kiln_lm_request_release(before);
    if (status != KILN_NOT_READY || !submit(company, text, &request))
        return complain(company);
    size_t done = 0;
    while (!(status = kiln_lm_batcher_step(company->batcher)))
        if (request->length > text->length + done)
            memcpy(text->logits + done++ * company->words, request->logits,
                   company->words * sizeof *text->logits);
    text->answer = done; /* it may have ended with a token that ends an answer */
    kiln_lm_request_release(request);
    return status == KILN_NOT_READY || complain(company);
}

/* ---- company ---- */

static void leave(struct guest *guest)
{
    kiln_lm_request_release(guest->request);
    guest->request = NULL;
}

/* Often the text behind the last one, which begins as that does. */
static bool invite(struct company *company, struct guest *guest)
{
    company->last = (below(company, 2) ? company->last + 1 : below(company, TEXTS)) % TEXTS;
    guest->text = &company->texts[company->last];
    guest->seen = 0;
    return submit(company, guest->text, &guest->request);
}

static void compare(const struct company *company, struct guest *guest, struct company_seen *seen)
{
    const size_t row = company->words * sizeof(float);
    if (guest->request->length == guest->text->length + guest->seen)
        return;
    const float *alone = guest->text->logits + guest->seen * company->words;
    seen->tokens++;
    if (guest->seen >= guest->text->answer || memcmp(alone, guest->request->logits, row) != 0) {
        if (!seen->differences++)
            printf("%s: text %td of %zu tokens differs at token %zu\n", models[company->model].name,
                   guest->text - company->texts, guest->text->length, guest->seen);
    }
    guest->seen++;
}

static bool look(struct company *company, struct guest *guest, struct company_seen *seen)
{
    compare(company, guest, seen);
    const kiln_status status = kiln_lm_request_poll(guest->request);
    if (status == KILN_NOT_READY) {
        if (below(company, CANCELLED_OF * MOST_ANSWER) == 0) {
            leave(guest);
            seen->cancelled++;
        }
        return true;
    }
    seen->texts++;
    leave(guest);
    return !status || complain(company);
}

static bool step(struct company *company, struct company_seen *seen)
{
    unsigned there = 0;
    bool invited = false;
    for (unsigned i = 0; i < company->size; i++) {
        if (!company->guests[i].request && !invited) { /* one comes at a time */
            if (!invite(company, &company->guests[i]))
                return false;
            invited = true;
        }
        there += company->guests[i].request != NULL;
    }
    seen->most = there > seen->most ? there : seen->most;
    if (kiln_lm_batcher_step(company->batcher))
        return complain(company);
    for (unsigned i = 0; i < SLOTS; i++)
        if (company->guests[i].request && !look(company, &company->guests[i], seen))
            return false;
    return true;
}

bool company_go_on(struct company *company, unsigned long tokens, struct company_seen *seen)
{
    kiln_lm_batcher_stats stats;
    const unsigned long until = seen->tokens + tokens;
    for (unsigned long steps = 0; seen->tokens < until; steps++) {
        if (steps % STAYS == 0) {
            company->size = 2 + below(company, SLOTS - 1);
            for (unsigned i = company->size; i < SLOTS; i++)
                if (company->guests[i].request)
                    leave(&company->guests[i]);
        }
        if (!step(company, seen))
            return false;
    }
    if (kiln_lm_batcher_get_stats(company->batcher, &stats))
        return complain(company);
    seen->shared = (unsigned long)stats.shared_tokens;
    return true;
}

/* ---- beginning and end ---- */

static bool open_model(struct company *company, kiln_context *context)
{
    kiln_lm_options options = KILN_LM_OPTIONS_INIT;
    kiln_lm_batcher_options batcher = KILN_LM_BATCHER_OPTIONS_INIT;
    kiln_lm_info info;
    const char *source = getenv("srcdir");
    char path[4096];
    snprintf(path, sizeof path, "%s/tests/lm/%s", source ? source : ".",
             models[company->model].file);
    options.weights = models[company->model].weights;
    batcher.slots = SLOTS;
    batcher.context = CONTEXT;
    if (kiln_lm_load(context, path, &options, &company->lm) ||
        kiln_lm_get_info(company->lm, &info) ||
        kiln_lm_batcher_create(company->lm, &batcher, &company->batcher))
        return complain(company);
    company->words = info.vocabulary;
    return true;
}

struct company *company_begin(kiln_context *context, unsigned model)
{
    struct company *company = calloc(1, sizeof *company);
    if (!company)
        return NULL;
    company->model = model;
    company->random = model + 1;
    bool fine = open_model(company, context);
    for (unsigned i = 0; i < TEXTS && fine; i++) {
        make_text(company, i);
        fine = run_alone(company, &company->texts[i]);
    }
    if (fine)
        return company;
    company_end(company);
    return NULL;
}

void company_end(struct company *company)
{
    for (unsigned i = 0; i < SLOTS; i++)
        leave(&company->guests[i]);
    for (unsigned i = 0; i < TEXTS; i++)
        free(company->texts[i].logits);
    kiln_lm_batcher_release(company->batcher);
    kiln_lm_release(company->lm);
    free(company);
}
