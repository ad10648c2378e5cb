# SPDX-License-Identifier: Apache-2.0
"""The ONNX frontend: a model becomes units, units become QNN graphs; pipeline.py has the order."""
