# SPDX-License-Identifier: Apache-2.0
# ---- the package for Python: pip install ./python ----

python_modules = \
	python/kiln/__init__.py \
	python/kiln/__main__.py \
	python/kiln/_arithmetic.py \
	python/kiln/_batch.py \
	python/kiln/_buffer.py \
	python/kiln/_context.py \
	python/kiln/_creation.py \
	python/kiln/_dlpack.py \
	python/kiln/_drivers.py \
	python/kiln/_executor.py \
	python/kiln/_files.py \
	python/kiln/_function.py \
	python/kiln/_functions.py \
	python/kiln/_gather.py \
	python/kiln/_gradient.py \
	python/kiln/_hooks.py \
	python/kiln/_indexing.py \
	python/kiln/_kernel.py \
	python/kiln/_library.py \
	python/kiln/_lm.py \
	python/kiln/_loop.py \
	python/kiln/_manipulation.py \
	python/kiln/_mpi.py \
	python/kiln/_namespace.py \
	python/kiln/_nn_activations.py \
	python/kiln/_nn_attention.py \
	python/kiln/_nn_init.py \
	python/kiln/_nn_layers.py \
	python/kiln/_nn_losses.py \
	python/kiln/_nn_module.py \
	python/kiln/_nn_norms.py \
	python/kiln/_nn_recurrent.py \
	python/kiln/_onnx.py \
	python/kiln/_operators.py \
	python/kiln/_parallel.py \
	python/kiln/_record.py \
	python/kiln/_search.py \
	python/kiln/_statistics.py \
	python/kiln/_tape.py \
	python/kiln/_tensor.py \
	python/kiln/_torch_graph.py \
	python/kiln/_torch_indices.py \
	python/kiln/_torch_layers.py \
	python/kiln/_torch_orders.py \
	python/kiln/_torch_operators.py \
	python/kiln/_torch_steps.py \
	python/kiln/_tree.py \
	python/kiln/_types.py \
	python/kiln/_ufuncs.py \
	python/kiln/linalg.py \
	python/kiln/nn/__init__.py \
	python/kiln/nn/functional.py \
	python/kiln/nn/utils/__init__.py \
	python/kiln/nn/utils/rnn.py \
	python/kiln/opencl.py \
	python/kiln/optim.py \
	python/kiln/py.typed \
	python/kiln/random.py \
	python/kiln/torch.py
python_tests = \
	python/tests/check_torch.py \
	python/tests/check_torch_models.py \
	python/tests/nn_reference.py \
	python/tests/tap.py \
	python/tests/test_array_api.py \
	python/tests/test_dlpack.py \
	python/tests/test_everyday.py \
	python/tests/test_executor.py \
	python/tests/test_exit.py \
	python/tests/test_hooks.py \
	python/tests/test_integers.py \
	python/tests/test_interrupts.py \
	python/tests/test_kernel.py \
	python/tests/test_limits.py \
	python/tests/test_lm.py \
	python/tests/test_loop.py \
	python/tests/test_loop_replayed.py \
	python/tests/test_nn.py \
	python/tests/test_nn_functional.py \
	python/tests/test_nn_modules.py \
	python/tests/test_nn_page.py \
	python/tests/test_nn_torch.py \
	python/tests/test_onnx.py \
	python/tests/test_pages.py \
	python/tests/test_opencl.py \
	python/tests/test_parallel.py \
	python/tests/test_running.py \
	python/tests/test_schedules.py \
	python/tests/test_table.py \
	python/tests/test_tensors.py \
	python/tests/test_torch.py \
	python/tests/test_twice.py \
	python/tests/test_typing.py
EXTRA_DIST += \
	$(python_modules) \
	$(python_tests) \
	python/backend.py \
	python/tests/array-api-skips.txt \
	python/examples/digits.py \
	python/generate.py \
	python/make-wheel \
	python/pyproject.toml \
	tests/check-array-api \
	tests/check-python \
	tests/check-torch \
	tests/check-wheel

# As users have it: installed by pip into an environment of its own.
check-python: all
	@KILN_TEST_STORE='$(abs_builddir)/test-store' KILN_TEST_POCL='$(abs_builddir)/test-pocl' \
	    KILN_STORE_PROGRAM='$(abs_builddir)/kiln-store' srcdir='$(srcdir)' $(SHELL) $(srcdir)/tests/run-test $(srcdir)/tests/check-python >python.log; \
	    cat python.log; ! grep -q '^not ok' python.log
# A wheel that carries the library, in wheels/ of that folder.
wheel: all
	+@srcdir='$(srcdir)' MAKE='$(MAKE)' $(SHELL) $(srcdir)/python/make-wheel build-wheel
check-wheel: all
	+@srcdir='$(srcdir)' MAKE='$(MAKE)' $(SHELL) $(srcdir)/tests/check-wheel build-wheel >wheel.log 2>&1; \
	    cat wheel.log; ! grep -q '^not ok' wheel.log
# PyTorch's own samples of its operators, where PyTorch is there; half an hour of two cores.
check-torch: all
	@KILN_TEST_STORE='$(abs_builddir)/test-store' KILN_TEST_POCL='$(abs_builddir)/test-pocl' \
	    KILN_STORE_PROGRAM='$(abs_builddir)/kiln-store' srcdir='$(srcdir)' $(SHELL) $(srcdir)/tests/run-test $(srcdir)/tests/check-torch
# The suite of the array API standard, where it and its packages can be had.
check-array-api: all
	@KILN_TEST_STORE='$(abs_builddir)/test-store' KILN_TEST_POCL='$(abs_builddir)/test-pocl' \
	    KILN_STORE_PROGRAM='$(abs_builddir)/kiln-store' KILN_TEST_TIMEOUT=7200 srcdir='$(srcdir)' \
	    $(SHELL) $(srcdir)/tests/run-test $(srcdir)/tests/check-array-api
CLEANFILES += python.log wheel.log
.PHONY: check-array-api check-python check-torch check-wheel wheel
