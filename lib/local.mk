# SPDX-License-Identifier: Apache-2.0
# ---- the library, a list per stage in the order in which data flows ----

util_sources = \
	lib/util/clock.c \
	lib/util/clock.h \
	lib/util/code.c \
	lib/util/code.h \
	lib/util/environment.c \
	lib/util/environment.h \
	lib/util/error.c \
	lib/util/error.h \
	lib/util/format.c \
	lib/util/format.h \
	lib/util/forks.c \
	lib/util/forks.h \
	lib/util/hash.c \
	lib/util/hash.h \
	lib/util/index.c \
	lib/util/index.h \
	lib/util/kernel_texts.h \
	lib/util/log.c \
	lib/util/log.h \
	lib/util/structure.c \
	lib/util/structure.h \
	lib/util/open_file.c \
	lib/util/open_file.h \
	lib/util/process.c \
	lib/util/process.h \
	lib/util/text.c \
	lib/util/text.h \
	lib/util/vector.c \
	lib/util/vector.h \
	lib/util/verify.c \
	lib/util/verify.h

ops_sources = \
	lib/ops/elementwise.def \
	lib/ops/integers.def \
	lib/ops/blocks.c \
	lib/ops/ops.c \
	lib/ops/ops.h \
	lib/ops/philox.c \
	lib/ops/philox.h \
	lib/ops/reduce.def \
	lib/ops/types.c \
	lib/ops/types.def

device_sources = \
	lib/device/device.h \
	lib/device/device_choice.c \
	lib/device/device_choice.h \
	lib/device/device_list.c \
	lib/device/device_list.h \
	lib/device/device_query.c \
	lib/device/device_query.h \
	lib/device/opencl.c \
	lib/device/opencl.h \
	lib/device/traits.c \
	lib/device/traits.h \
	lib/device/kernels.c \
	lib/device/kernels.def \
	lib/device/kernels.h \
	lib/device/tunables.c \
	lib/device/tunables.h

graph_sources = \
	lib/graph/attention.c \
	lib/graph/attention.h \
	lib/graph/attention_backward.c \
	lib/graph/attention_backward.h \
	lib/graph/batch_axis.c \
	lib/graph/batch_axis.h \
	lib/graph/custom_calls.c \
	lib/graph/custom_calls.h \
	lib/graph/loop.h \
	lib/graph/graph.c \
	lib/graph/graph.h \
	lib/graph/graph_text.c \
	lib/graph/kernel_support.h \
	lib/graph/labels.c \
	lib/graph/labels.h \
	lib/graph/micro_batch_graph.c \
	lib/graph/micro_batch_graph.h \
	lib/graph/partition.c \
	lib/graph/partition.h \
	lib/graph/replacements.c \
	lib/graph/replacements.h \
	lib/graph/row_limits.c \
	lib/graph/row_limits.h \
	lib/graph/shape.c \
	lib/graph/shape.h \
	lib/graph/verify_graph.c

reference_sources = \
	lib/reference/bounds.c \
	lib/reference/bounds.h \
	lib/reference/bounds_elementwise.c \
	lib/reference/bounds_movement.c \
	lib/reference/bounds_rules.h \
	lib/reference/bounds_sums.c \
	lib/reference/reference.c \
	lib/reference/reference.h \
	lib/reference/reference_attention.c \
	lib/reference/reference_attention.h \
	lib/reference/reference_attention_backward.c \
	lib/reference/reference_custom.c \
	lib/reference/reference_custom.h

rewrite_sources = \
	lib/rewrite/cse.c \
	lib/rewrite/depthwise.c \
	lib/rewrite/fold.c \
	lib/rewrite/insert_chain.c \
	lib/rewrite/lift.c \
	lib/rewrite/lift_update.c \
	lib/rewrite/merge.c \
	lib/rewrite/narrow.c \
	lib/rewrite/pads.c \
	lib/rewrite/passes.c \
	lib/rewrite/passes.h \
	lib/rewrite/rewrite.c \
	lib/rewrite/rewrite.h \
	lib/rewrite/sink.c \
	lib/rewrite/split_integers.c

