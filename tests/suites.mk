# SPDX-License-Identifier: Apache-2.0
# ---- the rest of the suite; the suite in other builds and under other tools, each in its folder ----

# All builds want the same kernels of PoCL. Only the wanted test programs are built.
SUB_BUILD = srcdir='$(srcdir)' MAKE='$(MAKE)' KILN_TEST_STORE='$(abs_builddir)/test-store' \
	$(SHELL) $(srcdir)/tests/sub-build

# What `make check` leaves out, in the same build tree: each part, whatever another finds.
check-long:
	+failed=0; \
	KILN_TEST_PART= $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(long_tests)' check_PROGRAMS='$(long_programs)' || failed=1; \
	KILN_TEST_PART=long $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(partly_long_tests)' \
	    check_PROGRAMS='$(partly_long_tests)' || failed=1; \
	POCL_EXTRA_BUILD_FLAGS= KILN_TEST_POCL= $(MAKE) $(AM_MAKEFLAGS) check TESTS='$(model_tests)' \
	    check_PROGRAMS='$(model_tests)' || failed=1; \
	exit $$failed

# What tests/run-test has compiled in a hurry for `make check`, by a PoCL with less to read: some of it as
# users have it.
model_tests = tests/executor/test_executor tests/ops/test_ops tests/ops/test_ops_reduce \
	$(onnx_model_tests) $(lm_model_tests)
if ONNX
onnx_model_tests = tests/onnx/test_model
endif
if LM
lm_model_tests = tests/lm/test_session
endif

# Compiled at -O1, which takes two thirds of -O2's time, and as long to run: the checks are what is slow.
# Of what is enumerated without a device a part, in which other triples are than in `make check`; and
# without the tests that are long for what kernels compute, into which sanitizers do not see. In two
# parts, as in `make check` and `make check-long`: each finds the kernels that those have compiled.
check-sanitizers:
	+failed=0; export KILN_RANDOM_GRAPHS=1000 KILN_TRIPLES=121 KILN_FUZZ_COUNT=4000; \
	sanitized() { \
	    export KILN_TEST_PART="$$1"; \
	    $(SUB_BUILD) build-sanitizers --enable-sanitizers=address,undefined --enable-debug --enable-long-tests \
	        CFLAGS='-O1 -g' TEST_CFLAGS=-O0 -- check check_PROGRAMS='$(sanitized_programs)' TESTS="$$2" || failed=1; \
	}; \
	sanitized '' '$(filter-out $(numeric_tests),$(long_tests))'; \
	sanitized short '$(filter-out $(numeric_tests) $(text_tests) $(long_tests),$(TESTS))'; \
	sanitized long '$(filter-out $(numeric_tests),$(partly_long_tests))'; \
	exit $$failed
sanitized_programs = $(filter-out $(numeric_tests),$(check_PROGRAMS) $(long_programs))
# These read the source tree, or build other things than kiln.
text_tests = $(filter tests/check-%,$(TESTS)) tests/pages/test_abi.sh tests/pages/test_release.sh
numeric_tests = \
	tests/api/test_micro_batches_sums \
	tests/fuse/test_pairs \
	tests/grad/test_grad_range \
	tests/lower/test_matmul \
	tests/lower/test_matmul_epilogue \
	tests/lower/test_matmul_operands \
	tests/lower/test_matmul_quantized \
	tests/memory/test_rematerialise \
	tests/nn/test_normalization \
	tests/ops/test_accuracy \
	tests/ops/test_cumsum \
	tests/ops/test_ops_large \
	tests/ops/test_ops_reduce \
	tests/ops/test_ops_reduce_fused \
	tests/ops/test_types \
	tests/tools/test_tune_tool.sh

check-tsan:
	+$(SUB_BUILD) build-tsan --enable-sanitizers=thread CFLAGS='-O1 -g' TEST_CFLAGS=-O0 -- check \
	    TESTS='$(thread_tests) $(mpi_tests)' check_PROGRAMS='$(thread_tests) $(mpi_programs)'
if MPI
mpi_tests = tests/mpi/test_mpi.sh
mpi_programs = tests/mpi/ranks
endif

