/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 *  Language models in GGUF files, or in folders as Hugging Face's transformers saves them, on any
 *  OpenCL device, and sentence encoders in GGUF files: libkiln-lm, a library of its own
 *  (pkg-config: kiln-lm).
 *
 *  A model is loaded once: weights on the device, the tokenizer that the file describes. A session
 *  is one text that goes on: tokens are fed, and the next one is asked for again and again. Keys
 * and values of what was fed stay on the device. doc/language-models.md has formats, architectures
 * and tokenizers that are known; what is not is refused in words.
 *  @code
 *  kiln_lm_load(context, "model.gguf", NULL, &lm);
 *  kiln_lm_session_create(lm, NULL, &session);
 *  kiln_lm_tokenize(lm, text, strlen(text), KILN_LM_BEGIN, &tokens, &count);
 *  kiln_lm_feed(session, tokens, count);
 *  while (!kiln_lm_next(session, &token) && !kiln_lm_is_end(lm, token))
 *      fwrite(kiln_lm_token_text(lm, token, &bytes), 1, bytes, stdout);
 *  @endcode
 *
 *  Sentences of errors are in kiln_last_error(). A damaged or hostile file is an error. */
#ifndef KILN_LM_H
#define KILN_LM_H

#include <kiln/batch.h>
#include <kiln/context.h>
#include <kiln/executor.h>
#include <kiln/status.h>
#include <kiln/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A model that has been loaded. */
typedef struct kiln_lm kiln_lm;

/** A text in the making. */
typedef struct kiln_lm_session kiln_lm_session;

/** How a model is loaded. Start from KILN_LM_OPTIONS_INIT; zero in a field is its default. */
typedef struct kiln_lm_options {
    size_t size;       /**< sizeof(kiln_lm_options), set by the initialiser */
    kiln_type weights; /**< what matrices are stored as: KILN_F16 or KILN_BF16, rounded once, or
                            KILN_F32, which holds each of the file's. KILN_Q8_0 or KILN_Q4_0: those
                            that the file has not in blocks are (kiln_quantize_blocks()), where
                            rows are of whole blocks. 0: as the file has them */
    size_t window;     /**< keys that each layer sees, its own among them, where the file should say
                            it and does not: 4,096 of Mistral 7B v0.1 in GGUF files that llama.cpp
                            made; of Llama, Mistral and Phi 3 alone; 0: as the file says */
} kiln_lm_options;

/** Options with every default. */
#define KILN_LM_OPTIONS_INIT                                                                       \
    {                                                                                              \
        sizeof(kiln_lm_options), (kiln_type)0, 0                                                   \
    }

/** Fill a structure as KILN_LM_OPTIONS_INIT does. NULL does nothing. Threads: any. Errors: none. */
KILN_API void kiln_lm_options_init(kiln_lm_options *options, size_t size);
#define kiln_lm_options_init(...) kiln_lm_options_init(__VA_ARGS__, sizeof(kiln_lm_options))

/** Load a model from a GGUF file of version 3 (of several the first, NAME-00001-of-0000N.gguf, with
 *  the others beside it), or from a folder with config.json, tokenizer.json and weights in
 *  safetensors: one file, or those that model.safetensors.index.json names. A chat template, and more tokens that end an answer, come from tokenizer_config.json,
 *  chat_template.jinja and generation_config.json. In onnxruntime-genai's form a folder has
 *  genai_config.json and an ONNX file instead, where libkiln-onnx was built. `options` may be NULL.
 *
 *  Files are not to be changed meanwhile. A GGUF file is not needed afterwards; a folder's weights
 *  may stay mapped, as kiln_load() says.
 *  Owner: the caller, until kiln_lm_release(); it holds the context. Threads: any; the model itself
 *  may be used by many threads at once. Errors: INVALID_ARGUMENT (also for a file that is none, or
 *  a damaged one), UNSUPPORTED (an architecture, tokenizer or type of weights that kiln has not),
 *  IO_ERROR, OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_ERROR, FORKED; *lm is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_load(kiln_context *context, const char *path,
                                                  const kiln_lm_options *options, kiln_lm **lm);

/** Release a model; sessions hold it. NULL does nothing. Threads: any. Errors: none. */
KILN_API void kiln_lm_release(kiln_lm *lm);

