# SPDX-License-Identifier: Apache-2.0
# ---- tests: each test_*.c is a Criterion program over all of kiln ----

criterion_tests = \
	tests/memory/test_rematerialise \
	tests/lower/test_attention \
	tests/lower/test_attention_lengths \
	tests/lower/test_attention_window \
	tests/lower/test_attention_wgmma \
	tests/record/test_batch \
	tests/record/test_custom \
	tests/record/test_custom_refused \
	tests/record/test_loop \
	tests/record/test_replay \
	tests/programs/test_background \
	tests/programs/test_background_joined \
	tests/programs/test_background_quick \
	tests/runtime/test_buffers \
	tests/programs/test_builtins \
	tests/lower/test_catalogue \
	tests/store/test_cache_catalog \
	tests/programs/test_cache_edit \
	tests/store/test_cache_entry \
	tests/programs/test_cache_processes \
	tests/programs/test_cache_program \
	tests/programs/test_compile_workers \
	tests/store/test_cache_folder \
	tests/store/test_cache_store \
	tests/nn/test_channels \
	tests/session/test_context \
	tests/nn/test_conv \
	tests/nn/test_convolution \
	tests/runtime/test_counts \
	tests/runtime/test_one_launch \
	tests/runtime/test_last_groups \
	tests/runtime/test_one_launch_groups \
	tests/runtime/test_packed_arguments \
	tests/device/test_device \
	tests/record/test_einsum \
	tests/nn/test_expression \
	tests/nn/test_fft \
	tests/record/test_errors \
	tests/record/test_errors_calls \
	tests/runtime/test_events \
	tests/executor/test_executor \
	tests/executor/test_executor_invariant \
	tests/executor/test_executor_contexts \
	tests/executor/test_executor_errors \
	tests/executor/test_executor_lengths \
	tests/executor/test_executor_parts \
	tests/executor/test_executor_threads \
	tests/executor/test_executor_tune \
	tests/session/test_explain \
	tests/files/test_files \
	tests/runtime/test_fork \
	tests/fuse/test_fusion \
	tests/fuse/test_fusion_normalization \
	tests/fuse/test_fusion_reshaped \
	tests/fuzz/test_fuzz_calls \
	tests/grad/test_grad \
	tests/grad/test_grad_operations \
	tests/fuse/test_groups \
	tests/grad/test_grad_device \
	tests/memory/test_growth \
	tests/runtime/test_host_memory \
	tests/runtime/test_idle_release \
	tests/memory/test_in_place \
	tests/runtime/test_interop \
	tests/nn/test_interpolation \
	tests/runtime/test_prepacked \
	tests/util/test_code \
	tests/codegen/test_kernels \
	tests/device/test_limit \
	tests/util/test_locale \
	tests/train/test_loss \
	tests/lower/test_matmul \
	tests/ops/test_cumsum \
	tests/record/test_names \
	tests/ops/test_narrow \
	tests/nn/test_normalization \
	tests/lower/test_matmul_quantized \
	tests/lower/test_matmul_wgmma \
	tests/executor/test_models \
	tests/api/test_eager \
	tests/ops/test_ops \
	tests/ops/test_blocks \
	tests/ops/test_ops_cast \
	tests/ops/test_ops_known \
	tests/ops/test_ops_elements \
	tests/ops/test_ops_gather \
	tests/ops/test_ops_lanes \
	tests/ops/test_ops_movement \
	tests/ops/test_ops_insert_slice \
	tests/ops/test_ops_insert_slice_cost \
	tests/ops/test_ops_update_slice \
	tests/ops/test_ops_reduce \
	tests/ops/test_ops_reduce_fused \
	tests/ops/test_ops_scatter \
	tests/ops/test_sort \
	tests/ops/test_sort_long \
	tests/ops/test_ops_shapes \
	tests/train/test_optimizer \
	tests/util/test_options \
	tests/ops/test_pad \
	tests/executor/test_parallel \
	tests/executor/test_reducer \
	tests/api/test_micro_batches \
	tests/rewrite/test_passes \
	tests/rewrite/test_narrow \
	tests/plan/test_plan \
	tests/runtime/test_pool \
	tests/nn/test_pools \
	tests/device/test_precision \
	tests/ops/test_random \
	tests/nn/test_recurrent \
	tests/nn/test_recurrent_kernel \
	tests/reference/test_reference \
	tests/nn/test_resize \
	tests/fuse/test_reuse \
	tests/files/test_saved \
	tests/memory/test_schedule \
	tests/runtime/test_shapes \
	tests/executor/test_serve \
	tests/nn/test_signal \
	tests/runtime/test_backing_store \
	tests/runtime/test_staging \
	tests/record/test_structures \
	tests/runtime/test_streams \
	tests/runtime/test_threads \
	tests/plan/test_traffic \
	tests/debug/test_crash_probe \
	tests/tune/test_tune \
	tests/record/test_twice \
	tests/util/test_util \
	tests/debug/test_validate \
	tests/debug/test_loop_checks \
	tests/debug/test_nan_check \
	tests/fuse/test_verify_fusion \
	tests/plan/test_verify_plan \
	tests/programs/test_pocl_folder \
	tests/programs/test_prepare \
	tests/programs/test_warm \
	tests/onnx/test_wordpiece \
	tests/tokens/test_subwords \
	tests/tune/test_workloads \
	tests/layer/test_layer

