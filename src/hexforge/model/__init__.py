# SPDX-License-Identifier: Apache-2.0
"""ONNX models as data: untrusted bytes to a checked model, and models out of models."""
