# SPDX-License-Identifier: Apache-2.0
"""Kernels in OpenCL C, written for a node's own shapes, by family of ops."""