if ONNX
criterion_tests += $(onnx_tests)
endif
if LM
criterion_tests += $(lm_tests)
endif

# Those that use an OpenCL device: run once more on other devices. Large dimensions
# (tests/ops/test_ops_large) take a device in software many minutes.
device_tests = \
	tests/lower/test_attention \
	tests/lower/test_attention_lengths \
	tests/lower/test_attention_window \
	tests/record/test_batch \
	tests/record/test_custom \
	tests/record/test_custom_refused \
	tests/record/test_loop \
	tests/record/test_replay \
	tests/programs/test_background \
	tests/programs/test_background_joined \
	tests/programs/test_background_quick \
	tests/runtime/test_buffers \
	tests/programs/test_builtins \
	tests/programs/test_cache_program \
	tests/programs/test_compile_workers \
	tests/nn/test_channels \
	tests/session/test_context \
	tests/nn/test_conv \
	tests/nn/test_convolution \
	tests/device/test_device \
	tests/record/test_einsum \
	tests/nn/test_expression \
	tests/nn/test_fft \
	tests/runtime/test_events \
	tests/executor/test_executor \
	tests/session/test_explain \
	tests/runtime/test_fork \
	tests/grad/test_grad_device \
	tests/grad/test_grad_range \
	tests/runtime/test_host_memory \
	tests/memory/test_in_place \
	tests/runtime/test_interop \
	tests/nn/test_interpolation \
	tests/runtime/test_prepacked \
	tests/train/test_loss \
	tests/lower/test_matmul \
	tests/ops/test_cumsum \
	tests/nn/test_normalization \
	tests/lower/test_matmul_epilogue \
	tests/lower/test_matmul_operands \
	tests/lower/test_matmul_quantized \
	tests/lower/test_matmul_wgmma \
	tests/api/test_eager \
	tests/device/test_precision \
	tests/ops/test_random \
	tests/ops/test_ops \
	tests/ops/test_ops_cast \
	tests/ops/test_ops_known \
	tests/ops/test_ops_elements \
	tests/ops/test_ops_gather \
	tests/ops/test_ops_lanes \
	tests/ops/test_ops_movement \
	tests/ops/test_ops_insert_slice \
	tests/ops/test_ops_insert_slice_cost \
	tests/ops/test_ops_update_slice \
	tests/ops/test_ops_random \
	tests/ops/test_ops_reduce \
	tests/ops/test_ops_reduce_fused \
	tests/ops/test_ops_scatter \
	tests/ops/test_sort \
	tests/ops/test_sort_long \
	tests/ops/test_ops_shapes \
	tests/train/test_optimizer \
	tests/ops/test_pad \
	tests/fuse/test_pairs \
	tests/executor/test_parallel \
	tests/api/test_micro_batches \
	tests/api/test_micro_batches_sums \
	tests/nn/test_recurrent \
	tests/nn/test_recurrent_kernel \
	tests/nn/test_resize \
	tests/fuse/test_reuse \
	tests/files/test_saved \
	tests/runtime/test_shapes \
	tests/lower/test_attention_backward \
	tests/nn/test_signal \
	tests/runtime/test_backing_store \
	tests/runtime/test_staging \
	tests/record/test_structures \
	tests/debug/test_crash_probe \
	tests/record/test_twice \
	tests/ops/test_types \
	tests/debug/test_validate