/** What a file says of its model. Texts are the model's. */
typedef struct kiln_lm_info {
    const char *architecture;  /**< such as "llama" */
    const char *name;          /**< what it is called; "" where nothing is said */
    const char *chat_template; /**< Jinja, for kiln_lm_chat_tokens(); "" where there is none */
    size_t vocabulary;         /**< tokens */
    size_t context;            /**< most tokens of a text that it was trained with */
    size_t layers;             /**< blocks of attention and feed-forward */
    size_t width;              /**< elements of a token's vector */
    int32_t begin;             /**< the token that a text begins with; -1: none */
    int32_t end;               /**< the token that an answer, or an encoder's text, ends with; -1:
                                    none */
    int encoder;               /**< not 0: it makes vectors of texts, see kiln_lm_embed() */
} kiln_lm_info;

/** Fill `info`. Threads: any. Errors: INVALID_ARGUMENT for NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_get_info(const kiln_lm *lm, kiln_lm_info *info,
                                                      size_t size);
#define kiln_lm_get_info(...) kiln_lm_get_info(__VA_ARGS__, sizeof(kiln_lm_info))

/* ---- texts and tokens ---- */

/** How kiln_lm_tokenize() reads a text, put together with |. */
typedef enum kiln_lm_reading {
    KILN_LM_PLAIN = 0,  /**< the text alone: what looks like a control token is text */
    KILN_LM_BEGIN = 1,  /**< first the token that a text begins with, if the file wants it; an
                             encoder's text has the one that it ends with, too */
    KILN_LM_CONTROL = 2 /**< control tokens that are written out, such as <|im_end|>, are these */
} kiln_lm_reading;

/** The tokens of `bytes` bytes of text, as the model was trained with. Bytes that are not UTF-8 are
 *  kept as they are by a GGUF file's tokenizer, and are U+FFFD for a folder's. `reading` is of
 *  kiln_lm_reading.
 *  Owner: the caller frees *tokens with kiln_free(). Threads: any. Errors: INVALID_ARGUMENT,
 *  OUT_OF_HOST_MEMORY; *tokens is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_tokenize(const kiln_lm *lm, const char *text,
                                                      size_t bytes, int reading, int32_t **tokens,
                                                      size_t *count);

/** The bytes of a token, *bytes of them: part of a text, at times part of a character. None for
 * what is no token of the model, and for control tokens. No zero ends them. Owner: the model.
 * Threads: any. Errors: none. */
KILN_API const char *kiln_lm_token_text(const kiln_lm *lm, int32_t token, size_t *bytes);

/** Whether an answer ends with this token. Threads: any. Errors: none. */
KILN_API int kiln_lm_is_end(const kiln_lm *lm, int32_t token);

/* ---- vectors of texts ---- */

/** What a text's vector is made of, once all its tokens have one. */
typedef enum kiln_lm_pooling {
    KILN_LM_POOLING_OF_FILE = 0, /**< as the file's pooling_type says, else the mean */
    KILN_LM_POOLING_MEAN = 1,    /**< the mean of all tokens' vectors */
    KILN_LM_POOLING_CLS = 2,     /**< the first token's */
    KILN_LM_POOLING_LAST = 3     /**< the last token's */
} kiln_lm_pooling;

