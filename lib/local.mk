# SPDX-License-Identifier: Apache-2.0
# ---- the library, a list per stage in the order in which data flows ----

util_sources = \
	lib/util/environment.c \
	lib/util/environment.h \
	lib/util/error.c \
	lib/util/error.h \
	lib/util/forks.c \
	lib/util/forks.h \
	lib/util/hash.c \
	lib/util/hash.h \
	lib/util/index.c \
	lib/util/index.h \
	lib/util/kernels.h \
	lib/util/log.c \
	lib/util/log.h \
	lib/util/structure.c \
	lib/util/structure.h \
	lib/util/text.c \
	lib/util/text.h \
	lib/util/vector.c \
	lib/util/vector.h \
	lib/util/verify.c \
	lib/util/verify.h

ops_sources = \
	lib/ops/elementwise.def \
	lib/ops/integers.def \
	lib/ops/ops.c \
	lib/ops/ops.h \
	lib/ops/reduce.def \
	lib/ops/philox.c \
	lib/ops/philox.h \
	lib/ops/types.c \
	lib/ops/types.def

device_sources = \
	lib/device/choose.c \
	lib/device/choose.h \
	lib/device/describe.c \
	lib/device/describe.h \
	lib/device/device.h \
	lib/device/list.c \
	lib/device/list.h \
	lib/device/opencl.c \
	lib/device/opencl.h \
	lib/device/traits.c \
	lib/device/traits.h \
	lib/device/tunables.c \
	lib/device/tunables.h

graph_sources = \
	lib/graph/again.c \
	lib/graph/again.h \
	lib/graph/along.c \
	lib/graph/along.h \
	lib/graph/attention.c \
	lib/graph/attention.h \
	lib/graph/bounds.c \
	lib/graph/bounds.h \
	lib/graph/bounds_elementwise.c \
	lib/graph/bounds_movement.c \
	lib/graph/bounds_rules.h \
	lib/graph/bounds_sums.c \
	lib/graph/cut.c \
	lib/graph/cut.h \
	lib/graph/division.c \
	lib/graph/division.h \
	lib/graph/dump.c \
	lib/graph/graph.c \
	lib/graph/graph.h \
	lib/graph/labels.c \
	lib/graph/labels.h \
	lib/graph/reference.c \
	lib/graph/reference.h \
	lib/graph/shape.c \
	lib/graph/slopes.c \
	lib/graph/slopes.h \
	lib/graph/shape.h \
	lib/graph/verify.c

rewrite_sources = \
	lib/rewrite/chain.c \
	lib/rewrite/cse.c \
	lib/rewrite/fold.c \
	lib/rewrite/lift.c \
	lib/rewrite/merge.c \
	lib/rewrite/parts.c \
	lib/rewrite/passes.c \
	lib/rewrite/passes.h \
	lib/rewrite/rewrite.c \
	lib/rewrite/rewrite.h \
	lib/rewrite/sink.c \
	lib/rewrite/windows.c

fuse_sources = \
	lib/fuse/bases.c \
	lib/fuse/begin.c \
	lib/fuse/beside.c \
	lib/fuse/fuse.c \
	lib/fuse/fuse.h \
	lib/fuse/group.h \
	lib/fuse/group_text.c \
	lib/fuse/join.c \
	lib/fuse/join.h \
	lib/fuse/kinds.c \
	lib/fuse/kinds.h \
	lib/fuse/layout.c \
	lib/fuse/layout.h \
	lib/fuse/limits.h \
	lib/fuse/materialise.c \
	lib/fuse/moved.c \
	lib/fuse/nest.c \
	lib/fuse/nest.h \
	lib/fuse/prologue.c \
	lib/fuse/reshaped.c \
	lib/fuse/rows.c \
	lib/fuse/steps.c \
	lib/fuse/verify.c \
	lib/fuse/verify.h \
	lib/fuse/verify_kinds.c \
	lib/fuse/verify_memory.c \
	lib/fuse/verify_steps.c