# Those where threads meet.
thread_tests = \
	tests/record/test_batch \
	tests/programs/test_background \
	tests/programs/test_background_joined \
	tests/programs/test_cache_program \
	tests/programs/test_compile_workers \
	tests/runtime/test_events \
	tests/executor/test_executor \
	tests/executor/test_executor_contexts \
	tests/executor/test_executor_lengths \
	tests/executor/test_executor_threads \
	tests/executor/test_reducer \
	tests/executor/test_serve \
	tests/runtime/test_shapes \
	tests/runtime/test_backing_store \
	tests/runtime/test_staging \
	tests/runtime/test_streams \
	tests/runtime/test_threads

if ONNX
thread_tests += tests/onnx/test_model
endif

# Those whose kernels run under Oclgrind (no host threads there).
kernel_tests = \
	tests/ops/test_cumsum \
	tests/nn/test_normalization \
	tests/ops/test_ops \
	tests/ops/test_ops_cast \
	tests/ops/test_ops_known \
	tests/ops/test_ops_reduce \
	tests/ops/test_ops_reduce_fused \
	tests/ops/test_ops_scatter \
	tests/ops/test_sort \
	tests/ops/test_ops_shapes

# It breaks kernels on their way to the compiler.
tests_debug_test_validate_LDFLAGS = -Wl,--wrap=clCreateProgramWithSource

# The library's memory runs out there (tests/support/failing_memory.h).
failing_memory_ldflags = -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc
tests_files_test_saved_LDFLAGS = $(failing_memory_ldflags)
tests_lm_test_genai_LDFLAGS = $(failing_memory_ldflags)

# It has threads that cannot be made.
tests_executor_test_executor_errors_LDFLAGS = -Wl,--wrap=pthread_create

# The server of an example.
tests_executor_test_serve_SOURCES = \
	tests/executor/test_serve.c \
	examples/serve_server.c \
	examples/serve_server.h
tests_executor_test_serve_LDFLAGS = -Wl,--wrap=eventfd

# The limits of benchmarks, without the rest of these.
tests_device_test_limit_SOURCES = \
	tests/device/test_limit.c \
	bench/limit.c
tests_device_test_limit_LDFLAGS = -Wl,--wrap=clEnqueueNDRangeKernel

# The store that both begin with.
tests_store_test_cache_folder_SOURCES = tests/store/test_cache_folder.c tests/store/stores.h
tests_store_test_cache_store_SOURCES = tests/store/test_cache_store.c tests/store/stores.h

# The kernel that both begin with.
tests_record_test_custom_SOURCES = tests/record/test_custom.c tests/record/custom_one.h
tests_record_test_custom_refused_SOURCES = tests/record/test_custom_refused.c tests/record/custom_one.h

# The tokenizers of `kiln embed`.
EXTRA_PROGRAMS =
tests_onnx_test_wordpiece_SOURCES = tests/onnx/test_wordpiece.c
tests_onnx_test_wordpiece_CPPFLAGS = $(AM_CPPFLAGS) $(UTF8PROC_CFLAGS)
tests_onnx_test_wordpiece_LDADD = $(LDADD) $(UTF8PROC_LIBS) $(JANSSON_LIBS)
tests_tokens_test_subwords_SOURCES = tests/tokens/test_subwords.c tests/tokens/known.def
tests_tokens_test_subwords_CPPFLAGS = $(tests_onnx_test_wordpiece_CPPFLAGS)
tests_tokens_test_subwords_LDADD = $(tests_onnx_test_wordpiece_LDADD)
if UTF8PROC
tests_onnx_test_wordpiece_SOURCES += $(tokenizer_sources)
tests_tokens_test_subwords_SOURCES += $(tokenizer_sources)
tokens_programs = tests/tokens/print_tokens
EXTRA_PROGRAMS += $(tokens_programs)
CLEANFILES += $(tokens_programs)
tests_tokens_print_tokens_SOURCES = tests/tokens/print_tokens.c lib/util/format.c lib/util/text.c $(tokenizer_sources)
tests_tokens_print_tokens_CPPFLAGS = $(tests_onnx_test_wordpiece_CPPFLAGS)
tests_tokens_print_tokens_LDADD = $(UTF8PROC_LIBS) $(JANSSON_LIBS) -lm
endif

# Operands of products are spoilt there.
tests_device_test_precision_LDFLAGS = -Wl,--wrap=kiln_cast

