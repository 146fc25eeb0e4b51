/* SPDX-License-Identifier: Apache-2.0 */
/* Logarithms of probabilities, kept beside the tokens of an answer. */
#include <math.h>
#include <string.h>

#include "lm/batcher.h"

/* Of all logits, in double precision; the largest taken out, so that nothing overflows. An infinite
 * one is the sum. */
static double log_of_sum(const float *logits, size_t count)
{
    double largest = -INFINITY, sum = 0;
    for (size_t i = 0; i < count; i++)
        largest = logits[i] > largest ? (double)logits[i] : largest;
    if (isinf(largest))
        return largest;
    for (size_t i = 0; i < count; i++)
        sum += exp((double)logits[i] - largest);
    return largest + log(sum);
}

/* What is infinite as the sum is has it all: the token is chosen among these. */
static float logprob_of(float logit, double sum)
{
    return isinf(sum) && (double)logit == sum ? 0 : (float)((double)logit - sum);
}

/* Behind those that are there; of equal ones the first token comes first. */
static void insert(kiln_lm_logprob *best, size_t count, size_t most, kiln_lm_logprob next)
{
    size_t at = count < most ? count : most - 1;
    for (; at && best[at - 1].logprob < next.logprob; at--)
        best[at] = best[at - 1];
    best[at] = next;
}

void kiln__lm_keep_logprobs(kiln_lm_request *request, const float *logits, int32_t token)
{
    const size_t words = request->batcher->lm->shape.words, most = request->kept - 1;
    kiln_lm_logprob *own = request->logprobs + (request->length - request->prompt) * request->kept;
    const double sum = log_of_sum(logits, words);
    for (size_t i = 0; i < words && most; i++)
        if (i < most || logits[i] > own[most].logprob)
            insert(own + 1, i, most, (kiln_lm_logprob){(int32_t)i, logits[i]});
    for (size_t i = 0; i < most; i++)
        own[1 + i].logprob = logprob_of(own[1 + i].logprob, sum);
    own[0] = (kiln_lm_logprob){token, logprob_of(logits[token], sum)};
}

size_t kiln_lm_request_logprobs(kiln_lm_request *request, size_t index, kiln_lm_logprob *logprobs,
                                size_t most)
{
    size_t count = 0;
    if (!request || !logprobs)
        return 0;
    pthread_mutex_lock(&request->batcher->lock);
    if (index < request->length - request->prompt)
        count = request->kept < most ? request->kept : most;
    if (count)
        memcpy(logprobs, request->logprobs + index * request->kept, count * sizeof *logprobs);
    pthread_mutex_unlock(&request->batcher->lock);
    return count;
}
