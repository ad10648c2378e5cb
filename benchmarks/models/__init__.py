# SPDX-License-Identifier: Apache-2.0
"""The models that benchmarks run: published architectures with random weights, and their quantized files."""
