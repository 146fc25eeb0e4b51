# SPDX-License-Identifier: Apache-2.0
# ---- libkiln-lm: language models in GGUF files, on kiln's public functions alone ----

# The tokenizer of `kiln embed` has these, too.
tokens_sources = \
	lm/bpe.c \
	lm/bpe.h \
	lm/charsmap.c \
	lm/charsmap.h \
	lm/split.c \
	lm/split.h \
	lm/subwords.c \
	lm/subwords.h \
	lm/subwords_added.c \
	lm/subwords_normalize.c \
	lm/subwords_read.c \
	lm/tokenizer_json.c \
	lm/tokenizer_json.h \
	lm/unicode.c \
	lm/unicode.h \
	lm/unigram.c \
	lm/unigram.h \
	lm/vocabulary.c \
	lm/vocabulary.h \
	lm/wordpiece.c \
	lm/wordpiece.h \
	lm/wordpiece_text.c \
	lm/wordpiece_vocabulary.c
lm_sources = \
	lib/executor/histogram.c \
	lib/executor/histogram.h \
	lib/util/format.c \
	lib/util/format.h \
	lib/util/text.c \
	lib/util/text.h \
	lm/architecture.c \
	lm/architecture.h \
	lm/batcher.c \
	lm/batcher.h \
	lm/batcher_slots.c \
	lm/batcher_step.c \
	lm/blocks.c \
	lm/blocks.h \
	lm/bpe_gguf.c \
	lm/caches.c \
	lm/caches.h \
	lm/chat.c \
	lm/decoder.c \
	lm/decoder.h \
	lm/encoder.c \
	lm/error.c \
	lm/error.h \
	lm/folder.c \
	lm/folder.h \
	lm/folder_shape.c \
	lm/folder_tensors.c \
	lm/folder_tokenizer.c \
	lm/genai.h \
	lm/gguf.c \
	lm/gguf.h \
	lm/gguf_files.c \
	lm/gguf_files.h \
	lm/gguf_values.c \
	lm/jinja.h \
	lm/jinja_calls.c \
	lm/jinja_expression.c \
	lm/jinja_json.c \
	lm/jinja_json.h \
	lm/jinja_lex.c \
	lm/jinja_parser.h \
	lm/jinja_parts.h \
	lm/jinja_render.c \
	lm/jinja_rows.c \
	lm/jinja_rows.h \
	lm/jinja_run.c \
	lm/jinja_statement.c \
	lm/jinja_tests.c \
	lm/jinja_text.c \
	lm/jinja_value.c \
	lm/logprobs.c \
	lm/model.c \
	lm/model.h \
	lm/prefixes.c \
	lm/prefixes.h \
	lm/quantise.c \
	lm/sample.c \
	lm/sample.h \
	lm/session.c \
	lm/session.h \
	lm/structure.c \
	lm/structure.h \
	lm/tokenizer.c \
	lm/tokenizer.h \
	lm/vocabulary_gguf.c \
	lm/weights.c \
	lm/unigram_gguf.c \
	lm/unigram_gguf.h \
	lm/wordpiece_gguf.c \
	$(tokens_sources)

if LM
kilninclude_HEADERS += include/kiln/lm.h include/kiln/lm.hpp
pkgconfig_DATA += kiln-lm.pc
lib_LTLIBRARIES += libkiln-lm.la
noinst_LTLIBRARIES += libkiln-lm-internal.la

libkiln_lm_internal_la_SOURCES = $(lm_sources)
if ONNX
libkiln_lm_internal_la_SOURCES += lm/genai.c
endif
libkiln_lm_internal_la_CPPFLAGS = $(LM_CPPFLAGS)
libkiln_lm_internal_la_CFLAGS = $(AM_CFLAGS) $(KILN_HIDDEN)
libkiln_lm_internal_la_LIBADD = $(UTF8PROC_LIBS) $(JANSSON_LIBS)
LM_CPPFLAGS = \
	-I$(top_srcdir) \
	-I$(top_srcdir)/lib \
	-I$(top_builddir)/include \
	-I$(top_srcdir)/include \
	$(KILN_DEFINES) \
	$(JANSSON_CFLAGS) \
	$(UTF8PROC_CFLAGS)
if ONNX
LM_CPPFLAGS += -DHAVE_ONNX=1
endif

# Language models in ONNX files.
if ONNX
lm_onnx = libkiln-onnx.la
endif

libkiln_lm_la_SOURCES =
libkiln_lm_la_LIBADD = libkiln-lm-internal.la $(lm_onnx) libkiln.la
libkiln_lm_la_LDFLAGS = \
	-version-info $(KILN_ABI) \
	-no-undefined
if VERSION_SCRIPTS
libkiln_lm_la_LDFLAGS += -Wl,--version-script=$(srcdir)/lm/kiln-lm.map
libkiln_lm_la_DEPENDENCIES = libkiln-lm-internal.la $(lm_onnx) libkiln.la lm/kiln-lm.map
else
libkiln_lm_la_LDFLAGS += -export-symbols-regex '^kiln_lm_[a-z]'
endif

