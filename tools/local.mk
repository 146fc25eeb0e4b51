# SPDX-License-Identifier: Apache-2.0
# ---- the kiln program ----

bin_PROGRAMS = kiln
kiln_SOURCES = \
	lib/util/format.c \
	lib/util/format.h \
	lib/util/text.c \
	lib/util/text.h \
	tools/cache.c \
	tools/columns.c \
	tools/columns.h \
	tools/complete.c \
	tools/complete.h \
	tools/explain.c \
	tools/info.c \
	tools/main.c \
	tools/profile.c \
	tools/profile.h \
	tools/profile_draw.c \
	tools/profile_peaks.c \
	tools/profile_read.c \
	tools/run.c \
	tools/suggest.c \
	tools/suggest.h \
	tools/tool.h \
	tools/tune.c \
	tools/tune_library.c \
	tools/tune_library.h \
	tools/tune_measure.c \
	tools/tune_measure.h \
	tools/tune_record.c \
	tools/tune_record.h \
	tools/tune_report.c \
	tools/tune_report.h \
	tools/tune_search.c \
	tools/tune_search.h \
	tools/tune_work.c \
	tools/tune_work.h
kiln_CPPFLAGS = $(AM_CPPFLAGS)
kiln_LDADD = libkiln.la $(JANSSON_LIBS) -lm

# Those that run models.
precision_sources = \
	tools/precision.c \
	tools/precision.h
run_sources = \
	tools/run_inputs.c \
	tools/run_model.c \
	tools/run_model.h \
	tools/run_profile.c \
	tools/run_progress.c \
	tools/run_report.c
embed_sources = \
	tools/embed.c \
	tools/embed.h \
	tools/embed_cut.c \
	tools/embed_files.c \
	tools/embed_lines.c \
	tools/embed_model.c \
	tools/embed_output.c \
	tools/embed_windows.c
language_sources = \
	tools/chat.c \
	tools/generate.c \
	tools/language.c \
	tools/language.h
serve_sources = \
	tools/serve.c \
	tools/serve.h \
	tools/serve_answers.c \
	tools/serve_forms.c \
	tools/serve_http.c \
	tools/serve_jobs.c \
	tools/serve_language.c \
	tools/serve_logprobs.c \
	tools/serve_metrics.c \
	tools/serve_read.c \
	tools/serve_routes.c \
	tools/serve_text.c
serve_encoder_sources = \
	tools/serve_encoder.c \
	tools/serve_encoder.h \
	tools/serve_vectors.c
if ONNX
kiln_SOURCES += $(run_sources) $(precision_sources)
kiln_CPPFLAGS += -DHAVE_ONNX=1
kiln_LDADD += libkiln-onnx.la -lpthread
if UTF8PROC
kiln_SOURCES += $(embed_sources) $(tokenizer_sources)
kiln_CPPFLAGS += $(UTF8PROC_CFLAGS)
kiln_LDADD += $(UTF8PROC_LIBS)
endif
endif
if LM
kiln_SOURCES += $(language_sources)
kiln_CPPFLAGS += -DHAVE_LM=1
kiln_LDADD += libkiln-lm.la
if MICROHTTPD
kiln_SOURCES += $(serve_sources)
kiln_CPPFLAGS += $(MICROHTTPD_CFLAGS)
kiln_LDADD += $(MICROHTTPD_LIBS) -lpthread
if ONNX
kiln_SOURCES += $(serve_encoder_sources)
endif
endif
if !ONNX
kiln_SOURCES += $(precision_sources)
endif
endif

# The tokenizers of models in ONNX files, on libutf8proc.
tokenizer_sources = \
	$(tokens_sources) \
	tools/tokenizer.c \
	tools/tokenizer.h

# Stores kernels for running programs.
pkglibexec_PROGRAMS = kiln-store
kiln_store_SOURCES = tools/store.c
kiln_store_LDADD = libkiln-internal.la

dist_man_MANS = \
	doc/kiln-cache.1 \
	doc/kiln-chat.1 \
	doc/kiln-embed.1 \
	doc/kiln-explain.1 \
	doc/kiln-generate.1 \
	doc/kiln-info.1 \
	doc/kiln-run.1 \
	doc/kiln-profile.1 \
	doc/kiln-serve.1 \
	doc/kiln-tune.1 \
	doc/kiln.1

# What shells offer; they ask the program (tools/complete.c).
bashcompletiondir = @BASH_COMPLETION_DIR@
dist_bashcompletion_DATA = tools/completions/kiln
zshcompletiondir = @ZSH_COMPLETION_DIR@
dist_zshcompletion_DATA = tools/completions/_kiln
