# SPDX-License-Identifier: Apache-2.0
"""QNN's C API: the Python half, a compiler process that `libQnnHtp.so` and its siblings start at first need."""
