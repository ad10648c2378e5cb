# SPDX-License-Identifier: Apache-2.0
"""Pools out of which nothing comes, which end a process inside onnxruntime."""

from __future__ import annotations

import onnx_ir

from hexforge.errors import ModelError
from hexforge.model.simplifying.shapes import CEILED_POOLS
from hexforge.patterns.nodes import ints


def require_full_pools(model: onnx_ir.Model, where: str) -> None:
    """ModelError where a window is larger than what it slides over, so that nothing comes out of its pool.

    onnxruntime's kernels divide by the size of what comes out, which ends the process.
    """
    for graph in model.graphs():
        for node in graph:
            if node.op_type not in CEILED_POOLS or not node.inputs or node.inputs[0] is None:
                continue
            source, out = node.inputs[0].shape, node.outputs[0].shape
            if source is None or out is None or 0 in source[2:]:
                continue
            if all(not isinstance(size, int) or size > 0 for size in out[2:]):
                continue
            window = list(ints(node, "kernel_shape", []))
            raise ModelError(
                f"{where}: node {node.name!r} ({node.op_type}): the window {window} is larger "
                f"than its input {list(source[2:])} with pads, so nothing comes out; make it smaller"
            )
