# SPDX-License-Identifier: Apache-2.0
# ---- libkiln-onnx: models in ONNX files, on kiln's public functions alone ----

# Those that understand operators, a file for what belongs together: each has a table of its own,
# and a line in onnx/operators.h.
onnx_operators = \
	onnx/ops_attention.c \
	onnx/ops_blocks.c \
	onnx/ops_channels.c \
	onnx/ops_content.c \
	onnx/ops_control.c \
	onnx/ops_conv.c \
	onnx/ops_elementwise.c \
	onnx/ops_fused.c \
	onnx/ops_grouped.c \
	onnx/ops_index.c \
	onnx/ops_joined.c \
	onnx/ops_language.c \
	onnx/ops_lines.c \
	onnx/ops_loss.c \
	onnx/ops_made.c \
	onnx/ops_math.c \
	onnx/ops_microsoft.c \
	onnx/ops_movement.c \
	onnx/ops_normalization.c \
	onnx/ops_pool.c \
	onnx/ops_product.c \
	onnx/ops_qlinear.c \
	onnx/ops_quantize.c \
	onnx/ops_recurrence.c \
	onnx/ops_reduce.c \
	onnx/ops_region.c \
	onnx/ops_resize.c \
	onnx/ops_rnn.c \
	onnx/ops_sample.c \
	onnx/ops_shape.c \
	onnx/ops_signal.c \
	onnx/ops_unpool.c

onnx_sources = \
	lib/util/format.c \
	lib/util/format.h \
	onnx/batches.c \
	onnx/batches.h \
	onnx/blocks.c \
	onnx/blocks.h \
	onnx/blocks_floats.c \
	onnx/blocks_linear.c \
	onnx/call.c \
	onnx/call.h \
	onnx/describe.c \
	onnx/elementwise.c \
	onnx/elementwise.h \
	onnx/error.c \
	onnx/error.h \
	onnx/functions.c \
	onnx/functions.h \
	onnx/graph.c \
	onnx/graph.h \
	onnx/host.c \
	onnx/host.h \
	onnx/load.c \
	onnx/model.h \
	onnx/names.c \
	onnx/names.h \
	onnx/once.c \
	onnx/once.h \
	onnx/operators.c \
	onnx/operators.h \
	onnx/patterns.c \
	onnx/patterns.h \
	onnx/record.c \
	onnx/record.h \
	onnx/source.c \
	onnx/source.h \
	onnx/structure.c \
	onnx/structure.h \
	onnx/supported.c \
	onnx/tensor.c \
	onnx/tensor.h \
	onnx/types.c \
	onnx/types.h \
	onnx/unused.c \
	onnx/values.c \
	onnx/values.h \
	onnx/weights.c \
	onnx/weights.h \
	onnx/windows.c \
	onnx/windows.h \
	onnx/wire.c \
	onnx/wire.h \
	$(onnx_operators)

if ONNX
kilninclude_HEADERS += include/kiln/onnx.h include/kiln/onnx.hpp
pkgconfig_DATA += kiln-onnx.pc
lib_LTLIBRARIES += libkiln-onnx.la
noinst_LTLIBRARIES += libkiln-onnx-internal.la libkiln-onnx-schema.la
BUILT_SOURCES += onnx/onnx.pb-c.h
CLEANFILES += onnx/onnx.proto onnx/onnx.pb-c.h onnx/onnx.pb-c.c

# The schema is of the system's package libonnx-dev; what protoc-c makes of it has warnings.
onnx/onnx.pb-c.h: $(ONNX_PROTO)
	$(AM_V_GEN)$(MKDIR_P) $(@D)
	$(AM_V_at)cp '$(ONNX_PROTO)' onnx/onnx.proto
	$(AM_V_at)$(PROTOC_C) --c_out=. onnx/onnx.proto
onnx/onnx.pb-c.c: onnx/onnx.pb-c.h

nodist_libkiln_onnx_schema_la_SOURCES = onnx/onnx.pb-c.c
libkiln_onnx_schema_la_CPPFLAGS = -I$(top_builddir) $(PROTOBUF_C_CFLAGS)
libkiln_onnx_schema_la_CFLAGS = -std=gnu11 $(KILN_KIND_CFLAGS) $(KILN_HIDDEN)

