# SPDX-License-Identifier: Apache-2.0
"""TensorFlow Lite (LiteRT) models: read by their published schema, and translated to ONNX."""