check-valgrind:
	+$(SUB_BUILD) build-plain --enable-plain-tests CFLAGS='-O1 -g' TEST_CFLAGS=-O0 -- check \
	    TESTS='$(VALGRIND_TESTS)' KILN_TEST_UNDER='$(VALGRIND_COMMAND)'
VALGRIND_TESTS = $(criterion_tests) $(long_criterion_tests)
VALGRIND_COMMAND = $(VALGRIND) --quiet --trace-children=no --error-exitcode=99 \
	--suppressions=$(abs_srcdir)/tests/valgrind.supp

# Oclgrind comes with a compiler of its own; a device's binary cache is of no use to it.
check-oclgrind:
	+KILN_CACHE=off $(SUB_BUILD) build-plain --enable-plain-tests CFLAGS='-O1 -g' TEST_CFLAGS=-O0 -- check \
	    TESTS='$(kernel_tests)' check_PROGRAMS='$(kernel_tests)' KILN_TEST_OCLGRIND='$(OCLGRIND)'

# The tests that use a device, on one OpenCL implementation, which is skipped where it is not.
ON_TESTS = $(device_tests)
CHECK_ON = +@run() { \
	    $(SHELL) $(srcdir)/tests/run-on $$1 $(MAKE) $(AM_MAKEFLAGS) check \
	        TESTS='$(ON_TESTS)' check_PROGRAMS='$(ON_TESTS)'; \
	}; run

check-pocl: all
	$(CHECK_ON) pocl

check-rusticl: all
	$(CHECK_ON) rusticl

# What CI has the time for: of the long programs the one that tries the most.
check-rusticl-quick: ON_TESTS = $(filter-out $(long_programs),$(device_tests)) tests/ops/test_ops_random
check-rusticl-quick: all
	$(CHECK_ON) rusticl

check-intel: all
	$(CHECK_ON) intel

# A simulator takes its time.
check-simulator: all
	$(CHECK_ON) oclgrind

# README's test command in a chroot of another release, which takes root, a network and half an hour.
OTHER_SYSTEMS = debian-12 debian-13 ubuntu-24.04
OTHER_SYSTEM_CHECKS = $(OTHER_SYSTEMS:%=check-%)
$(OTHER_SYSTEM_CHECKS): dist
	@$(SHELL) $(srcdir)/tests/run-system '$(@:check-%=%)' '$(distdir).tar.gz'

# Chosen tests on another processor: built by a cross compiler, run by qemu's emulator, ten to twenty
# times as slow. Their limits of seconds are those of an unloaded machine.
EMULATED_TESTS = \
	tests/codegen/test_kernels \
	tests/device/test_device \
	tests/fuse/test_fusion \
	tests/fuse/test_verify_fusion \
	tests/lower/test_attention_wgmma \
	tests/lower/test_catalogue \
	tests/memory/test_schedule \
	tests/ops/test_ops_known \
	tests/plan/test_plan \
	tests/plan/test_traffic \
	tests/plan/test_verify_plan \
	tests/programs/test_builtins \
	tests/record/test_batch \
	tests/reference/test_reference \
	tests/rewrite/test_passes \
	tests/runtime/test_events \
	tests/runtime/test_host_memory \
	tests/store/test_cache_catalog \
	tests/store/test_cache_entry \
	tests/tokens/test_subwords \
	tests/util/test_code \
	tests/util/test_options \
	tests/util/test_util
check-arm64: dist
	@$(SHELL) $(srcdir)/tests/run-system debian-13-arm64 '$(distdir).tar.gz' $(EMULATED_TESTS)

# On every implementation and every system that is there, a line for each.
check-portable:
	+@$(RUN_SUITES) check-pocl check-rusticl check-intel check-simulator $(OTHER_SYSTEM_CHECKS)

# The tests that PyPI's package `onnx` carries, on libkiln-onnx; ONNX_ARGUMENTS such as "-v -t abs".
check-onnx: all
	$(AM_V_at)$(MAKE) $(AM_MAKEFLAGS) $(onnx_programs) $(check_DATA)
	+@$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)' KILN_TEST_TIMEOUT=900 \
	    $(SHELL) $(srcdir)/tests/onnx/check-nodes onnx-nodes $(ONNX_ARGUMENTS)