fuse_sources = \
	lib/fuse/donation.c \
	lib/fuse/fuse.c \
	lib/fuse/fuse.h \
	lib/fuse/group.h \
	lib/fuse/group_begin.c \
	lib/fuse/group_kinds.c \
	lib/fuse/group_kinds.h \
	lib/fuse/group_text.c \
	lib/fuse/join.c \
	lib/fuse/join.h \
	lib/fuse/join_reshaped.c \
	lib/fuse/join_rows.c \
	lib/fuse/layout.c \
	lib/fuse/layout.h \
	lib/fuse/limits.h \
	lib/fuse/loop_nest.c \
	lib/fuse/loop_nest.h \
	lib/fuse/materialise.c \
	lib/fuse/multi_output.c \
	lib/fuse/prologue.c \
	lib/fuse/steps.c \
	lib/fuse/transposed_store.c \
	lib/fuse/verify_groups.c \
	lib/fuse/verify_groups.h \
	lib/fuse/verify_kinds.c \
	lib/fuse/verify_memory.c \
	lib/fuse/verify_steps.c

plan_sources = \
	lib/plan/launch.c \
	lib/plan/launch.h \
	lib/plan/launch_text.c \
	lib/plan/launch_text.h \
	lib/plan/names.c \
	lib/plan/names.h \
	lib/plan/packing.c \
	lib/plan/packing.h \
	lib/plan/plan.c \
	lib/plan/plan.h \
	lib/plan/plan_builder.h \
	lib/plan/traffic.c \
	lib/plan/traffic.h \
	lib/plan/verify_dependencies.c \
	lib/plan/verify_frozen.c \
	lib/plan/verify_plan.c \
	lib/plan/verify_plan.h \
	lib/plan/verify_values.c

memory_sources = \
	lib/memory/arena.c \
	lib/memory/dependencies.c \
	lib/memory/in_place.c \
	lib/memory/memory.h \
	lib/memory/occupancy.c \
	lib/memory/occupancy.h \
	lib/memory/rematerialise.c \
	lib/memory/rematerialise.h \
	lib/memory/rematerialise_graph.c \
	lib/memory/rematerialise_graph.h \
	lib/memory/schedule_early.c

lower_sources = \
	lib/lower/attention_work.h \
	lib/lower/axis_lanes.c \
	lib/lower/axis_mapping.c \
	lib/lower/frozen.c \
	lib/lower/generic.h \
	lib/lower/implicit_im2col.c \
	lib/lower/iteration_space.c \
	lib/lower/iteration_space.h \
	lib/lower/lower.c \
	lib/lower/lower.h \
	lib/lower/lower_attention.c \
	lib/lower/lower_attention_backward.c \
	lib/lower/lower_attention_few.c \
	lib/lower/lower_attention_nvidia.c \
	lib/lower/lower_custom.c \
	lib/lower/lower_generic.c \
	lib/lower/lower_matmul.c \
	lib/lower/lower_nest.c \
	lib/lower/lower_scatter.c \
	lib/lower/lower_sort.c \
	lib/lower/matmul.h \
	lib/lower/matmul_clblast.c \
	lib/lower/matmul_cpu.c \
	lib/lower/matmul_cpu.h \
	lib/lower/matmul_cpu_skinny.c \
	lib/lower/matmul_cpu_tiles.c \
	lib/lower/matmul_gpu.c \
	lib/lower/matmul_gpu_pack.c \
	lib/lower/matmul_gpu_rows.c \
	lib/lower/matmul_wgmma.c \
	lib/lower/plan_make.c \
	lib/lower/scatter.h \
	lib/lower/scatter_cpu.c \
	lib/lower/scatter_gpu.c \
	lib/lower/select.c \
	lib/lower/select.h \
	lib/lower/sort.h \
	lib/lower/sort_cpu.c \
	lib/lower/sort_gpu.c \
	lib/lower/strided_operands.c \
	lib/lower/strided_operands.h \
	lib/lower/workload.c \
	lib/lower/workload.h

