#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kiln.nn, which tests/python/test_python.sh leaves out: many small kernels, compiled once each.
exec sh "${srcdir:-.}/tests/python/test_python.sh" test_nn test_nn_functional test_nn_modules test_nn_page test_nn_torch