# Bytes from seeds, where libFuzzer does not make them.
fuzz_seeded_sources = \
	tests/fuzz/seeded.c \
	tests/fuzz/seeded.h

# Public calls with hostile arguments.
fuzz_calls_sources = \
	tests/fuzz/calls.c \
	tests/fuzz/calls.def \
	tests/fuzz/calls.h \
	tests/fuzz/take.h \
	tests/fuzz/values.c \
	tests/fuzz/values.def \
	tests/fuzz/values.h \
	tests/fuzz/values_executors.c \
	tests/fuzz/values_options.c \
	tests/fuzz/values_tensors.c \
	tests/fuzz/values_texts.c \
	tests/fuzz/world.c \
	tests/fuzz/world.h
fuzz_calls_ldflags = -Wl,--wrap=clBuildProgram
tests_fuzz_test_fuzz_calls_SOURCES = tests/fuzz/test_fuzz_calls.c $(fuzz_seeded_sources) $(fuzz_calls_sources)
tests_fuzz_test_fuzz_calls_LDFLAGS = $(fuzz_calls_ldflags)

# Hostile model files.
fuzz_onnx_sources = \
	tests/fuzz/onnx.c \
	tests/fuzz/onnx.h \
	tests/fuzz/onnx_attributes.c \
	tests/fuzz/onnx_choices.c \
	tests/fuzz/onnx_choices.h \
	tests/fuzz/onnx_file.c \
	tests/fuzz/onnx_file.h \
	tests/fuzz/onnx_parts.h \
	tests/fuzz/onnx_tensors.c
fuzz_onnx_cppflags = $(AM_CPPFLAGS) $(PROTOBUF_C_CFLAGS) -I$(top_builddir)
fuzz_onnx_libs = libkiln-onnx-internal.la $(LDADD)
tests_fuzz_test_fuzz_onnx_SOURCES = tests/fuzz/test_fuzz_onnx.c $(fuzz_seeded_sources) $(fuzz_onnx_sources)
tests_fuzz_test_fuzz_onnx_CPPFLAGS = $(fuzz_onnx_cppflags)
tests_fuzz_test_fuzz_onnx_LDADD = $(fuzz_onnx_libs)
if ONNX
criterion_tests += tests/fuzz/test_fuzz_onnx
endif

# Searches for rare failures; with the argument "long" they take their time.
campaigns = \
	tests/campaigns/cache_damage \
	tests/campaigns/cache_dates \
	tests/campaigns/cache_foreign \
	tests/campaigns/cache_io \
	tests/campaigns/cache_kill \
	tests/campaigns/cache_names \
	tests/campaigns/executor_race \
	tests/campaigns/executor_soak \
	tests/campaigns/set_user_id
tests_campaigns_allocations_SOURCES = \
	tests/campaigns/allocations.c \
	tests/campaigns/basic_work.c \
	tests/campaigns/basic_work.h \
	tests/campaigns/executor_work.c \
	tests/campaigns/executor_work.h \
	tests/campaigns/budget.c \
	tests/campaigns/budget.h \
	tests/campaigns/opencl_work.c \
	tests/campaigns/opencl_work.h \
	tests/campaigns/training_work.c \
	tests/campaigns/training_work.h
tests_campaigns_allocations_LDFLAGS = \
	-Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=aligned_alloc,--wrap=strdup,--wrap=free
tests_campaigns_busy_cache_SOURCES = \
	tests/campaigns/busy_cache.c \
	tests/campaigns/cold_work.c \
	tests/campaigns/cold_work.h
tests_campaigns_cache_endings_SOURCES = \
	tests/campaigns/cache_endings.c \
	tests/campaigns/cold_work.c \
	tests/campaigns/cold_work.h
tests_campaigns_ends_SOURCES = \
	tests/campaigns/cold_work.c \
	tests/campaigns/cold_work.h \
	tests/campaigns/ends.c
tests_campaigns_cache_dates_LDFLAGS = -Wl,--wrap=fsync
tests_campaigns_cache_io_LDFLAGS = -Wl,--wrap=malloc
tests_campaigns_cache_names_LDFLAGS = -Wl,--wrap=fsync
tests_campaigns_cache_io_SOURCES = \
	tests/campaigns/cache_io.c \
	tests/campaigns/faulty_io.c \
	tests/campaigns/faulty_io.h