/** The vectors of `count` texts, each ended by a zero, of length 1 (or 0): text i's are elements
 *  i * width on, with kiln_lm_info::width. `elements` is how many `vectors` has room for, count *
 *  width. A text is read with KILN_LM_BEGIN and KILN_LM_CONTROL: "[SEP]" in it is that token, as in
 *  transformers. One of more tokens than kiln_lm_info::context loses its end. Its vector has the
 *  same bits whatever texts are beside it, on one device.
 *  Threads: any. Errors: INVALID_ARGUMENT (NULL, another number of elements), UNSUPPORTED (the
 * model is no encoder; the file says that it does not pool), OUT_OF_HOST_MEMORY, those of
 *  kiln_batch_execute(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_embed(kiln_lm *lm, const char *const *texts,
                                                   size_t count, float *vectors, size_t elements);

/** Record what an encoder makes of texts, as part of a batch or of an executor's model. `tokens` is
 *  i32 [texts,longest], rows as kiln_lm_tokenize() makes them for kiln_lm_embed(), filled up with
 * any tokens; `lengths` is i32 [texts], how many of them count, at least 1. *vectors becomes f32
 *  [texts,width], of whatever length.
 *  Owner: the result belongs to the batch, which needs the model until it is released. Threads: one
 *  at a time for the batch. Errors: INVALID_ARGUMENT (NULL, tensors of another type or shape),
 *  UNSUPPORTED (as kiln_lm_embed()), TOO_LARGE (longer than kiln_lm_info::context), those of the
 *  batch. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_record_vectors(kiln_lm *lm, kiln_batch *batch,
                                                            kiln_tensor tokens, kiln_tensor lengths,
                                                            kiln_lm_pooling pooling,
                                                            kiln_tensor *vectors);

/* ---- conversations ---- */

/** Part of a conversation. */
typedef struct kiln_lm_message {
    const char *role;    /**< "user", "assistant", "system" or another that the template knows:
                              letters, digits, - and _ */
    const char *content; /**< its text */
} kiln_lm_message;

/** How a conversation is written out. Start from KILN_LM_CHAT_OPTIONS_INIT; zero in a field is its
 *  default. */
typedef struct kiln_lm_chat_options {
    size_t size;               /**< sizeof(kiln_lm_chat_options), set by the initialiser */
    const char *chat_template; /**< Jinja; NULL: the file's */
    int without_answer;        /**< not 0: what an answer begins with does not come last */
    int thinking;              /**< of models that think before an answer, such as Qwen3: 1 or -1 is
                                    enable_thinking true or false; 0: what the template does by itself */
} kiln_lm_chat_options;

/** Options with every default. */
#define KILN_LM_CHAT_OPTIONS_INIT                                                                  \
    {                                                                                              \
        sizeof(kiln_lm_chat_options), NULL, 0, 0                                                   \
    }

/** Fill a structure as KILN_LM_CHAT_OPTIONS_INIT does. NULL does nothing. Threads: any. Errors:
 *  none. */
KILN_API void kiln_lm_chat_options_init(kiln_lm_chat_options *options, size_t size);
#define kiln_lm_chat_options_init(...)                                                             \
    kiln_lm_chat_options_init(__VA_ARGS__, sizeof(kiln_lm_chat_options))

/** The tokens of a conversation of `count` messages, as the file's chat template writes it, up to
 *  where the answer begins. What looks like a control token in a message's content is text. The
 *  template is run in the part of Jinja that doc/language-models.md describes. `options` may be
 * NULL.
 *  @code
 *  kiln_lm_message messages[] = {{"user", "Why is the sky blue?"}};
 *  kiln_lm_chat_tokens(lm, messages, 1, NULL, &tokens, &count);
 *  kiln_lm_feed(session, tokens, count);
 *  @endcode
 *  Owner: the caller frees *tokens with kiln_free(). Threads: any. Errors: INVALID_ARGUMENT (NULL,
 * a role that is none, no template, one that is damaged or refuses the messages), UNSUPPORTED (the
 *  template has what kiln does not know, by its name), TOO_LARGE (it takes too many steps or too
 * much memory), OUT_OF_HOST_MEMORY; *tokens is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_chat_tokens(const kiln_lm *lm,
                                                         const kiln_lm_message *messages,
                                                         size_t count,
                                                         const kiln_lm_chat_options *options,
                                                         int32_t **tokens, size_t *token_count);

/** The text of a conversation, of which kiln_lm_chat_tokens() makes tokens; a zero ends it. Owner:
 * the caller frees *text with kiln_free(). Threads: any. Errors: as kiln_lm_chat_tokens(); *text is
 * NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_chat_text(const kiln_lm *lm,
                                                       const kiln_lm_message *messages,
                                                       size_t count,
                                                       const kiln_lm_chat_options *options,
                                                       char **text);

/* ---- sessions ---- */

