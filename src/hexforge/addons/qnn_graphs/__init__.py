# SPDX-License-Identifier: Apache-2.0
"""Graphs handed over as QNN ops (tensors, ops, parameters) become `ir.Graph`."""
