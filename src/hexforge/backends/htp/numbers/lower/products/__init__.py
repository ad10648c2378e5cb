# SPDX-License-Identifier: Apache-2.0
"""Convolutions and matrix products: of constant weights, of wide ones, of two tensors that are computed."""
