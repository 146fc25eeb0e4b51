#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Loops and own kernels, which tests/python/test_python.sh leaves out.
exec sh "${srcdir:-.}/tests/python/test_python.sh" test_kernel test_loop test_loop_replayed