/** How a session goes on. Start from KILN_LM_SESSION_OPTIONS_INIT; zero in a field is its
 *  default.
 *
 *  The next token is the most probable one, of equal ones the first, unless there is a temperature.
 *  Then logits are divided by it, and one of the tokens is drawn that top_k, top_p and min_p all
 *  leave, each looked at in that order. */
typedef struct kiln_lm_session_options {
    size_t size;     /**< sizeof(kiln_lm_session_options), set by the initialiser */
    size_t context;  /**< most tokens of the text; 0: as many as the model was trained with, 4,096
                          at most */
    kiln_type cache; /**< what keys and values are stored as: KILN_F32, KILN_F16 or KILN_BF16;
                          0: as kiln_lm_options::weights says of these, else KILN_F32 */
    double temperature; /**< 0: always the most probable token */
    size_t top_k;       /**< of so many most probable tokens; 0: of all */
    double top_p;       /**< of the fewest most probable tokens that make up this probability; 0: of
                             all */
    double min_p;       /**< of those at least this times as probable as the most probable one */
    uint64_t seed;      /**< what is drawn depends on it and on the place in the text alone */
} kiln_lm_session_options;

/** Options with every default. */
#define KILN_LM_SESSION_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(kiln_lm_session_options), 0, (kiln_type)0, 0, 0, 0, 0, 0                            \
    }

/** Fill a structure as KILN_LM_SESSION_OPTIONS_INIT does. NULL does nothing. Threads: any. Errors:
 *  none. */
KILN_API void kiln_lm_session_options_init(kiln_lm_session_options *options, size_t size);
#define kiln_lm_session_options_init(...)                                                          \
    kiln_lm_session_options_init(__VA_ARGS__, sizeof(kiln_lm_session_options))

/** Begin a text. `options` may be NULL. Owner: the caller, until kiln_lm_session_release(); it
 * holds the model. Threads: any; a session by one at a time. Errors: INVALID_ARGUMENT, UNSUPPORTED,
 *  OUT_OF_HOST_MEMORY, OUT_OF_DEVICE_MEMORY, DEVICE_ERROR, FORKED; *session is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_session_create(kiln_lm *lm,
                                                            const kiln_lm_session_options *options,
                                                            kiln_lm_session **session);

/** End a session. NULL does nothing. Threads: one at a time. Errors: none. */
KILN_API void kiln_lm_session_release(kiln_lm_session *session);

/** Add `count` tokens to the text, and run the model on them. After an error the text is what it
 * was before. Threads: one at a time. Errors: INVALID_ARGUMENT (NULL, a number that is no token),
 *  TOO_LARGE (more than the session's context), those of kiln_batch_execute(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_feed(kiln_lm_session *session, const int32_t *tokens,
                                                  size_t count);

/** Choose the next token and add it to the text. An answer's end is a token like others, see
 *  kiln_lm_is_end(). After an error the text is what it was before.
 *  Threads: one at a time. Errors: WRONG_STATE (nothing was fed), TOO_LARGE (the session's context
 *  is full), BAD_VALUE (a logit is NaN), those of kiln_batch_execute(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_next(kiln_lm_session *session, int32_t *token);

/** The logits of what may follow the text, one f32 for each token of the vocabulary; `count` is
 *  how many. Threads: one at a time. Errors: as kiln_lm_next(), INVALID_ARGUMENT (NULL, another
 *  count). */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_logits(kiln_lm_session *session, float *logits,
                                                    size_t count);

