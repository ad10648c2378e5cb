# SPDX-License-Identifier: Apache-2.0
"""Placement: hexforge's word on what the QNN EP takes against the installed onnxruntime-qnn's."""