if ONNX
onnx_programs = tests/onnx/run_nodes
endif
tests_onnx_run_nodes_SOURCES = \
	tests/onnx/cases.c \
	tests/onnx/cases.h \
	tests/onnx/known.c \
	tests/onnx/known.h \
	tests/onnx/run_nodes.c \
	tests/onnx/tensors.c \
	tests/onnx/tensors.h
tests_onnx_run_nodes_CPPFLAGS = $(AM_CPPFLAGS) $(PROTOBUF_C_CFLAGS) -I$(top_builddir)
tests_onnx_run_nodes_LDADD = libkiln-onnx-internal.la libkiln-internal.la
CLEANFILES += $(onnx_programs)

# A real language model, which PyPI has, beside PyPI's tokenizers and float64.
check-lm: all $(check_DATA)
	$(AM_V_at)$(MAKE) $(AM_MAKEFLAGS) $(tokens_programs)
	+@$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)' $(SHELL) $(srcdir)/tests/lm/check-lm lm-model

# libFuzzer targets, built in a tree with --enable-fuzzing.
fuzz_programs = \
	tests/fuzz/bundle \
	tests/fuzz/cache_entry \
	tests/fuzz/calls
if ONNX
fuzz_programs += tests/fuzz/onnx
endif
tests_fuzz_bundle_LDFLAGS = -fsanitize=fuzzer -Wl,--wrap=fsync
tests_fuzz_cache_entry_LDFLAGS = -fsanitize=fuzzer
tests_fuzz_calls_SOURCES = $(fuzz_calls_sources)
tests_fuzz_calls_LDFLAGS = -fsanitize=fuzzer $(fuzz_calls_ldflags)
tests_fuzz_onnx_SOURCES = $(fuzz_onnx_sources)
tests_fuzz_onnx_CPPFLAGS = $(fuzz_onnx_cppflags)
tests_fuzz_onnx_LDADD = $(fuzz_onnx_libs)
tests_fuzz_onnx_LDFLAGS = -fsanitize=fuzzer
if FUZZING
noinst_PROGRAMS += $(fuzz_programs)
endif
FUZZ_SECONDS = 60

check-fuzz:
	+$(SUB_BUILD) build-fuzz CC=clang --enable-fuzzing --enable-plain-tests -- fuzz

fuzz: all
	for program in $(fuzz_programs); do \
	    echo "$$program"; mkdir -p "$$program.corpus" "$$program.tmp"; \
	    TMPDIR='$(abs_builddir)'/$$program.tmp \
	        ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1 \
	        ./$$program -max_total_time=$(FUZZ_SECONDS) -max_len=1024 -len_control=0 -rss_limit_mb=0 \
	        "$$program.corpus" || exit 1; \
	    rm -rf "$$program.tmp"; \
	done

# ---- checks of the text ----

c_files = `cd $(abs_srcdir) && ls lib/*/*.[ch] lm/*.[ch] mpi/*.[ch] onnx/*.[ch] tools/*.[ch] tests/*/*.[ch] \
	tests/support/plain/*/*.h examples/*.c bench/*.[ch] 2>/dev/null`

# Other versions of clang-format lay out some lines differently.
check-format:
	@case `$(CLANG_FORMAT) --version` in \
	    *version\ 14.*) cd $(srcdir) && $(CLANG_FORMAT) --dry-run -Werror $(c_files);; \
	    *) echo 'clang-format 14 is wanted'; echo '# SKIP:  1';; \
	esac

