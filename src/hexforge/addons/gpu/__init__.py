# SPDX-License-Identifier: Apache-2.0
"""The gpu backend: float graphs by OpenCL kernels."""
