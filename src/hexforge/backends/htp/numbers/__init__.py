# SPDX-License-Identifier: Apache-2.0
"""The numbers that the HTP computes: fixed-point and float16 kernels over stored tensors."""