tests_campaigns_executor_race_SOURCES = \
	tests/campaigns/executor_race.c \
	tests/campaigns/executor_requests.c \
	tests/campaigns/executor_requests.h
tests_campaigns_executor_soak_SOURCES = \
	tests/campaigns/executor_requests.c \
	tests/campaigns/executor_requests.h \
	tests/campaigns/executor_soak.c \
	$(soak)
soak = \
	tests/campaigns/soak.c \
	tests/campaigns/soak.h
tests_campaigns_opencl_failures_SOURCES = \
	tests/campaigns/opencl_failures.c \
	tests/campaigns/basic_work.c \
	tests/campaigns/basic_work.h \
	tests/campaigns/executor_work.c \
	tests/campaigns/executor_work.h \
	tests/campaigns/budget.c \
	tests/campaigns/budget.h \
	tests/campaigns/opencl_work.c \
	tests/campaigns/opencl_work.h \
	tests/campaigns/training_work.c \
	tests/campaigns/training_work.h

# The kiln program, the shared library, the source tree.
script_tests = \
	tests/check-bindings.sh \
	tests/check-builtins.sh \
	tests/check-exports.sh \
	tests/check-fuzz-calls.sh \
	tests/check-headers.sh \
	tests/check-includes.sh \
	tests/check-lengths.sh \
	tests/check-lists.sh \
	tests/check-numbers.sh \
	tests/check-pages.sh \
	tests/check-picture.sh \
	tests/check-structures.sh \
	tests/check-tags.sh \
	tests/pages/test_abi.sh \
	tests/tools/test_bundle.sh \
	tests/tools/test_cache_tool.sh \
	tests/pages/test_cplusplus.sh \
	tests/tools/test_embed_dask.sh \
	tests/tools/test_serve_ray.sh \
	tests/tools/test_embed_tool.sh \
	tests/tools/test_chat_tool.sh \
	tests/tools/test_completion.sh \
	tests/tools/test_generate_tool.sh \
	tests/mpi/test_mpi.sh \
	tests/python/test_python.sh \
	tests/pages/test_release.sh \
	tests/tools/test_run_tool.sh \
	tests/tools/test_serve_tool.sh \
	tests/tools/test_profile_tool.sh \
	tests/tools/test_store.sh \
	tests/tools/test_tool.sh \
	tests/pages/test_tutorial.sh

# ---- what takes long ----

# Searches, sweeps and large sizes, where a quicker test knows the same code: `make check` leaves these
# to `make check-long`, which CI runs, too. The longest stand first, so that no processor waits for
# one at the end.
long_criterion_tests = \
	$(lm_long_tests) \
	tests/ops/test_ops_random \
	tests/lower/test_matmul_operands \
	tests/fuse/test_pairs \
	tests/lower/test_matmul_epilogue \
	tests/ops/test_types \
	tests/lower/test_attention_backward \
	tests/ops/test_accuracy \
	tests/grad/test_grad_range \
	tests/api/test_micro_batches_sums \
	tests/ops/test_ops_large
long_campaigns = \
	tests/campaigns/allocations \
	tests/campaigns/ends \
	tests/campaigns/opencl_failures \
	tests/campaigns/busy_cache \
	tests/campaigns/cache_endings
if LM
long_campaigns += $(lm_campaigns)
endif
long_script_tests = \
	tests/python/test_arrays.sh \
	tests/tools/test_serve_faults.sh \
	tests/tools/test_tune_tool.sh \
	tests/python/test_interrupts.sh \
	tests/python/test_loops.sh \
	tests/python/test_nn.sh \
	tests/pages/test_examples.sh
# Those of `make check` in which some tests' names begin with slow_, and wait for `make check-long`.
partly_long_tests = \
	tests/debug/test_validate \
	tests/device/test_precision \
	tests/executor/test_executor_invariant \
	tests/executor/test_parallel \
	tests/fuse/test_groups \
	tests/lower/test_attention \
	tests/lower/test_attention_lengths \
	tests/lower/test_matmul \
	tests/memory/test_rematerialise \
	tests/nn/test_convolution \
	tests/nn/test_fft \
	tests/nn/test_normalization \
	tests/ops/test_blocks \
	tests/ops/test_cumsum \
	tests/ops/test_ops_gather \
	tests/ops/test_ops_insert_slice \
	tests/ops/test_ops_lanes \
	tests/ops/test_ops_movement \
	tests/ops/test_ops_reduce \
	tests/ops/test_ops_reduce_fused \
	tests/ops/test_ops_scatter \
	tests/ops/test_ops_shapes \
	tests/ops/test_ops_update_slice \
	tests/ops/test_sort_long \
	tests/programs/test_background_quick \
	tests/programs/test_builtins \
	tests/record/test_loop \
	tests/record/test_replay \
	tests/rewrite/test_narrow \
	tests/train/test_loss \
	tests/tune/test_tune
