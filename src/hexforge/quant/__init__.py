# SPDX-License-Identifier: Apache-2.0
"""Quantization: from what a model's tensors hold to the encodings that lose least, and the evidence."""
