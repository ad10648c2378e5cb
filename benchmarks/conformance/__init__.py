# SPDX-License-Identifier: Apache-2.0
"""hexforge as an ONNX backend over the node cases that onnx generates: `python -m benchmarks.conformance`."""
