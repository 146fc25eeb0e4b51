/* SPDX-License-Identifier: Apache-2.0 */
/* Sentence encoders of `kiln serve`, and requests for vectors. */
#ifndef KILN_TOOLS_SERVE_ENCODER_H
#define KILN_TOOLS_SERVE_ENCODER_H

#include "embed.h"
#include "serve.h"

enum { SERVE_MOST_INPUTS = 2048 }; /* of a request */

struct serve_encoder {
    struct embed_files files;
    struct embed_model model;
    size_t max_length;    /* of a text, in tokens */
    size_t most_texts;    /* that wait */
    pthread_mutex_t lock; /* of the tokenizer */
    struct tokenizer *tokenizer;
    atomic_size_t texts; /* of requests whose vectors are not all there */
    atomic_uint_least64_t tokens, refused;
};

/* What /v1/embeddings asks for. */
struct serve_vectors {
    size_t count;
    int32_t *ids; /* tokens of all texts */
    size_t id_room;
    size_t starts[SERVE_MOST_INPUTS + 1]; /* of each text in ids, and the end */
    size_t dimensions;                    /* that are asked for; 0: all */
    bool base64;
    float *values;
    kiln_future *futures[SERVE_MOST_INPUTS];
    size_t asked, done; /* futures that there are, that have completed */
    size_t waiting;     /* texts of this request among the encoder's */
};

/* {"object": "list", ...} of vectors that are there. False: the job's problem says why not. */
bool serve_vectors_write(struct serve_job *job);

#endif