codegen_sources = \
	lib/codegen/body.c \
	lib/codegen/body.h \
	lib/codegen/checked_text.c \
	lib/codegen/codegen.c \
	lib/codegen/codegen.h \
	lib/codegen/emit.c \
	lib/codegen/emit.h \
	lib/codegen/epilogue_text.c \
	lib/codegen/generic_text.c \
	lib/codegen/last_groups.c \
	lib/codegen/last_groups.h \
	lib/codegen/last_groups_text.c \
	lib/codegen/load_gather.c \
	lib/codegen/one_launch.c \
	lib/codegen/one_launch.h \
	lib/codegen/one_launch_text.c \
	lib/codegen/helper_text.c \
	lib/codegen/loop_text.c \
	lib/codegen/loops.c \
	lib/codegen/loops.h \
	lib/codegen/online_phases.c \
	lib/codegen/online_phases.h \
	lib/codegen/packed_text.c \
	lib/codegen/packed_text.h \
	lib/codegen/parameters.c \
	lib/codegen/parameters.h \
	lib/codegen/phase_text.c \
	lib/codegen/phase_text.h \
	lib/codegen/prelude.c \
	lib/codegen/prologue_text.c \
	lib/codegen/reduced_axis.c \
	lib/codegen/scan.c \
	lib/codegen/storage.c \
	lib/codegen/storage.h \
	lib/codegen/strips.c \
	lib/codegen/tiles.c \
	lib/codegen/totals.c \
	lib/codegen/verify_launches.c \
	lib/codegen/verify_scratch.c \
	lib/codegen/verify_scratch.h

store_sources = \
	lib/store/bundle.c \
	lib/store/cache_files.c \
	lib/store/cache_files.h \
	lib/store/catalog.c \
	lib/store/catalog.h \
	lib/store/entry.c \
	lib/store/entry.h \
	lib/store/folder.c \
	lib/store/folder.h \
	lib/store/host_identity.c \
	lib/store/host_identity.h \
	lib/store/key.c \
	lib/store/key.h \
	lib/store/location.c \
	lib/store/location.h \
	lib/store/lock.c \
	lib/store/lock.h \
	lib/store/store.c \
	lib/store/store.h \
	lib/store/store_file.c \
	lib/store/store_file.h \
	lib/store/tag.c \
	lib/store/tag.h

programs_sources = \
	lib/programs/build.c \
	lib/programs/build.h \
	lib/programs/builtins.c \
	lib/programs/builtins.h \
	lib/programs/compile_queue.c \
	lib/programs/compile_queue.h \
	lib/programs/compile_workers.c \
	lib/programs/compile_workers.h \
	lib/programs/compiler_guard.c \
	lib/programs/compiler_guard.h \
	lib/programs/device_note.c \
	lib/programs/device_note.h \
	lib/programs/edit.c \
	lib/programs/edit.h \
	lib/programs/fetch_interlock.c \
	lib/programs/fetch_interlock.h \
	lib/programs/kernel_objects.c \
	lib/programs/kernel_objects.h \
	lib/programs/pocl_folder.c \
	lib/programs/pocl_folder.h \
	lib/programs/prepare.c \
	lib/programs/program.c \
	lib/programs/program.h \
	lib/programs/program_state.h \
	lib/programs/program_table.c \
	lib/programs/stand_in.c \
	lib/programs/stand_in.h \
	lib/programs/store_entry.c \
	lib/programs/store_entry.h \
	lib/programs/store_thread.c \
	lib/programs/store_thread.h