libkiln_onnx_internal_la_SOURCES = $(onnx_sources)
libkiln_onnx_internal_la_CPPFLAGS = $(ONNX_CPPFLAGS)
libkiln_onnx_internal_la_CFLAGS = $(AM_CFLAGS) $(KILN_HIDDEN)
libkiln_onnx_internal_la_LIBADD = libkiln-onnx-schema.la $(PROTOBUF_C_LIBS)
ONNX_CPPFLAGS = \
	-I$(top_builddir) \
	-I$(top_srcdir) \
	-I$(top_srcdir)/lib \
	-I$(top_builddir)/include \
	-I$(top_srcdir)/include \
	$(KILN_DEFINES) \
	$(PROTOBUF_C_CFLAGS)

libkiln_onnx_la_SOURCES =
libkiln_onnx_la_LIBADD = libkiln-onnx-internal.la libkiln.la
libkiln_onnx_la_LDFLAGS = \
	-version-info $(KILN_ABI) \
	-no-undefined
if VERSION_SCRIPTS
libkiln_onnx_la_LDFLAGS += -Wl,--version-script=$(srcdir)/onnx/kiln-onnx.map
libkiln_onnx_la_DEPENDENCIES = libkiln-onnx-internal.la libkiln.la onnx/kiln-onnx.map
else
libkiln_onnx_la_LDFLAGS += -export-symbols-regex '^kiln_model_[a-z]'
endif

# ---- its tests ----

onnx_tests = \
	tests/onnx/test_attention \
	tests/onnx/test_grouped \
	tests/onnx/test_integers \
	tests/onnx/test_linear \
	tests/onnx/test_narrow_weights \
	tests/onnx/test_loops \
	tests/onnx/test_microsoft \
	tests/onnx/test_model \
	tests/onnx/test_model_files \
	tests/onnx/test_patterns \
	tests/onnx/test_quantised \
	tests/onnx/test_refused \
	tests/onnx/test_sample \
	tests/onnx/test_twice
ONNX_TEST_CPPFLAGS = -I$(top_builddir) -I$(top_srcdir) $(AM_CPPFLAGS) $(PROTOBUF_C_CFLAGS)
ONNX_TEST_LIBS = libkiln-onnx-internal.la $(LDADD)
tests_onnx_test_model_files_SOURCES = tests/onnx/test_model_files.c tests/onnx/refusals.h $(onnx_test_models)
tests_onnx_test_model_files_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_model_files_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_refused_SOURCES = tests/onnx/test_refused.c tests/onnx/refusals.h $(onnx_test_models)
tests_onnx_test_refused_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_refused_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_attention_SOURCES = tests/onnx/test_attention.c $(onnx_test_models)
tests_onnx_test_attention_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_attention_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_grouped_SOURCES = tests/onnx/test_grouped.c $(onnx_test_models)
tests_onnx_test_grouped_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_grouped_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_integers_SOURCES = tests/onnx/test_integers.c $(onnx_test_models)
tests_onnx_test_integers_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_integers_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_loops_SOURCES = tests/onnx/test_loops.c $(onnx_test_models)
tests_onnx_test_loops_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_loops_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_linear_SOURCES = tests/onnx/test_linear.c $(onnx_test_models)
tests_onnx_test_linear_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_linear_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_narrow_weights_SOURCES = tests/onnx/test_narrow_weights.c $(onnx_test_models)
tests_onnx_test_narrow_weights_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_narrow_weights_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_microsoft_SOURCES = tests/onnx/test_microsoft.c $(onnx_test_models)
tests_onnx_test_microsoft_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_microsoft_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_model_SOURCES = tests/onnx/model_operators.c tests/onnx/test_model.c $(onnx_test_models)
tests_onnx_test_model_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_model_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_patterns_SOURCES = tests/onnx/test_patterns.c $(onnx_test_models)
tests_onnx_test_patterns_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_patterns_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_quantised_SOURCES = tests/onnx/test_quantised.c $(onnx_test_models)
tests_onnx_test_quantised_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_quantised_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_sample_SOURCES = tests/onnx/test_sample.c $(onnx_test_models)
tests_onnx_test_sample_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_sample_LDADD = $(ONNX_TEST_LIBS)
tests_onnx_test_twice_SOURCES = tests/onnx/test_twice.c $(onnx_test_models)
tests_onnx_test_twice_CPPFLAGS = $(ONNX_TEST_CPPFLAGS)
tests_onnx_test_twice_LDADD = $(ONNX_TEST_LIBS)
endif

onnx_test_models = \
	tests/onnx/models.c \
	tests/onnx/models.h
