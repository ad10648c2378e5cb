# SPDX-License-Identifier: Apache-2.0
"""Small float networks by hand, for what changes or measures whole models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx import TensorProto, helper, numpy_helper

from hexforge.ir import DType, ScaleOffset
from hexforge.model.reader import read
from hexforge.patterns.layers import layer
from hexforge.patterns.nodes import float_constant
from hexforge.quant.data.feeds import Feeds
from hexforge.quant.decide.encoding_plan import EncodingPlan, Fixed
from hexforge.quant.decide.quant_units import quant_units
from hexforge.quant.decide.ranges import encoding, weight_encoding
from hexforge.quant.improve.side_by_side import Walk, session

Array = np.ndarray[Any, Any]


class Network:
    """Nodes written one after another; each method returns the name of what it wrote."""

    def __init__(self, shape: tuple[int, ...], seed: int = 0, opset: int = 17) -> None:
        self.shape, self.opset = shape, opset
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        outs = [f"{name}_{op}" if i == 0 else f"{name}_{op}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), outs, name=name, **attributes))
        return outs[0]

    def normal(self, *shape: int, scale: float = 0.4) -> Array:
        return (self.random.standard_normal(shape) * scale).astype(np.float32)

    def conv(
        self, x: str, ins: int, outs: int, size: int = 3, group: int = 1, *, spread: bool = False, **more: Any
    ) -> str:
        """A convolution with bias; `spread`: its channels are of very different sizes."""
        weight = self.normal(outs, ins // group, size, size)
        if spread:
            weight *= np.exp(self.random.uniform(-3, 1, (outs, 1, 1, 1))).astype(np.float32)
        more.setdefault("pads", [size // 2] * 4)
        return self.node("Conv", x, self.constant(weight), self.constant(self.normal(outs)), group=group, **more)

    def model(self, *outputs: str) -> onnx_ir.Model:
        made = [helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = helper.make_graph(
            self.nodes, "network", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)], made,
            self.constants,
        )  # fmt: skip
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return read(onnx.shape_inference.infer_shapes(model)).ir

    def samples(self, count: int, seed: int = 1) -> list[Feeds]:
        random = np.random.default_rng(seed)
        return [{"x": random.standard_normal(self.shape).astype(np.float32)} for _ in range(count)]


def run(model: onnx_ir.Model, feeds: Feeds) -> list[Array]:
    """Outputs in float."""
    found: list[Array] = session(model).run(None, dict(feeds))
    return found


def plain(model: onnx_ir.Model, samples: list[Feeds], bits: int = 8) -> EncodingPlan:
    """Activations of 8 bits by their extremes, weights of `bits` by theirs."""
    seen: dict[str, list[Array]] = {
        str(v.name): [np.asarray(s[str(v.name)]) for s in samples] for v in model.graph.inputs
    }
    for step in Walk(model, None, samples):
        for outputs in step.outputs(True):
            for name, array in zip(step.runner.output_names, outputs, strict=True):
                seen.setdefault(name, []).append(array)
    plan = EncodingPlan()
    for unit in quant_units(model.graph):
        for name in {v.name for v in unit.writes} | {v.name for _, _, v in unit.reads if v.const_value is None}:  # type: ignore[assignment]
            low, high = (float(f([f(a) for a in seen[str(name)]])) for f in (np.min, np.max))
            plan.tensors[str(name)] = Fixed(DType.UINT8, encoding(low, high, DType.UINT8))
    dtype = {4: DType.INT4, 8: DType.INT8}[bits]
    for node in model.graph:
        found = layer(node)
        if found is not None:
            weight = float_constant(found.weight)
            assert weight is not None
            plan.tensors[str(found.weight.name)] = Fixed(dtype, weight_encoding(weight, dtype))
    return plan


def sqnr(model: onnx_ir.Model, plan: EncodingPlan, samples: list[Feeds]) -> float:
    """SQNR in dB of the outputs, simulated."""
    walk = Walk(model, plan, samples)
    for _ in walk:
        pass
    noise = signal = 0.0
    for value in model.graph.outputs:
        for exact, coarse in zip(walk.exact[str(value.name)], walk.coarse[str(value.name)], strict=True):
            noise += float(np.square(exact - coarse, dtype=np.float64).sum())
            signal += float(np.square(exact, dtype=np.float64).sum())
    return float(10 * np.log10(signal / noise))


def scale_of(plan: EncodingPlan, name: str) -> float:
    """The one scale of a tensor."""
    found = plan.tensors[name].encoding
    assert isinstance(found, ScaleOffset)
    return found.scale
