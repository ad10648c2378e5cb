# SPDX-License-Identifier: Apache-2.0
"""Kernels of ops that multiply and add up."""