# The analyzer follows paths through a function as it is called ("deep", five times as long) or by
# itself; releases are made with the former.
TIDY_MODE = shallow
check-tidy: $(BUILT_SOURCES)
	cd $(srcdir) && ls lib/*/*.c tools/*.c $(onnx_read) $(lm_read) $(mpi_read) | xargs -P "`nproc`" -I FILE $(CLANG_TIDY) --quiet \
	    --warnings-as-errors='*' FILE -- -std=gnu11 -Xclang -analyzer-config -Xclang mode=$(TIDY_MODE) \
	    $(TIDY_CPPFLAGS)
TIDY_CPPFLAGS = -DKILN_STORE_PROGRAM='"kiln-store"' -I$(abs_builddir)/include -Iinclude -Ilib $(KILN_DEFINES) -DKILN_DEBUG=1 -UNDEBUG \
	$(OPENCL_CFLAGS) $(XXHASH_CFLAGS) $(JANSSON_CFLAGS) -I$(abs_builddir) -I. $(PROTOBUF_C_CFLAGS) \
	$(MPI_CFLAGS:-I%=-isystem%) $(onnx_defines) $(lm_defines)
if ONNX
onnx_read = onnx/*.c
onnx_defines = -DHAVE_ONNX=1
onnx_folder = onnx
endif
if LM
lm_read = lm/*.c
lm_defines = -DHAVE_LM=1
lm_folder = lm
endif
if MPI
mpi_read = mpi/*.c
mpi_example = examples/train_mpi.c
endif

# Another compiler reads all of the library, and one for 32 bits, where there is one: size_t is
# narrower there.
check-compilers: $(BUILT_SOURCES)
	cd $(srcdir) && ls lib/*/*.c tools/*.c $(onnx_read) $(lm_read) $(mpi_read) \
	    $$(ls examples/*.c | grep -v train_mpi) $(mpi_example) | xargs -P "`nproc`" -n 50 $(CLANG) $(READ_FLAGS)
	cd $(srcdir) && if echo '#include <stdlib.h>' | $(CC) -m32 -x c -fsyntax-only - 2>/dev/null; then \
	    ls lib/*/*.c $(onnx_read) $(lm_read) | \
	        xargs -P "`nproc`" -n 50 $(CC) -m32 -Wtype-limits $(READ_FLAGS); \
	else \
	    echo '$(CC) has nothing for 32 bits (gcc-multilib)'; \
	fi
READ_FLAGS = -fsyntax-only -Wno-psabi -Wall -Wextra -Wshadow -Werror -std=gnu11 -DDIGITS_DATA='""' $(TIDY_CPPFLAGS)

check-cppcheck: $(BUILT_SOURCES)
	$(AM_V_at)mkdir -p cppcheck-build
	cd $(srcdir) && $(CPPCHECK) --quiet -j "`nproc`" --cppcheck-build-dir='$(abs_builddir)/cppcheck-build' --std=c11 --enable=warning,performance,portability \
	    --inline-suppr --suppressions-list=tests/cppcheck.supp --error-exitcode=1 \
	    -I$(abs_builddir)/include -Iinclude -Ilib -I$(abs_builddir) -I. -DHAVE_CLBLAST=1 lib mpi tools $(onnx_folder) $(lm_folder)

# Says what is public and has no description.
check-docs: doc/Doxyfile $(BUILT_SOURCES)
	$(DOXYGEN) doc/Doxyfile

check-shell:
	cd $(srcdir) && $(SHELLCHECK) bootstrap .ci/run .ci/release bench/get-models tests/run-on tests/run-test \
	    tests/check-abi tests/run-system \
	    tests/onnx/check-nodes tests/onnx/environment \
	    tests/run-suites tests/sub-build tests/golden-texts tests/check-deb tests/check-faults tests/check-python \
	    tests/check-array-api tests/check-torch tests/check-wheel python/make-wheel \
	    tests/check-installed tests/shell-tests tools/completions/kiln tests/training-table tests/*.sh tests/*/*.sh

# What `./bootstrap check-all` and CI run after `make check`, one after another; those that a + joins have
# long stretches in which one processor does all.
CHECK_SUITES = \
	check-format+check-shell \
	check-cppcheck \
	check-compilers \
	check-docs+check-abi \
	check-long \
	check-sanitizers \
	check-tsan \
	check-oclgrind \
	check-rusticl-quick \
	check-tidy+check-onnx \
	check-python+check-dist \
	check-wheel+check-deb

# The distribution with a few tests: all of them have run by then.
check-dist:
	+KILN_TEST_STORE='$(abs_builddir)/test-store' $(MAKE) $(AM_MAKEFLAGS) distcheck \
	    TESTS='$(dist_tests) $(examples)' check_PROGRAMS='$(dist_tests)'
dist_tests = tests/util/test_util tests/rewrite/test_passes tests/fuse/test_fusion

RUN_SUITES = srcdir='$(srcdir)' MAKE='$(MAKE)' $(SHELL) $(srcdir)/tests/run-suites

