# SPDX-License-Identifier: Apache-2.0
"""What runs a decoder over the caches of a session: the graphs of a bundle, or an ONNX decoder as others wrote it."""
