# SPDX-License-Identifier: Apache-2.0
"""PyTorch: modules and exported programs of torch as ONNX models, under the names of their modules."""

from hexforge.addons.pytorch.export import onnx_model as onnx_model

__all__ = ["onnx_model"]