/** Tokens of the text; 0 for NULL. Threads: one at a time. Errors: none. */
KILN_API size_t kiln_lm_session_length(const kiln_lm_session *session);

/** Most tokens of the text; 0 for NULL. Threads: one at a time. Errors: none. */
KILN_API size_t kiln_lm_session_context(const kiln_lm_session *session);

/** Take back all but the first `length` tokens. Threads: one at a time. Errors: INVALID_ARGUMENT
 *  (NULL, more than there are). */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_session_truncate(kiln_lm_session *session,
                                                              size_t length);

/** Make these `count` tokens the text. What it begins with already stays, so that of a conversation
 *  which goes on the model sees what is new alone. After an error the text is what both begin with,
 *  or what it was before. Threads: one at a time. Errors: as kiln_lm_feed(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_session_rewrite(kiln_lm_session *session,
                                                             const int32_t *tokens, size_t count);

/* ---- many texts at once ---- */

/** Texts that go on together, a token each in a step: requests join and leave between steps. */
typedef struct kiln_lm_batcher kiln_lm_batcher;

/** One text of a batcher. */
typedef struct kiln_lm_request kiln_lm_request;

/** How a batcher works. Start from KILN_LM_BATCHER_OPTIONS_INIT; zero in a field is its default. */
typedef struct kiln_lm_batcher_options {
    size_t size;     /**< sizeof(kiln_lm_batcher_options), set by the initialiser */
    size_t slots;    /**< most texts at once, 2 to 64; 8 */
    size_t context;  /**< most tokens of a text; 0: as many as the model was trained with, 4,096
                          at most */
    kiln_type cache; /**< as in kiln_lm_session_options */
    uint64_t memory_limit; /**< most bytes of device memory for keys and values: there are fewer
                                slots where more do not fit, at least 2, or 1 where texts take
                                turns; 0: no bound */
    size_t max_queue;      /**< most requests that wait for a slot, at most 2^20; 128 */
    int prepare;           /**< nonzero: compile everything in kiln_lm_batcher_create(), so that no
                                request waits for the compiler */
    size_t prefix_tokens;  /**< for how many tokens that prompts began with keys and values are kept
                                for later prompts, in parts of 128, the least recently used go;
                                within memory_limit, once it has the slots; less than 128: for none;
                                0: as many as `context`. Texts that take turns have none */
} kiln_lm_batcher_options;

/** Options with every default. */
#define KILN_LM_BATCHER_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(kiln_lm_batcher_options), 8, 0, (kiln_type)0, 0, 128, 0, 0                          \
    }

/** Fill a structure as KILN_LM_BATCHER_OPTIONS_INIT does. NULL does nothing. Threads: any. Errors:
 *  none. */
KILN_API void kiln_lm_batcher_options_init(kiln_lm_batcher_options *options, size_t size);
#define kiln_lm_batcher_options_init(...)                                                          \
    kiln_lm_batcher_options_init(__VA_ARGS__, sizeof(kiln_lm_batcher_options))

