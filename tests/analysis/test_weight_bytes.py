# SPDX-License-Identifier: Apache-2.0
"""Bytes of weights in estimates: those of the model's own codes, or of the precision that is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from tests.models.attention import Nodes

K, N = 1024, 512  # larger than what is folded to floats when a model is read
BLOCK = 32


def one_product(nodes: list[Any], constants: list[Any]) -> bytes:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, K])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, N])],
        constants,
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString())


def matmul_nbits(bits: int) -> bytes:
    """As language models have them: codes and a scale for each block."""
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (N, K // BLOCK, BLOCK * bits // 8)).astype(np.uint8)
    scales = random.random(N * K // BLOCK).astype(np.float32)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], domain="com.microsoft", K=K, N=N, bits=bits, block_size=BLOCK
    )
    return one_product([node], [numpy_helper.from_array(codes, "w"), numpy_helper.from_array(scales, "s")])


def dequantized(blocks: bool, bits: int = 0) -> bytes:
    """int4 weights through DequantizeLinear, alone or beside activations of so many bits."""
    made = Nodes()
    made.constants.append(helper.make_tensor("w", TensorProto.INT4, (K, N), [1] * (K * N)))
    scale = made.constant("s", np.full((K // BLOCK, N) if blocks else (N,), 0.1), np.float32)
    how: dict[str, Any] = {"axis": 0, "block_size": BLOCK} if blocks else {"axis": 1}
    weight = made.add("DequantizeLinear", ["w", scale], **how)
    if bits:
        by = made.scale("a", 0.1, 1 << bits - 1, bits)
        made.quantized(made.add("MatMul", [made.quantized("x", by), weight]), by)
        made.nodes[-1].output[0] = "y"
    else:
        made.add("MatMul", ["x", weight], "y")
    return one_product(made.nodes, made.constants)


def weight_bytes(model: bytes, precision: str) -> int:
    timed = hexforge.estimate(model, hexforge.Deployment("SM8650", precision=precision), cpu_part=False)
    return sum(row.weight_bytes for row in timed.rows)


SCALES = 2 * N * K // BLOCK
"""A half for each block."""


@pytest.mark.parametrize(
    ("model", "own"),
    [
        (matmul_nbits(4), K * N // 2 + SCALES),
        (matmul_nbits(8), K * N + SCALES),
        (dequantized(False), K * N // 2),
        (dequantized(True), K * N // 2 + SCALES),
        (dequantized(False, 16), K * N // 2),
        (dequantized(True, 16), K * N // 2 + SCALES),
        (dequantized(False, 8), K * N // 2),
    ],
    ids=["MatMulNBits 4", "MatMulNBits 8", "int4", "int4 blocks", "int4 a16", "int4 blocks a16", "int4 a8"],
)
def test_codes_count_as_many_bytes_as_they_have_and_precisions_act(model: bytes, own: int) -> None:
    assert weight_bytes(model, "as-is") == own
    assert weight_bytes(model, "w4a16") == K * N // 2
    assert weight_bytes(model, "w8a8") == weight_bytes(model, "w8a16") == K * N
    assert weight_bytes(model, "float") == 2 * K * N