plan_sources = \
	lib/plan/again.c \
	lib/plan/again.h \
	lib/plan/dependencies.c \
	lib/plan/describe.c \
	lib/plan/describe.h \
	lib/plan/generic.h \
	lib/plan/hasten.c \
	lib/plan/in_place.c \
	lib/plan/keep.c \
	lib/plan/launch.c \
	lib/plan/launch.h \
	lib/plan/lower.c \
	lib/plan/lower.h \
	lib/plan/lower_attention.c \
	lib/plan/lower_slopes.c \
	lib/plan/lower_generic.c \
	lib/plan/lower_matmul.c \
	lib/plan/lower_nest.c \
	lib/plan/lower_scatter.c \
	lib/plan/lower_sort.c \
	lib/plan/matmul.h \
	lib/plan/matmul_cpu.c \
	lib/plan/matmul_cpu.h \
	lib/plan/matmul_cpu_skinny.c \
	lib/plan/matmul_cpu_tiles.c \
	lib/plan/matmul_gpu.c \
	lib/plan/matmul_wgmma.c \
	lib/plan/memory.c \
	lib/plan/names.c \
	lib/plan/names.h \
	lib/plan/occupied.c \
	lib/plan/occupied.h \
	lib/plan/places.c \
	lib/plan/places.h \
	lib/plan/patches.c \
	lib/plan/plan.c \
	lib/plan/plan.h \
	lib/plan/schedule.c \
	lib/plan/space.c \
	lib/plan/space.h \
	lib/plan/verify_dependencies.c \
	lib/plan/verify_kept.c \
	lib/plan/verify_plan.c \
	lib/plan/verify_plan.h \
	lib/plan/verify_values.c \
	lib/plan/work.c \
	lib/plan/work.h

codegen_sources = \
	lib/codegen/body.c \
	lib/codegen/body.h \
	lib/codegen/checked.c \
	lib/codegen/codegen.c \
	lib/codegen/codegen.h \
	lib/codegen/emit.c \
	lib/codegen/emit.h \
	lib/codegen/epilogue.c \
	lib/codegen/follow.c \
	lib/codegen/follow.h \
	lib/codegen/gather.c \
	lib/codegen/generic.c \
	lib/codegen/scan.c \
	lib/codegen/indent.c \
	lib/codegen/indent.h \
	lib/codegen/nest.c \
	lib/codegen/parameters.c \
	lib/codegen/parameters.h \
	lib/codegen/prelude.c \
	lib/codegen/prologue.c \
	lib/codegen/storage.c \
	lib/codegen/storage.h \
	lib/codegen/strips.c \
	lib/codegen/tiles.c \
	lib/codegen/tiles.h \
	lib/codegen/totals.c \
	lib/codegen/verify_launches.c

cache_sources = \
	lib/cache/apart.c \
	lib/cache/apart.h \
	lib/cache/build.c \
	lib/cache/build.h \
	lib/cache/bundle.c \
	lib/cache/catalog.c \
	lib/cache/catalog.h \
	lib/cache/edit.c \
	lib/cache/edit.h \
	lib/cache/entry.c \
	lib/cache/entry.h \
	lib/cache/errand.c \
	lib/cache/errand.h \
	lib/cache/file.c \
	lib/cache/file.h \
	lib/cache/folder.c \
	lib/cache/folder.h \
	lib/cache/gate.c \
	lib/cache/gate.h \
	lib/cache/host.c \
	lib/cache/host.h \
	lib/cache/keep.c \
	lib/cache/keep.h \
	lib/cache/kernels.c \
	lib/cache/kernels.h \
	lib/cache/key.c \
	lib/cache/key.h \
	lib/cache/lock.c \
	lib/cache/lock.h \
	lib/cache/note.c \
	lib/cache/note.h \
	lib/cache/own.c \
	lib/cache/own.h \
	lib/cache/place.c \
	lib/cache/place.h \
	lib/cache/prepare.c \
	lib/cache/program.c \
	lib/cache/program.h \
	lib/cache/program_state.h \
	lib/cache/programs.c \
	lib/cache/store.c \
	lib/cache/store.h \
	lib/cache/storing.c \
	lib/cache/storing.h \
	lib/cache/tag.c \
	lib/cache/tag.h