long_programs = $(long_criterion_tests) $(long_campaigns)
long_tests = $(long_script_tests) $(long_programs)

check_PROGRAMS = $(criterion_tests) $(campaigns)
if LONG_TESTS
check_PROGRAMS += $(long_programs)
TEST_PART =
else
TEST_PART = KILN_TEST_PART=$${KILN_TEST_PART-short}; export KILN_TEST_PART;
CLEANFILES += $(long_programs)
endif
check_LTLIBRARIES = libtest-support.la
libtest_support_la_SOURCES = \
	tests/support/cache.c \
	tests/support/cache.h \
	tests/support/check.c \
	tests/support/check.h \
	tests/support/check_rows.c \
	tests/support/check_values.c \
	tests/support/context.c \
	tests/support/context.h \
	tests/support/device.c \
	tests/support/device.h \
	tests/support/failing_memory.h \
	tests/support/file.c \
	tests/support/file.h \
	tests/support/fill.c \
	tests/support/fill.h \
	tests/support/golden.c \
	tests/support/golden.h \
	tests/support/gradient.c \
	tests/support/gradient.h \
	tests/support/graph.c \
	tests/support/graph.h \
	tests/support/grouped.h \
	tests/support/grown.c \
	tests/support/grown.h \
	tests/support/interpret.c \
	tests/support/interpret.h \
	tests/support/interpret_groups.c \
	tests/support/interpret_groups.h \
	tests/support/interpret_machine.c \
	tests/support/interpret_machine.h \
	tests/support/interpret_plan.c \
	tests/support/interpret_plan.h \
	tests/support/layer.c \
	tests/support/layer.h \
	tests/support/expect.hpp \
	tests/support/missing.h \
	tests/support/tokens.h \
	tests/support/movement.c \
	tests/support/pattern.c \
	tests/support/pattern.h \
	tests/support/movement.h \
	tests/support/product.c \
	tests/support/product.h \
	tests/support/random.c \
	tests/support/random.h \
	tests/support/random_again.c \
	tests/support/random_basic.c \
	tests/support/random_network.c \
	tests/support/random_pool.c \
	tests/support/random_pool.h \
	tests/support/reproduce.c \
	tests/support/reproduce.h \
	tests/support/reproduce_calls.c \
	tests/support/reproduce_calls.h \
	tests/support/reproduce_print.c \
	tests/support/samples.c \
	tests/support/samples.h \
	tests/support/served.c \
	tests/support/served.h \
	tests/support/sweep.c \
	tests/support/sweep.h
if PLAIN_TESTS
libtest_support_la_SOURCES += \
	tests/support/plain/plain.c \
	tests/support/plain/criterion/criterion.h
endif
TEST_LDADD = libtest-support.la libkiln-internal.la $(TEST_LIBS)
LDADD = $(TEST_LDADD) $(TEST_LINKER)
# The programs' own code waits for kernels; what they share computes, and is optimised (.lo).
tests/%.o: CFLAGS += $(TEST_CFLAGS)

# An OpenCL layer that counts calls and lets them fail: a plain shared object in every build.
layer_sources = \
	tests/layer/calls.c \
	tests/layer/calls.def \
	tests/layer/calls.h \
	tests/layer/counts.c \
	tests/layer/counts.h \
	tests/layer/failure.c \
	tests/layer/failure.h \
	tests/layer/layer.c \
	tests/layer/layer.h \
	tests/layer/opencl.h \
	tests/layer/marks.c \
	tests/layer/marks.h
check_DATA = tests/layer/kiln-layer.so test-pocl/made
tests/layer/kiln-layer.so: $(layer_sources)
	$(AM_V_CCLD)$(MKDIR_P) $(@D)
	$(AM_V_at)$(CC) -std=gnu11 $(AM_CPPFLAGS) $(KILN_CFLAGS) -O1 -g -fPIC -shared -o $@ \
	    `for f in $(layer_sources); do case $$f in *.c) echo $(srcdir)/$$f;; esac; done` -ldl -lpthread