runtime_sources = \
	lib/runtime/backing_store.c \
	lib/runtime/backing_store.h \
	lib/runtime/bindings.c \
	lib/runtime/bindings.h \
	lib/runtime/budget.c \
	lib/runtime/budget.h \
	lib/runtime/buffer.c \
	lib/runtime/buffer.h \
	lib/runtime/checked_launch.c \
	lib/runtime/clblast.c \
	lib/runtime/clblast.h \
	lib/runtime/clblast_sets.h \
	lib/runtime/commands.c \
	lib/runtime/commands.h \
	lib/runtime/executable.c \
	lib/runtime/executable.h \
	lib/runtime/memory_pool.c \
	lib/runtime/memory_pool.h \
	lib/runtime/pages.c \
	lib/runtime/pages.h \
	lib/runtime/pinned.c \
	lib/runtime/pinned.h \
	lib/runtime/prepacked.c \
	lib/runtime/prepacked.h \
	lib/runtime/run.c \
	lib/runtime/run.h \
	lib/runtime/run_slots.c \
	lib/runtime/run_slots.h \
	lib/runtime/runtime.c \
	lib/runtime/runtime.h \
	lib/runtime/slot_memory.c \
	lib/runtime/slot_memory.h \
	lib/runtime/staging.c \
	lib/runtime/staging.h \
	lib/runtime/stream.c \
	lib/runtime/stream.h \
	lib/runtime/trace.c \
	lib/runtime/trace.h

record_sources = \
	lib/record/batch.c \
	lib/record/batch.h \
	lib/record/call.c \
	lib/record/call.h \
	lib/record/concatenate.c \
	lib/record/custom.c \
	lib/record/custom_text.c \
	lib/record/custom_text.h \
	lib/record/loop.c \
	lib/record/loop_call.h \
	lib/record/loop_program.c \
	lib/record/loop_replay.c \
	lib/record/loop_steps.c \
	lib/record/elements.c \
	lib/record/gather.c \
	lib/record/slice_at.c \
	lib/record/movement.c \
	lib/record/operations.c \
	lib/record/operations.h \
	lib/record/pad.c \
	lib/record/product.c \
	lib/record/random.c \
	lib/record/replayed.h \
	lib/record/record_attention.c \
	lib/record/record_attention_backward.c \
	lib/record/record_attention_backward.h \
	lib/record/sort.c \
	lib/record/transfer.c

nn_sources = \
	lib/nn/channels.c \
	lib/nn/convolution.c \
	lib/nn/convolution.h \
	lib/nn/convolution_transposed.c \
	lib/nn/einsum.c \
	lib/nn/expression.c \
	lib/nn/expression.h \
	lib/nn/expression_record.c \
	lib/nn/fft.c \
	lib/nn/fft.h \
	lib/nn/fft_host.c \
	lib/nn/fft_prime.c \
	lib/nn/interpolation.c \
	lib/nn/normalization.c \
	lib/nn/pooling.c \
	lib/nn/quantize.c \
	lib/nn/recurrent.c \
	lib/nn/recurrent.h \
	lib/nn/recurrent_host.c \
	lib/nn/recurrent_kernel.c \
	lib/nn/resize.c \
	lib/nn/signal.c \
	lib/nn/sliding_windows.c \
	lib/nn/sliding_windows.h

grad_sources = \
	lib/grad/grad_attention.c \
	lib/grad/grad_attention_backward.c \
	lib/grad/grad_convolution.c \
	lib/grad/grad_custom.c \
	lib/grad/grad_loop.c \
	lib/grad/grad_gather.c \
	lib/grad/grad_movement.c \
	lib/grad/grad_product.c \
	lib/grad/grad_rows.c \
	lib/grad/gradient.c \
	lib/grad/gradient.h

