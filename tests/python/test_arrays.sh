#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Tensors, the array standard and integers, which tests/python/test_python.sh leaves out.
exec sh "${srcdir:-.}/tests/python/test_python.sh" test_array_api test_integers test_tensors
