# SPDX-License-Identifier: Apache-2.0
"""How each operator of TensorFlow Lite is written in ONNX, by family."""