session_sources = \
	lib/session/background.c \
	lib/session/background.h \
	lib/session/compile.c \
	lib/session/compile.h \
	lib/session/context.h \
	lib/session/explain.c \
	lib/session/explain.h \
	lib/session/explain_summary.c \
	lib/session/lease.c \
	lib/session/option_words.c \
	lib/session/plan_cache.c \
	lib/session/plan_cache.h \
	lib/session/plan_cache_state.h \
	lib/session/plan_programs.c \
	lib/session/plan_table.c \
	lib/session/plan_table.h \
	lib/session/plan_workloads.c \
	lib/session/plan_workloads.h \
	lib/session/sample.c \
	lib/session/sample.h

debug_sources = \
	lib/debug/crash_probe.c \
	lib/debug/crash_probe.h \
	lib/debug/intermediates.c \
	lib/debug/intermediates.h \
	lib/debug/nan_check.c \
	lib/debug/nan_check.h \
	lib/debug/self_test.c \
	lib/debug/self_test.h \
	lib/debug/self_test_data.c \
	lib/debug/self_test_data.h \
	lib/debug/validate.c \
	lib/debug/validate.h

tune_sources = \
	lib/tune/measure_products.c \
	lib/tune/measure_products.h \
	lib/tune/precision.c \
	lib/tune/tuning_record.c \
	lib/tune/tuning_record.h

api_sources = \
	lib/api/api_batch.c \
	lib/api/api_buffer.c \
	lib/api/api_cache.c \
	lib/api/api_context.c \
	lib/api/api_device.c \
	lib/api/api_event.c \
	lib/api/checked_run.c \
	lib/api/checked_run.h \
	lib/api/eager.c \
	lib/api/host_memory.c \
	lib/api/initializers.c \
	lib/api/loop_costs.c \
	lib/api/loop_counts.c \
	lib/api/loop_counts.h \
	lib/api/loop_runs.c \
	lib/api/loop_runs.h \
	lib/api/loop_scopes.c \
	lib/api/loop_scopes.h \
	lib/api/micro_batch_plan.c \
	lib/api/micro_batch_plan.h \
	lib/api/micro_batches.c \
	lib/api/micro_batches.h

executor_sources = \
	lib/executor/device_queue.c \
	lib/executor/event_count.c \
	lib/executor/event_count.h \
	lib/executor/executor.c \
	lib/executor/executor.h \
	lib/executor/future.c \
	lib/executor/future.h \
	lib/executor/histogram.c \
	lib/executor/histogram.h \
	lib/executor/inbox.c \
	lib/executor/inbox.h \
	lib/executor/metrics.c \
	lib/executor/model.c \
	lib/executor/model.h \
	lib/executor/models.c \
	lib/executor/parallel.c \
	lib/executor/parallel.h \
	lib/executor/parallel_step.c \
	lib/executor/request_queue.c \
	lib/executor/request_queue.h \
	lib/executor/shards.c \
	lib/executor/split.c \
	lib/executor/submit.c \
	lib/executor/tune_batches.c \
	lib/executor/tune_batches.h \
	lib/executor/worker.c

train_sources = \
	lib/train/clip.c \
	lib/train/gradients.h \
	lib/train/loss.c \
	lib/train/optimizer.c

files_sources = \
	lib/files/file_types.c \
	lib/files/file_types.h \
	lib/files/load.c \
	lib/files/mapping.c \
	lib/files/mapping.h \
	lib/files/npy.c \
	lib/files/npy.h \
	lib/files/npy_header.c \
	lib/files/safetensors.c \
	lib/files/safetensors.h \
	lib/files/save.c

