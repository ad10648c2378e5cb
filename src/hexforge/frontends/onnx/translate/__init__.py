# SPDX-License-Identifier: Apache-2.0
"""Translators: units of an ONNX model become QNN ops."""
