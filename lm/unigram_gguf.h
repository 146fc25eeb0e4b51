/* SPDX-License-Identifier: Apache-2.0 */
/* SentencePiece's unigram model from a GGUF file. */
#ifndef KILN_LM_UNIGRAM_GGUF_H
#define KILN_LM_UNIGRAM_GGUF_H

#include "lm/gguf.h"
#include "lm/subwords.h"

/* For what is between special tokens, of which it knows none. To be closed also after an error.
 * Errors: INVALID_ARGUMENT, OUT_OF_HOST_MEMORY. */
kiln_status kiln__unigram_read_gguf(const struct kiln__gguf *gguf,
                                    struct kiln__subwords **subwords);

#endif