CLEANFILES += tests/layer/kiln-layer.so

# PoCL beside what kernels call of its library. Those of tests and pages, which call more, follow the
# list of what kiln's call.
with_kernels = \
	kernels/builtins.cl \
	doc/custom.md \
	doc/python.md \
	examples/opencl.c \
	include/kiln/custom.h \
	python/kiln/_arithmetic.py \
	python/kiln/_hooks.py \
	python/tests/test_kernel.py \
	python/tests/test_opencl.py \
	python/tests/test_tensors.py \
	tests/campaigns/cache_foreign.c \
	tests/device/test_device.c \
	tests/layer/test_layer.c \
	tests/programs/test_builtins.c \
	tests/programs/test_cache_program.c \
	tests/programs/test_compile_workers.c \
	tests/record/custom_one.h \
	tests/record/test_custom.c \
	tests/record/test_custom_refused.c \
	tests/support/cache.c \
	tests/support/fill.c
test-pocl/made: tests/small-pocl.py $(with_kernels)
	$(AM_V_GEN)python3 $(srcdir)/tests/small-pocl.py test-pocl $(filter-out %/small-pocl.py,$^) || rm -rf test-pocl
	$(AM_V_at)mkdir -p test-pocl && echo >$@

# Short ones at the end: no processor waits long for another.
TESTS =
if LONG_TESTS
TESTS += $(long_tests)
endif
TESTS += $(script_tests) $(examples) $(criterion_tests) $(campaigns)
TEST_EXTENSIONS = .sh
AM_TESTS_ENVIRONMENT = \
	KILN_TEST_CC='$(CC) $(KILN_KIND_CFLAGS) $(CFLAGS)'; export KILN_TEST_CC; \
	KILN_TEST_LAYER='$(abs_builddir)/tests/layer/kiln-layer.so'; export KILN_TEST_LAYER; \
	KILN_TEST_STORE=$${KILN_TEST_STORE-'$(abs_builddir)/test-store'}; export KILN_TEST_STORE; \
	KILN_TEST_POCL=$${KILN_TEST_POCL-'$(abs_builddir)/test-pocl'}; export KILN_TEST_POCL; \
	KILN_STORE_PROGRAM='$(abs_builddir)/kiln-store'; export KILN_STORE_PROGRAM; \
	$(TEST_PART) \
	MPIRUN='$(MPIRUN)'; export MPIRUN; \
	MPI_MODULE='$(MPI_MODULE)'; export MPI_MODULE; \
	MPI_CFLAGS='$(MPI_CFLAGS)'; export MPI_CFLAGS; \
	NM='$(NM)'; export NM;
LOG_COMPILER = $(SHELL) $(srcdir)/tests/run-test
SH_LOG_COMPILER = $(SHELL) $(srcdir)/tests/run-test
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)

if !CAN_CHECK
check-local:
	@echo 'make check needs Criterion: install libcriterion-dev and configure again' >&2; exit 1
endif

# Golden texts: written anew, and what differs from those of another build.
golden_tests = \
	tests/session/test_explain \
	tests/fuse/test_fusion \
	tests/codegen/test_kernels \
	tests/rewrite/test_passes
golden: $(golden_tests) $(check_DATA)
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)' $(SHELL) $(srcdir)/tests/golden-texts write . $(golden_tests)
golden-diff: $(golden_tests) $(check_DATA)
	@test -n '$(BASE)' || { echo 'make golden-diff BASE=<build folder of another checkout>'; exit 2; }
	$(AM_V_at)$(MAKE) -C '$(BASE)' $(golden_tests)
	$(AM_V_at)$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)' $(SHELL) $(srcdir)/tests/golden-texts diff '$(BASE)' $(golden_tests)

# Where the time of the tests went: what tests/run-test noted at the end of each log.
times:
	@ls $(TEST_LOGS) $(long_programs:=.log) $(long_script_tests:.sh=.log) 2>/dev/null | sort -u | xargs \
	    awk '/^# took [0-9]/ { print $$5, $$3, FILENAME; processors += $$5; wall += $$3 } \
	    END { print processors, wall, "all" }' | sort -rn | \
	    awk '{ printf "%8.1f s of processors %8.1f s  %s\n", $$1, $$2, $$3 }'