# The binary interface beside that of the last release, which tests/abi describes; `make abi` describes
# this one in its place. abi-versions: whether new functions say that the last release has them.
ABI_FILE = $(srcdir)/tests/abi/$$name.$(host_cpu).abi
EACH_SHARED = for name in libkiln libkiln-lm libkiln-mpi libkiln-onnx; do [ ! -f .libs/$$name.so ] ||
check-abi: all
	@$(EACH_SHARED) $(SHELL) $(srcdir)/tests/check-abi compare "$(ABI_FILE)" .libs/$$name.so \
	    '$(srcdir)/include/kiln' || exit 1; done
abi-versions: all
	@$(EACH_SHARED) $(SHELL) $(srcdir)/tests/check-abi versions "$(ABI_FILE)" .libs/$$name.so || exit 1; done
abi: all
	@$(EACH_SHARED) $(SHELL) $(srcdir)/tests/check-abi describe .libs/$$name.so \
	    '$(srcdir)/include/kiln' "$(ABI_FILE)" || exit 1; done

# What is to be published of a version, in release-VERSION: see there, and doc/HACKING.md.
release: all
	+@MAKE='$(MAKE)' srcdir='$(srcdir)' $(SHELL) $(srcdir)/.ci/release '$(PACKAGE_VERSION)'

# Debian's packages, built from the distribution.
check-deb: dist
	@$(SHELL) $(srcdir)/tests/check-deb '$(distdir).tar.gz' >deb.log 2>&1; \
	    cat deb.log; ! grep -q '^not ok' deb.log
CLEANFILES += deb.log

# What `./bootstrap check` runs.
check-counted:
	+@$(RUN_SUITES) check

check-all:
	+@$(RUN_SUITES) $(CHECK_SUITES)

# ---- long campaigns ----

# Random batches from RANDOM_SEED on, of RANDOM_COUNT structures of 3 operations, a third as many of 8
# and one of 24 of 40, in RANDOM_JOBS processes side by side; then RANDOM_GRAPHS graphs and one
# of RANDOM_TRIPLES triples of operations without kernels. Each process adds a line to its random.progress.* every few
# seconds, which is shown.
RANDOM_SEED = 1
RANDOM_COUNT = 8000
RANDOM_JOBS = 2
RANDOM_GRAPHS = 100000
RANDOM_TRIPLES = 1
check-random-long: all
	rm -f random.progress.* random.log.*
	+$(MAKE) $(AM_MAKEFLAGS) check TESTS= check_PROGRAMS='tests/ops/test_ops_random tests/fuse/test_groups'
	+$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)'; export srcdir; \
	share=`expr \( $(RANDOM_COUNT) + $(RANDOM_JOBS) - 1 \) / $(RANDOM_JOBS)`; jobs=; job=0; \
	while [ $$job -lt $(RANDOM_JOBS) ]; do \
	    : >random.progress.$$job; \
	    KILN_TEST_TIMEOUT=0 KILN_RANDOM_PROGRESS='$(abs_builddir)'/random.progress.$$job \
	        KILN_RANDOM_SEED=`expr $(RANDOM_SEED) + $$job \* $$share` KILN_RANDOM_COUNT=$$share \
	        $(LOG_COMPILER) tests/ops/test_ops_random >random.log.$$job & \
	    jobs="$$jobs $$!"; job=`expr $$job + 1`; \
	done; \
	tail -q -f random.progress.* & tail=$$!; wait $$jobs; kill $$tail; \
	KILN_TEST_TIMEOUT=0 KILN_RANDOM_SEED=$(RANDOM_SEED) KILN_RANDOM_GRAPHS=$(RANDOM_GRAPHS) \
	    KILN_TRIPLES=$(RANDOM_TRIPLES) $(LOG_COMPILER) tests/fuse/test_groups >random.log.groups; \
	$(AWK) '{ made[FILENAME $$1] = substr($$7, 2) } \
	    END { for (i in made) sum += made[i]; print sum " batches" }' random.progress.*; \
	! grep -E '^not ok|^Bail out|took too long' random.log.*
CLEANFILES += random.progress.* random.log.*