/** Make a batcher: its program submits requests, and calls kiln_lm_batcher_step() as long as there
 *  is something to do. `options` may be NULL.
 *  @code
 *  kiln_lm_batcher_create(lm, NULL, &batcher);
 *  kiln_lm_batcher_submit(batcher, tokens, count, NULL, &request);
 *  while (kiln_lm_request_poll(request) == KILN_NOT_READY && !kiln_lm_batcher_step(batcher))
 *      done += kiln_lm_request_read(request, done, answer + done, room - done);
 *  @endcode
 *  A request's logits, and so its tokens, have the same bits alone and in whatever company, joined
 *  at whatever time, on one device: each step that texts share is batch-invariant
 *  (kiln_batch_set_batch_invariant()), and prompts are read one after another, in parts that depend
 * on the prompt alone. What a prompt begins with is not read again where the one before it, or one
 * that is kept (prefix_tokens), began so, in whole parts of 128 tokens. Owner: the caller, until
 * kiln_lm_batcher_release(); it holds the model. Threads: any. Errors: INVALID_ARGUMENT,
 * UNSUPPORTED, TOO_LARGE (more than 2^31 elements of keys in a layer), OUT_OF_HOST_MEMORY,
 * OUT_OF_DEVICE_MEMORY (also where memory_limit does not hold two texts), DEVICE_ERROR, FORKED;
 * *batcher is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_batcher_create(kiln_lm *lm,
                                                            const kiln_lm_batcher_options *options,
                                                            kiln_lm_batcher **batcher);

/** End a batcher: requests that have not ended do so as CANCELLED. NULL does nothing. Threads: one,
 *  while no other calls it; its requests may be used and released afterwards, too. Errors: none. */
KILN_API void kiln_lm_batcher_release(kiln_lm_batcher *batcher);

/** How a request goes on. Start from KILN_LM_REQUEST_OPTIONS_INIT; zero in a field is its default.
 */
typedef struct kiln_lm_request_options {
    size_t size;            /**< sizeof(kiln_lm_request_options), set by the initialiser */
    size_t max_tokens;      /**< most tokens of the answer; 0: until the context is full */
    double temperature;     /**< this and the next ones as in kiln_lm_session_options */
    size_t top_k;           /**< ... */
    double top_p;           /**< ... */
    double min_p;           /**< ... */
    uint64_t seed;          /**< ... */
    kiln_priority priority; /**< among those that wait */
    uint64_t deadline_us;   /**< if it has not ended so long after the submission, it ends as
                                 TIMED_OUT; microseconds; 0: none */
    size_t logprobs;        /**< so many for kiln_lm_request_logprobs() of each token: its own, and
                                 those of the most probable ones; 0: none */
} kiln_lm_request_options;

/** Options with every default. */
#define KILN_LM_REQUEST_OPTIONS_INIT                                                               \
    {                                                                                              \
        sizeof(kiln_lm_request_options), 0, 0, 0, 0, 0, 0, KILN_PRIORITY_NORMAL, 0, 0              \
    }

/** Fill a structure as KILN_LM_REQUEST_OPTIONS_INIT does. NULL does nothing. Threads: any. Errors:
 *  none. */
KILN_API void kiln_lm_request_options_init(kiln_lm_request_options *options, size_t size);
#define kiln_lm_request_options_init(...)                                                          \
    kiln_lm_request_options_init(__VA_ARGS__, sizeof(kiln_lm_request_options))

/** Have a text of `count` tokens, at least one, go on. It ends behind a token that ends an answer
 *  (kiln_lm_is_end()), after max_tokens, or where the context is full. `options` may be NULL.
 *  Owner: the caller owns *request, until kiln_lm_request_release(). Threads: any, also while
 * another is in kiln_lm_batcher_step(). Errors: INVALID_ARGUMENT (NULL, no tokens, a number that is
 * no token, more log-probabilities than the vocabulary has tokens), TOO_LARGE (no room in the
 * context for one token more), BUSY (max_queue requests wait), UNSUPPORTED, OUT_OF_HOST_MEMORY;
 * *request is NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_batcher_submit(kiln_lm_batcher *batcher,
                                                            const int32_t *tokens, size_t count,
                                                            const kiln_lm_request_options *options,
                                                            kiln_lm_request **request);

/** A step: each text that goes on gets a token, and up to 128 tokens of a prompt are read.
 *  NOT_READY: there is nothing to do. After the error of a run the texts that were in it are read
 *  again, by later steps, and go on, where last bits may be others then; one that has been in three
 *  such runs ends with the error. Threads: one at a time. Errors: INVALID_ARGUMENT for NULL, those
 * of kiln_batch_execute(). */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_batcher_step(kiln_lm_batcher *batcher);