runtime_sources = \
	lib/runtime/bindings.c \
	lib/runtime/bindings.h \
	lib/runtime/budget.c \
	lib/runtime/budget.h \
	lib/runtime/buffer.c \
	lib/runtime/buffer.h \
	lib/runtime/checked.c \
	lib/runtime/clblast.c \
	lib/runtime/clblast.h \
	lib/runtime/clblast_sets.h \
	lib/runtime/commands.c \
	lib/runtime/commands.h \
	lib/runtime/executable.c \
	lib/runtime/executable.h \
	lib/runtime/kept.c \
	lib/runtime/kept.h \
	lib/runtime/pages.c \
	lib/runtime/pages.h \
	lib/runtime/pinned.c \
	lib/runtime/pinned.h \
	lib/runtime/placing.c \
	lib/runtime/placing.h \
	lib/runtime/pool.c \
	lib/runtime/pool.h \
	lib/runtime/run.c \
	lib/runtime/run.h \
	lib/runtime/runtime.c \
	lib/runtime/runtime.h \
	lib/runtime/source.c \
	lib/runtime/source.h \
	lib/runtime/staging.c \
	lib/runtime/staging.h \
	lib/runtime/stream.c \
	lib/runtime/stream.h \
	lib/runtime/trace.c \
	lib/runtime/trace.h

record_sources = \
	lib/record/attention.c \
	lib/record/slopes.c \
	lib/record/slopes.h \
	lib/record/batch.c \
	lib/record/batch.h \
	lib/record/call.c \
	lib/record/call.h \
	lib/record/channels.c \
	lib/record/convolution.c \
	lib/record/convolution.h \
	lib/record/convolution_transposed.c \
	lib/record/einsum.c \
	lib/record/elements.c \
	lib/record/gather.c \
	lib/record/interpolation.c \
	lib/record/loss.c \
	lib/record/movement.c \
	lib/record/normalization.c \
	lib/record/operations.c \
	lib/record/operations.h \
	lib/record/optimizer.c \
	lib/record/pad.c \
	lib/record/place.c \
	lib/record/pool.c \
	lib/record/product.c \
	lib/record/quantize.c \
	lib/record/random.c \
	lib/record/recurrent.c \
	lib/record/resize.c \
	lib/record/signal.c \
	lib/record/sliding.c \
	lib/record/sliding.h \
	lib/record/sort.c \
	lib/record/transfer.c

grad_sources = \
	lib/grad/attention.c \
	lib/grad/convolution.c \
	lib/grad/gather.c \
	lib/grad/gradient.c \
	lib/grad/gradient.h \
	lib/grad/movement.c \
	lib/grad/product.c \
	lib/grad/rows.c \
	lib/grad/slopes.c

session_sources = \
	lib/session/batch.c \
	lib/session/behind.c \
	lib/session/behind.h \
	lib/session/buffer.c \
	lib/session/cache.c \
	lib/session/compile.c \
	lib/session/compile.h \
	lib/session/context.c \
	lib/session/context.h \
	lib/session/device.c \
	lib/session/event.c \
	lib/session/explain.c \
	lib/session/explain.h \
	lib/session/explain_summary.c \
	lib/session/expose.c \
	lib/session/expose.h \
	lib/session/host_memory.c \
	lib/session/measure.c \
	lib/session/measure.h \
	lib/session/now.c \
	lib/session/options.c \
	lib/session/parts.c \
	lib/session/parts.h \
	lib/session/plan_cache.c \
	lib/session/plan_cache.h \
	lib/session/plan_table.c \
	lib/session/plan_table.h \
	lib/session/precision.c \
	lib/session/prove.c \
	lib/session/prove.h \
	lib/session/trial.c \
	lib/session/trial.h \
	lib/session/programs.c \
	lib/session/sample.c \
	lib/session/sample.h \
	lib/session/section.c \
	lib/session/section.h \
	lib/session/tuned.c \
	lib/session/tuned.h \
	lib/session/validate.c \
	lib/session/validate.h \
	lib/session/values.c \
	lib/session/values.h \
	lib/session/words.c \
	lib/session/works.c \
	lib/session/works.h

executor_sources = \
	lib/executor/bell.c \
	lib/executor/bell.h \
	lib/executor/executor.c \
	lib/executor/executor.h \
	lib/executor/future.c \
	lib/executor/future.h \
	lib/executor/histogram.c \
	lib/executor/histogram.h \
	lib/executor/inbox.c \
	lib/executor/inbox.h \
	lib/executor/lane.c \
	lib/executor/metrics.c \
	lib/executor/model.c \
	lib/executor/model.h \
	lib/executor/models.c \
	lib/executor/parallel.c \
	lib/executor/queue.c \
	lib/executor/queue.h \
	lib/executor/split.c \
	lib/executor/submit.c \
	lib/executor/tune.c \
	lib/executor/tune.h \
	lib/executor/worker.c

