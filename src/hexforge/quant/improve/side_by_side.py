# SPDX-License-Identifier: Apache-2.0
"""Side by side: a model run node by node on a few samples, in float and as a plan quantizes it, side by side.

At each node the caller sees what the node reads in both worlds and may change the plan before it runs: corrections
of one layer include the errors of all before it. A value is dropped after its last reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir
import onnxruntime
from onnx_ir import serde

from hexforge.ir import Array, ScaleOffset, TensorType
from hexforge.ir.fixed_point import dequantize, quantize, quantized_range
from hexforge.patterns.nodes import reads
from hexforge.quant.data.feeds import Feeds
from hexforge.quant.decide.encoding_plan import EncodingPlan, Fixed

MEMORY_BYTES = 768 << 20
"""What the values of all samples together may take at the widest point of the model."""

_Values = list[Array]


def rounded(array: Array, fixed: Fixed) -> Array:
    """An array after it was quantized and dequantized."""
    if array.dtype != np.float32:
        return array
    encoding = fixed.encoding
    if not isinstance(encoding, ScaleOffset):
        type = TensorType(fixed.dtype, array.shape, encoding)
        return dequantize(quantize(array, type), type, np.float32)
    low, high = quantized_range(fixed.dtype, encoding)
    scale = np.float32(encoding.scale)
    steps = np.asarray(array / scale)
    np.rint(steps, out=steps)
    np.clip(steps, np.float32(low + encoding.offset), np.float32(high + encoding.offset), out=steps)
    steps *= scale
    return steps


def constant_in_plan(plan: EncodingPlan, value: onnx_ir.Value) -> Array:
    """The real numbers that a constant has under a plan, rounded where the plan quantizes it."""
    assert value.const_value is not None
    assert value.name is not None
    array = plan.constants.get(value.name)
    array = value.const_value.numpy() if array is None else array
    fixed = plan.tensors.get(value.name)
    if fixed is None or array.dtype != np.float32:
        return array
    integers = plan.integers.get(value.name)
    if integers is not None:
        return dequantize(integers, TensorType(fixed.dtype, integers.shape, fixed.encoding), np.float32)
    return rounded(array, fixed)


def session(model: onnx_ir.Model) -> onnxruntime.InferenceSession:
    """onnxruntime's session of a model on its CPU provider, quiet, and with no threads that spin."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    proto = serde.serialize_model(model)
    return onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


class NodeRunner:
    """One node as a session. Float constants are fed, so that one session runs it exact and quantized."""

    def __init__(self, node: onnx_ir.Node, model: onnx_ir.Model) -> None:
        self.node = node
        self.read = reads(node)
        constants = [v for v in self.read if v.const_value is not None]
        inner_constants = [v for v in constants if v.dtype != onnx_ir.DataType.FLOAT]
        self.fed = [v for v in self.read if v not in inner_constants]
        written = [v for v in node.outputs if v.name]
        copied = onnx_ir.Graph((), (), nodes=(), opset_imports=model.graph.opset_imports, name="node")
        values: dict[onnx_ir.Value, onnx_ir.Value] = {}
        for value in (*self.read, *written):
            values[value] = onnx_ir.Value(
                name=value.name,
                shape=None if value in written else value.shape,
                type=value.type,
                const_value=value.const_value if value in inner_constants else None,
            )
        copied.inputs.extend(values[v] for v in self.fed)
        for value in inner_constants:
            copied.register_initializer(values[value])
        outputs = [values.get(v) or onnx_ir.Value(name="") for v in node.outputs]
        copied.append(
            onnx_ir.Node(
                node.domain, node.op_type, [None if v is None else values[v] for v in node.inputs],
                list(node.attributes.values()), outputs=outputs, name=node.name,
            )
        )  # fmt: skip
        copied.outputs.extend(values[v] for v in written)
        self.output_names = [str(v.name) for v in written]
        whole = onnx_ir.Model(copied, ir_version=max(model.ir_version, 8))
        self._session = session(whole)

    def __call__(self, values: Sequence[Array]) -> list[Array]:
        """The outputs in order, for the values of `fed` in order."""
        feeds = {str(v.name): a for v, a in zip(self.fed, values, strict=True)}
        outputs: list[Array] = self._session.run(self.output_names, feeds)
        return outputs