kernels = \
	kernels/attention_backward.cl \
	kernels/attention_backward_wgmma.cl \
	kernels/attention_copies.cl \
	kernels/attention_copies_long.cl \
	kernels/attention_cpu.cl \
	kernels/attention_cpu_few.cl \
	kernels/attention_gpu.cl \
	kernels/attention_join.cl \
	kernels/attention_wgmma.cl \
	kernels/builtins.cl \
	kernels/checked.cl \
	kernels/fft.cl \
	kernels/generic.cl \
	kernels/lanes.cl \
	kernels/lanes_integers.cl \
	kernels/last_groups.cl \
	kernels/math.cl \
	kernels/math_end.cl \
	kernels/math_inverse.cl \
	kernels/math_random.cl \
	kernels/math_special.cl \
	kernels/matmul_cpu_blocks.cl \
	kernels/matmul_cpu_im2col.cl \
	kernels/matmul_cpu_packed.cl \
	kernels/matmul_cpu_skinny.cl \
	kernels/matmul_cpu_small.cl \
	kernels/matmul_gpu.cl \
	kernels/matmul_gpu_pack.cl \
	kernels/matmul_gpu_rows.cl \
	kernels/matmul_gpu_sum.cl \
	kernels/matmul_mma.cl \
	kernels/matmul_mma_rows.cl \
	kernels/matmul_wgmma.cl \
	kernels/narrow.cl \
	kernels/blocks.cl \
	kernels/one_launch.cl \
	kernels/recurrent_cpu.cl \
	kernels/scatter.cl \
	kernels/scatter_atomic.cl \
	kernels/scatter_gpu.cl \
	kernels/scatter_parts.cl \
	kernels/scatter_sorted.cl \
	kernels/scatter_winners.cl \
	kernels/sort_cpu_digits.cl \
	kernels/sort_cpu_lines.cl \
	kernels/sort_gpu_blocks.cl \
	kernels/sort_gpu_digits.cl \
	kernels/sort_gpu_first.cl

# What they include.
kernel_headers = \
	kernels/attention.h \
	kernels/attention_backward.h \
	kernels/attention_copies.h \
	kernels/attention_cpu.h \
	kernels/attention_parts.h \
	kernels/attention_ptx.h \
	kernels/attention_wgmma.h \
	kernels/behind.h \
	kernels/cpu_dots.h \
	kernels/cpu_lines.h \
	kernels/cpu_pack.h \
	kernels/cpu_tile.h \
	kernels/cpu_vector.h \
	kernels/epilogue.h \
	kernels/helpers.h \
	kernels/matmul_gpu_fetch.h \
	kernels/matmul_gpu_im2col.h \
	kernels/narrow_result.h \
	kernels/operands.h \
	kernels/runs.h \
	kernels/scatter.h \
	kernels/sort.h \
	kernels/sort_gpu.h \
	kernels/tensor_tile.h \
	kernels/wgmma.h

lib/kernel_texts.c: $(kernels) $(kernel_headers) lib/embed.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D)
	$(AM_V_at)(cd $(srcdir) && LC_ALL=C $(AWK) -f lib/embed.awk $(kernels)) >$@.new
	$(AM_V_at)mv $@.new $@

BUILT_SOURCES = $(generated_headers) lib/kernel_texts.c
CLEANFILES = $(BUILT_SOURCES)

lib_LTLIBRARIES = libkiln.la
noinst_LTLIBRARIES = libkiln-internal.la

# All of kiln, its internal functions too: what tests of them link. No two files have one name: libtool
# would copy all objects each time.
libkiln_internal_la_SOURCES = \
	$(util_sources) \
	$(ops_sources) \
	$(device_sources) \
	$(graph_sources) \
	$(reference_sources) \
	$(rewrite_sources) \
	$(fuse_sources) \
	$(plan_sources) \
	$(memory_sources) \
	$(lower_sources) \
	$(codegen_sources) \
	$(store_sources) \
	$(programs_sources) \
	$(runtime_sources) \
	$(record_sources) \
	$(nn_sources) \
	$(grad_sources) \
	$(session_sources) \
	$(debug_sources) \
	$(tune_sources) \
	$(api_sources) \
	$(executor_sources) \
	$(train_sources) \
	$(files_sources)
nodist_libkiln_internal_la_SOURCES = lib/kernel_texts.c
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
