#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An exception at every line and instruction of the package for Python, as often as it runs;
# tests/python/test_python.sh meets each line once.
export KILN_INTERRUPTS=all
exec sh "${srcdir:-.}/tests/python/test_python.sh" test_interrupts
