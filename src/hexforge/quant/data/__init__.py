# SPDX-License-Identifier: Apache-2.0
"""Samples, and what a model's tensors hold when it runs on them."""