/** Copy up to `most` tokens of the answer so far, from number `from` on, and answer how many.
 * Threads: any. Errors: none; 0 for NULL. */
KILN_API size_t kiln_lm_request_read(kiln_lm_request *request, size_t from, int32_t *tokens,
                                     size_t most);

/** A token and the natural logarithm of its probability. */
typedef struct kiln_lm_logprob {
    int32_t token; /**< its number */
    float logprob; /**< 0 at most */
} kiln_lm_logprob;

/** Copy up to `most` log-probabilities of token number `index` of the answer, and answer how many,
 * at most the option's: first the token's own, then those of the most probable tokens, of which it
 * may be one; the most probable first. They are those of the model, whatever temperature, top_k,
 * top_p and min_p made of them. Threads: any. Errors: none; 0 for NULL, for a token that is not
 * there yet, or without the option. */
KILN_API size_t kiln_lm_request_logprobs(kiln_lm_request *request, size_t index,
                                         kiln_lm_logprob *logprobs, size_t most);

/** NOT_READY, or how the request ended: after that it gets no further token. Threads: any. Errors:
 *  CANCELLED, TIMED_OUT, BAD_VALUE (a logit is NaN), those of kiln_lm_batcher_step(),
 *  INVALID_ARGUMENT for NULL. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_request_poll(kiln_lm_request *request);

/** End a request as CANCELLED; one that has ended stays as it is. NULL does nothing. Threads: any.
 *  Errors: none. */
KILN_API void kiln_lm_request_cancel(kiln_lm_request *request);

/** Release a request; one that has not ended is cancelled. NULL does nothing. Threads: one, after
 *  all other calls on it. Errors: none. */
KILN_API void kiln_lm_request_release(kiln_lm_request *request);

/** What a batcher has done so far, and what it is at. */
typedef struct kiln_lm_batcher_stats {
    uint64_t requests;      /**< taken by kiln_lm_batcher_submit() */
    uint64_t refused;       /**< not taken, whatever the reason */
    uint64_t completed;     /**< that ended by themselves */
    uint64_t failed;        /**< that ended with an error */
    uint64_t cancelled;     /**< by their caller or by the batcher's end */
    uint64_t timed_out;     /**< whose deadline passed */
    uint64_t prompt_tokens; /**< of prompts that were read */
    uint64_t shared_tokens; /**< those among them that had been read for a prompt before */
    uint64_t tokens;        /**< of answers */
    uint64_t steps;         /**< runs in which texts went on */
    uint64_t failed_steps;  /**< runs that failed, those that read prompts too */
    uint64_t slots;         /**< texts at once */
    uint64_t running;       /**< requests that have a slot now */
    uint64_t queued;        /**< requests that wait now */
    uint64_t cache_bytes;   /**< device memory of keys and values */
    double fill;            /**< texts of runs over the rows that these computed, 0 to 1 */
    kiln_latency first;     /**< from submission to the answer's first token */
    kiln_latency step;      /**< of each kiln_lm_batcher_step() that ran something */
    kiln_latency total;     /**< of requests that completed */
} kiln_lm_batcher_stats;

/** Fill `stats`. Threads: any. Errors: INVALID_ARGUMENT. */
KILN_API KILN_MUST_CHECK kiln_status kiln_lm_batcher_get_stats(kiln_lm_batcher *batcher,
                                                               kiln_lm_batcher_stats *stats,
                                                               size_t size);
#define kiln_lm_batcher_get_stats(...)                                                             \
    kiln_lm_batcher_get_stats(__VA_ARGS__, sizeof(kiln_lm_batcher_stats))

#ifdef __cplusplus
}
#endif

#endif