files_sources = \
	lib/files/load.c \
	lib/files/mapping.c \
	lib/files/mapping.h \
	lib/files/npy.c \
	lib/files/npy.h \
	lib/files/npy_header.c \
	lib/files/safetensors.c \
	lib/files/safetensors.h \
	lib/files/save.c \
	lib/files/types.c \
	lib/files/types.h

kernels = \
	kernels/attention_copies.cl \
	kernels/attention_copies_long.cl \
	kernels/attention_cpu.cl \
	kernels/attention_gpu.cl \
	kernels/attention_slopes.cl \
	kernels/attention_slopes_wgmma.cl \
	kernels/attention_wgmma.cl \
	kernels/generic.cl \
	kernels/lanes.cl \
	kernels/lanes_integers.cl \
	kernels/math.cl \
	kernels/math_end.cl \
	kernels/math_inverse.cl \
	kernels/math_random.cl \
	kernels/math_special.cl \
	kernels/matmul_cpu_packed.cl \
	kernels/matmul_cpu_patches.cl \
	kernels/matmul_cpu_skinny.cl \
	kernels/matmul_cpu_small.cl \
	kernels/matmul_gpu.cl \
	kernels/matmul_gpu_rows.cl \
	kernels/matmul_gpu_sum.cl \
	kernels/matmul_mma.cl \
	kernels/matmul_wgmma.cl \
	kernels/matmul_wgmma_pack.cl \
	kernels/narrow.cl \
	kernels/scatter.cl \
	kernels/scatter_gpu.cl \
	kernels/sort.cl

# What they include.
kernel_headers = \
	kernels/attention.h \
	kernels/attention_copies.h \
	kernels/attention_slopes.h \
	kernels/attention_ptx.h \
	kernels/attention_wgmma.h \
	kernels/narrow_result.h \
	kernels/cpu_lines.h \
	kernels/cpu_pack.h \
	kernels/cpu_tile.h \
	kernels/cpu_vector.h \
	kernels/helpers.h \
	kernels/matmul_gpu_fetch.h \
	kernels/matmul_gpu_patches.h \
	kernels/operands.h \
	kernels/runs.h \
	kernels/scatter.h \
	kernels/tensor_tile.h \
	kernels/wgmma.h

lib/kernels.c: $(kernels) $(kernel_headers) lib/embed.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D)
	$(AM_V_at)(cd $(srcdir) && LC_ALL=C $(AWK) -f lib/embed.awk $(kernels)) >$@.new
	$(AM_V_at)mv $@.new $@

BUILT_SOURCES = $(generated_headers) lib/kernels.c
CLEANFILES = $(BUILT_SOURCES)

lib_LTLIBRARIES = libkiln.la
noinst_LTLIBRARIES = libkiln-internal.la

# All of kiln, its internal functions too: what tests of them link.
libkiln_internal_la_SOURCES = \
	$(util_sources) \
	$(ops_sources) \
	$(device_sources) \
	$(graph_sources) \
	$(rewrite_sources) \
	$(fuse_sources) \
	$(plan_sources) \
	$(codegen_sources) \
	$(cache_sources) \
	$(runtime_sources) \
	$(record_sources) \
	$(grad_sources) \
	$(session_sources) \
	$(executor_sources) \
	$(files_sources)
nodist_libkiln_internal_la_SOURCES = lib/kernels.c
libkiln_internal_la_CFLAGS = $(AM_CFLAGS) $(KILN_HIDDEN)
libkiln_internal_la_LIBADD = $(CLBLAST_LIBS) $(OPENCL_LIBS) $(XXHASH_LIBS) $(JANSSON_LIBS)

libkiln_la_SOURCES =
libkiln_la_LIBADD = libkiln-internal.la
libkiln_la_LDFLAGS = \
	-version-info $(KILN_ABI) \
	-no-undefined
if VERSION_SCRIPTS
libkiln_la_LDFLAGS += -Wl,--version-script=$(srcdir)/lib/kiln.map
libkiln_la_DEPENDENCIES = libkiln-internal.la lib/kiln.map
else
libkiln_la_LDFLAGS += -export-symbols-regex '^kiln_[a-z]'
endif

pkgconfig_DATA = kiln.pc
cmakedir = $(libdir)/cmake/kiln
cmake_DATA = \
	cmake/kiln-config.cmake \
	cmake/kiln-config-version.cmake
