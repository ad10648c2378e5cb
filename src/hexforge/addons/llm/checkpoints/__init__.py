# SPDX-License-Identifier: Apache-2.0
"""The weights of language models as files have them: safetensors, GGUF, and ONNX decoders that others exported."""
