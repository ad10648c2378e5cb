# SPDX-License-Identifier: Apache-2.0
"""Layers and networks that nobody chose, beside onnxruntime: what is slow for its kind or shape, not for its model."""