# Whether the tests see faults: each of tests/faults, or FAULTS='01 07', in a copy of the tree.
check-faults:
	+srcdir='$(srcdir)' MAKE='$(MAKE)' $(SHELL) $(srcdir)/tests/check-faults $(FAULTS)

# doc/accuracy.md anew; ACCURACY_STEP=1 takes every float there is, and a day.
ACCURACY_DEVICES = pocl rusticl
ACCURACY_STEP = 256
accuracy: all
	$(MAKE) $(AM_MAKEFLAGS) tests/ops/test_accuracy
	rm -f accuracy.md
	for device in $(ACCURACY_DEVICES); do \
	    RUSTICL_ENABLE=llvmpipe KILN_DEVICE=$$device KILN_ACCURACY=accuracy.md \
	        KILN_ACCURACY_STEP=$(ACCURACY_STEP) ./tests/ops/test_accuracy \
	        --filter accuracy/within_the_bounds || echo "$$device: not all within the bounds"; \
	done
	mv accuracy.md $(srcdir)/doc/accuracy.md
	$(MAKE) $(AM_MAKEFLAGS) accuracy-training

# Its tables of training in narrow types: a device's table takes the place of its old one.
TRAINING_DEVICES = pocl
accuracy-training: all
	for device in $(TRAINING_DEVICES); do \
	    $(SHELL) $(srcdir)/tests/training-table $$device $(srcdir)/doc/accuracy.md || exit 1; \
	done

# Whether an executor, or a batcher of language models (SOAK=lm_soak), can be left alone for so long; it
# uses all of the machine.
SECONDS = 3600
SOAK = executor_soak
check-soak: all
	$(MAKE) $(AM_MAKEFLAGS) tests/campaigns/$(SOAK) $(check_DATA)
	+$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)'; export srcdir; KILN_TEST_TIMEOUT=0 $(LOG_COMPILER) \
	    tests/campaigns/$(SOAK) $(SECONDS) >soak.log; cat soak.log; grep -q '^ok' soak.log

# Whether texts of language models have the same bits in company as alone, in so many tokens.
TOKENS = 1000000
check-lm-long: all
	$(MAKE) $(AM_MAKEFLAGS) tests/campaigns/lm_same_bits $(check_DATA)
	+$(AM_TESTS_ENVIRONMENT) srcdir='$(srcdir)'; export srcdir; KILN_TEST_TIMEOUT=0 $(LOG_COMPILER) \
	    tests/campaigns/lm_same_bits $(TOKENS) >same_bits.log; cat same_bits.log; grep -q '^ok' same_bits.log
CLEANFILES += soak.log same_bits.log

campaigns-long: all
	$(MAKE) $(AM_MAKEFLAGS) $(campaigns) $(long_campaigns) $(check_DATA)
	for program in $(campaigns) $(long_campaigns); do \
	    KILN_TEST_TIMEOUT=0 srcdir='$(srcdir)' \
	    KILN_TEST_LAYER='$(abs_builddir)/tests/layer/kiln-layer.so' $(SHELL) $(srcdir)/tests/run-test ./$$program long | \
	        tee $$program.long.log; \
	    grep -q '^ok' $$program.long.log || exit 1; \
	done

# ---- what users get: the installed library, found through pkg-config alone ----

installcheck-local:
	CC='$(CC)' NM='$(NM)' PKG_CONFIG='$(PKG_CONFIG)' DESTDIR='$(DESTDIR)' srcdir='$(srcdir)' \
	    $(SHELL) $(srcdir)/tests/check-installed '$(DESTDIR)$(libdir)' \
	    '$(DESTDIR)$(includedir)' '$(DESTDIR)$(bindir)' \
	    '$(DESTDIR)$(bashcompletiondir)' '$(DESTDIR)$(zshcompletiondir)'

# Whatever is configured here is also what the distribution is checked with.
AM_DISTCHECK_CONFIGURE_FLAGS = $(DISTCHECK_FLAGS)

clean-local:
	rm -rf onnx-models onnx-nodes
	rm -rf build-faults build-fuzz build-plain build-sanitizers build-tsan cppcheck-build implementations release-* suite-logs systems \
	    test-pocl test-store bench-json bench-peers bench.svg doc/html
