# SPDX-License-Identifier: Apache-2.0
# ---- the kiln program ----

bin_PROGRAMS = kiln
kiln_SOURCES = \
	tools/cache.c \
	tools/explain.c \
	tools/info.c \
	tools/main.c \
	tools/run.c \
	tools/tool.h \
	tools/tune.c \
	tools/tune_record.c \
	tools/tune_record.h \
	tools/tune_work.c \
	tools/tune_work.h
kiln_LDADD = libkiln.la $(JANSSON_LIBS) -lm

# The tokenizer of `kiln embed`, on libutf8proc.
wordpiece_sources = \
	tools/wordpiece.c \
	tools/wordpiece.h \
	tools/wordpiece_text.c \
	tools/wordpiece_vocabulary.c

# Stores kernels for running programs.
pkglibexec_PROGRAMS = kiln-store
kiln_store_SOURCES = tools/store.c
kiln_store_LDADD = libkiln-internal.la

dist_man_MANS = \
	doc/kiln-cache.1 \
	doc/kiln-explain.1 \
	doc/kiln-info.1 \
	doc/kiln-tune.1 \
	doc/kiln.1
