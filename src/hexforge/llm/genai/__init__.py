# SPDX-License-Identifier: Apache-2.0
"""ONNX decoders of others: read as onnxruntime-genai's builder and optimum write them; what genai reads of a bundle."""
