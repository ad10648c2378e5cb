# SPDX-License-Identifier: Apache-2.0
"""A small transformer block in QDQ form, for the tests of adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from hexforge.ir import Array

WIDTH, TOKENS, WIDE = 32, 8, 64
PROJECTIONS = {"q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "o": (WIDTH, WIDTH),
               "up": (WIDTH, WIDE), "down": (WIDE, WIDTH)}  # fmt: skip


def weights(seed: int = 0) -> dict[str, Array]:
    """The projections' weights as integers, [in, out]."""
    rng = np.random.default_rng(seed)
    return {name: rng.integers(-90, 91, shape).astype(np.int8) for name, shape in PROJECTIONS.items()}


def scales(name: str) -> Array:
    """A projection's scale for each output."""
    return np.linspace(0.002, 0.004, PROJECTIONS[name][1]).astype(np.float32)


def transformer(changed: Mapping[str, Array] | None = None, bits: int = 8, tokens: int = TOKENS) -> bytes:
    """Attention and a feed-forward layer; `changed` replaces weights by name."""
    made = _Block(bits)
    chosen = {**weights(), **(changed or {})}
    x = made.quantized("x", 4.0)
    q, k, v = (made.projected(x, name, chosen[name], 6.0) for name in ("q", "k", "v"))
    made.nodes.append(helper.make_node("Transpose", [k], ["kt"], perm=[0, 2, 1], name="transpose"))
    scores = made.op("MatMul", [q, made.quantized("kt", 6.0)], "scores", 200.0)
    attention = made.op("Softmax", [scores], "attention", 1.0, axis=-1)
    mixed = made.op("MatMul", [attention, v], "mixed", 6.0)
    added = made.op("Add", [x, made.projected(mixed, "o", chosen["o"], 6.0)], "added", 8.0)
    up = made.op("Relu", [made.projected(added, "up", chosen["up"], 16.0)], "relu", 16.0)
    y = made.op("Add", [added, made.projected(up, "down", chosen["down"], 24.0)], "y", 32.0)
    made.nodes[-1].output[0] = "out"
    assert y == "y_dq"
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        made.nodes,
        "block",
        [info("x", TensorProto.FLOAT, [1, tokens, WIDTH])],
        [info("out", TensorProto.FLOAT, [1, tokens, WIDTH])],
        [numpy_helper.from_array(a, n) for n, a in made.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    return model.SerializeToString()


class _Block:
    def __init__(self, bits: int) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, Array] = {}
        self._type, self._steps = (np.uint8, 256) if bits == 8 else (np.uint16, 65536)

    def quantized(self, name: str, reach: float) -> str:
        """Q and DQ after a tensor that lies within +-reach."""
        self.constants[f"{name}_scale"] = np.array(2 * reach / self._steps, np.float32)
        self.constants[f"{name}_zero"] = np.array(self._steps // 2, self._type)
        for op, source, out in (("QuantizeLinear", name, f"{name}_q"), ("DequantizeLinear", f"{name}_q", f"{name}_dq")):
            self.nodes.append(helper.make_node(op, [source, f"{name}_scale", f"{name}_zero"], [out], name=out))
        return f"{name}_dq"

    def op(self, kind: str, inputs: list[str], out: str, reach: float, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [out], name=f"{out}_{kind}", **attributes))
        return self.quantized(out, reach)

    def projected(self, x: str, name: str, weight: Array, reach: float) -> str:
        stored = f"block.{name}.weight_quantized"
        self.constants |= {
            stored: weight,
            f"{stored}_scale": scales(name),
            f"{stored}_zero": np.zeros(weight.shape[1], np.int8),
        }
        self.nodes.append(
            helper.make_node("DequantizeLinear", [stored, f"{stored}_scale", f"{stored}_zero"], [f"{name}_w"], axis=1,
                             name=f"{name}_w_dq")
        )  # fmt: skip
        return self.op("MatMul", [x, f"{name}_w"], name, reach)


def inputs(seed: int = 1, tokens: int = TOKENS) -> dict[str, Array]:
    """What the block is fed."""
    return {"x": np.random.default_rng(seed).normal(0, 1, (1, tokens, WIDTH)).astype(np.float32)}


def factors(*names: str, rank: int = 4, seed: int = 2) -> dict[str, Array]:
    """Low-rank factors as PEFT names them."""
    rng = np.random.default_rng(seed)
    found = {}
    for name in names:
        deep, wide = PROJECTIONS[name]
        stem = f"base_model.model.block.{name}"
        found[f"{stem}.lora_A.weight"] = rng.normal(0, 0.1, (rank, deep)).astype(np.float32)
        found[f"{stem}.lora_B.weight"] = rng.normal(0, 0.1, (wide, rank)).astype(np.float32)
    return found


def adapted_weights(name: str, given: Mapping[str, Array], alpha: float) -> Array:
    """The integers of a projection after its factors were added: by the definition, for comparison."""
    first, second = (given[f"base_model.model.block.{name}.lora_{k}.weight"].astype(np.float64) for k in "AB")
    real = weights()[name] * scales(name).astype(np.float64) + (second @ first).T * alpha / len(first)
    rounded: Array = np.clip(np.rint(real / scales(name).astype(np.float64)), -128, 127).astype(np.int8)
    return rounded