@dataclass(slots=True)
class NodeStep:
    """A node about to run. What it reads and makes is asked for by world: exact (float), or as the plan quantizes."""

    node: onnx_ir.Node
    runner: NodeRunner
    plan: EncodingPlan
    exact: dict[str, _Values]
    coarse: dict[str, _Values]
    samples: int
    _results: dict[bool, list[list[Array]]] = field(default_factory=dict)

    def read(self, value: onnx_ir.Value, exact: bool, sample: int) -> Array:
        """What the node reads under a value's name, converted as the plan says."""
        assert value.name is not None
        if value.const_value is not None:
            return value.const_value.numpy() if exact else constant_in_plan(self.plan, value)
        array = (self.exact if exact else self.coarse)[value.name][sample]
        convert = None if exact else self.plan.converts.get((value.name, self.node.name or ""))
        return array if convert is None else rounded(array, convert)

    def outputs(self, exact: bool) -> list[list[Array]]:
        """Outputs before their own quantization: by sample, then by output. Kept until `forget`."""
        if exact not in self._results:
            self._results[exact] = [
                self.runner([self.read(v, exact, i) for v in self.runner.fed]) for i in range(self.samples)
            ]
        return self._results[exact]

    def add(self, amount: Array) -> None:
        """The plan changed what the node makes first by an amount."""
        if False in self._results:
            self._results[False] = [[results[0] + amount, *results[1:]] for results in self._results[False]]

    def forget(self) -> None:
        """The plan changed what the node makes."""
        self._results.pop(False, None)


class Walk:
    """Steps over a model. `plan` may be changed between steps; without one, only the float world is walked.

    `exact` and `coarse` hold the values alive, afterwards the model's outputs. With `coarse_only` the float world is
    not walked: what is to be known of it is known.
    """

    def __init__(
        self, model: onnx_ir.Model, plan: EncodingPlan | None, samples: Sequence[Feeds], *, coarse_only: bool = False
    ) -> None:
        self.model, self.plan = model, plan or EncodingPlan()
        self.worlds = (True,) if plan is None else (False,) if coarse_only else (True, False)
        self.samples = samples[: max(1, MEMORY_BYTES // max(1, 2 * peak_bytes(model)))]
        self.exact: dict[str, _Values] = {}
        self.coarse: dict[str, _Values] = {}

    def __iter__(self) -> Iterator[NodeStep]:
        graph, count = self.model.graph, len(self.samples)
        left = Counter(str(v.name) for node in graph for v in reads(node))
        left.update(str(v.name) for v in graph.outputs)
        for value in graph.inputs:
            name = str(value.name)
            self.exact[name] = [np.asarray(s[name]) for s in self.samples]
            self.coarse[name] = [self._quantized(name, a) for a in self.exact[name]]
        for node in graph:
            runner = NodeRunner(node, self.model)
            step = NodeStep(node, runner, self.plan, self.exact, self.coarse, count)
            yield step
            for exact in self.worlds:
                world, results = self.exact if exact else self.coarse, step.outputs(exact)
                for index, name in enumerate(runner.output_names):
                    arrays = [r[index] for r in results]
                    world[name] = arrays if exact else [self._quantized(name, a) for a in arrays]
            for value in reads(node):
                left[str(value.name)] -= 1
            for name in [n for n in (*(str(v.name) for v in reads(node)), *runner.output_names) if left[n] == 0]:
                self.exact.pop(name, None)
                self.coarse.pop(name, None)

    def _quantized(self, name: str, array: Array) -> Array:
        fixed = self.plan.tensors.get(name)
        return array if fixed is None else rounded(array, fixed)


def peak_bytes(model: onnx_ir.Model) -> int:
    """Bytes of the values that live at the same time when nodes run in order, for one sample."""
    last = {v: i for i, node in enumerate(model.graph) for v in reads(node)}
    alive, most = 0, 0
    ends: dict[int, int] = {}
    for index, node in enumerate(model.graph):
        for value in node.outputs:
            shape = value.shape
            size = 4 * int(np.prod([d for d in shape if isinstance(d, int)])) if shape is not None else 0
            alive += size
            end = last.get(value, index)
            ends[end] = ends.get(end, 0) + size
        most = max(most, alive)
        alive -= ends.pop(index, 0)
    return most