# ---- its tests ----

lm_long_tests = \
	tests/lm/test_architectures \
	tests/lm/test_folder_answers
lm_tests = \
	tests/lm/test_batcher \
	tests/lm/test_batcher_ends \
	tests/lm/test_chat \
	tests/lm/test_encoder \
	tests/lm/test_folder \
	tests/lm/test_gguf \
	tests/lm/test_gguf_files \
	tests/lm/test_sample \
	tests/lm/test_session \
	tests/lm/test_tokens
if ONNX
lm_tests += tests/lm/test_genai
tests_lm_test_genai_SOURCES = tests/lm/test_genai.c $(lm_test_folders)
tests_lm_test_genai_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_genai_LDADD = $(LM_TEST_LIBS)
endif
lm_campaigns = \
	tests/campaigns/lm_same_bits \
	tests/campaigns/lm_soak
tests_campaigns_lm_soak_SOURCES = tests/campaigns/lm_soak.c $(lm_company) $(soak)
tests_campaigns_lm_soak_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_campaigns_lm_soak_LDADD = $(LM_TEST_LIBS)
tests_campaigns_lm_same_bits_SOURCES = tests/campaigns/lm_same_bits.c $(lm_company)
tests_campaigns_lm_same_bits_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_campaigns_lm_same_bits_LDADD = $(LM_TEST_LIBS)
LM_TEST_CPPFLAGS = -I$(top_srcdir) $(AM_CPPFLAGS)
# libkiln-onnx.so's calls of kiln have a version, and gold gives them none of a program's names.
LM_TEST_LIBS = libkiln-lm-internal.la $(lm_onnx) $(TEST_LDADD)
tests_lm_test_batcher_SOURCES = tests/lm/test_batcher.c tests/lm/batched.h $(lm_loaded_model)
tests_lm_test_batcher_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_batcher_LDADD = $(LM_TEST_LIBS)
tests_lm_test_batcher_ends_SOURCES = tests/lm/test_batcher_ends.c tests/lm/batched.h $(lm_loaded_model)
tests_lm_test_batcher_ends_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_batcher_ends_LDADD = $(LM_TEST_LIBS)
tests_lm_test_architectures_SOURCES = tests/lm/test_architectures.c $(lm_test_model)
tests_lm_test_architectures_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_architectures_LDADD = $(LM_TEST_LIBS)
tests_lm_test_chat_SOURCES = tests/lm/test_chat.c $(lm_loaded_model)
tests_lm_test_chat_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_chat_LDADD = $(LM_TEST_LIBS)
tests_lm_test_encoder_SOURCES = tests/lm/test_encoder.c $(lm_test_model)
tests_lm_test_encoder_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_encoder_LDADD = $(LM_TEST_LIBS)
tests_lm_test_folder_SOURCES = tests/lm/test_folder.c $(lm_test_folders)
tests_lm_test_folder_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_folder_LDADD = $(LM_TEST_LIBS)
tests_lm_test_folder_answers_SOURCES = tests/lm/test_folder_answers.c $(lm_test_folders)
tests_lm_test_folder_answers_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_folder_answers_LDADD = $(LM_TEST_LIBS)
tests_lm_test_gguf_SOURCES = tests/lm/test_gguf.c $(lm_test_model)
tests_lm_test_gguf_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_gguf_LDADD = $(LM_TEST_LIBS)
tests_lm_test_gguf_files_SOURCES = tests/lm/test_gguf_files.c $(lm_test_model)
tests_lm_test_gguf_files_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_gguf_files_LDADD = $(LM_TEST_LIBS)
tests_lm_test_sample_SOURCES = tests/lm/test_sample.c
tests_lm_test_sample_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_sample_LDADD = $(LM_TEST_LIBS)
tests_lm_test_session_SOURCES = tests/lm/test_session.c $(lm_loaded_model)
tests_lm_test_session_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_session_LDADD = $(LM_TEST_LIBS)
tests_lm_test_tokens_SOURCES = tests/lm/test_tokens.c $(lm_test_model)
tests_lm_test_tokens_CPPFLAGS = $(LM_TEST_CPPFLAGS)
tests_lm_test_tokens_LDADD = $(LM_TEST_LIBS)
endif

lm_test_model = \
	tests/lm/tiny.c \
	tests/lm/tiny.h
lm_test_folders = $(lm_test_model) \
	tests/lm/answers.h \
	tests/lm/folder_answers.h \
	tests/lm/folders.def \
	tests/lm/hub.c \
	tests/lm/hub.h
lm_company = \
	tests/campaigns/lm_company.c \
	tests/campaigns/lm_company.h
lm_loaded_model = $(lm_test_model) \
	tests/lm/known.h \
	tests/lm/tiny_model.c \
	tests/lm/tiny_model.h
