# SPDX-License-Identifier: Apache-2.0
"""Odd models: random nodes with odd attributes and shapes, in float and between Q and DQ, beside onnxruntime.

What onnxruntime runs must end in a result equal to its own, or in a HexforgeError; what it does not run in anything but
another exception.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import hexforge
from hexforge.errors import HexforgeError

FLOAT = np.float32
STEPS = 2.01
"""By how many steps of its encoding a fixed-point result may differ."""


@dataclass
class OddModel:
    """A model under construction; every draw comes from its seed."""

    rng: np.random.Generator
    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    feeds: dict[str, np.ndarray] = field(default_factory=dict)
    scale: float = 0.0

    def pick(self, *choices: Any) -> Any:
        """One of some."""
        return choices[int(self.rng.integers(len(choices)))]

    def shape(self, low: int = 0, high: int = 5) -> tuple[int, ...]:
        """A shape, sometimes without elements."""
        rank = int(self.rng.integers(low, high + 1))
        odd = self.rng.random(rank) < 0.1
        return tuple(int(self.pick(1, 7, 0) if each else self.rng.integers(1, 6)) for each in odd)

    def full_shape(self, low: int = 0, high: int = 5) -> tuple[int, ...]:
        """A shape with elements: onnxruntime leaves axes of others as they are where a reduction has none."""
        return tuple(max(size, 1) for size in self.shape(low, high))

    def data(self, shape: tuple[int, ...], spread: float = 3.0) -> np.ndarray:
        """Real numbers."""
        return np.asarray(self.rng.standard_normal(shape) * spread, FLOAT)

    def given(self, shape: tuple[int, ...], array: np.ndarray | None = None) -> str:
        """An input."""
        name = f"x{len(self.feeds)}"
        self.feeds[name] = self.data(shape) if array is None else array
        return name

    def constant(self, array: Any) -> str:
        """A constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op: str, inputs: list[str], outputs: int = 1, **attributes: Any) -> list[str]:
        """A node; what is None among its attributes is left out."""
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        kept = {k: v for k, v in attributes.items() if v is not None}
        self.nodes.append(helper.make_node(op, inputs, names, **kept))
        return names

    def axis(self, rank: int) -> int:
        """An axis, mostly one that there is."""
        if self.rng.random() < 0.05:
            return int(self.pick(rank, -rank - 1, 100))
        return int(self.rng.integers(-rank, rank)) if rank else 0

    def axes(self, rank: int) -> list[int]:
        """Some axes, sometimes none, rarely one twice."""
        count = int(self.rng.integers(0, rank + 1))
        chosen = self.rng.permutation(rank)[:count]
        return [int(a) - (rank if self.rng.random() < 0.3 else 0) for a in chosen]

    def maybe(self, value: Any) -> Any:
        """The value, or None to leave an attribute out."""
        return value if self.rng.random() < 0.6 else None


def _reduce(m: OddModel) -> None:
    shape = m.full_shape()
    op = m.pick("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")
    axes = m.axes(len(shape))
    inputs = [m.given(shape)]
    attributes = {"keepdims": m.maybe(m.pick(0, 1)), "noop_with_empty_axes": m.maybe(m.pick(0, 1))}
    if m.rng.random() < 0.8:
        inputs.append(m.constant(np.array(axes, np.int64)))
    m.node(f"Reduce{op}", inputs, **attributes)


def _moves(m: OddModel) -> None:
    shape = m.shape(1)
    x, rank = m.given(shape), len(shape)
    kind = m.pick(
        "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Concat", "Split", "Tile", "Expand", "Pad"
    )
    whole = np.int64
    if kind == "Transpose":
        m.node(kind, [x], perm=m.maybe([int(a) for a in m.rng.permutation(rank)]))
    elif kind == "Reshape":
        size = math.prod(shape)
        wanted = m.pick([-1], [0] * rank, [1, -1], [*shape, 1], [size], [0, -1], [2, -1, 1], [])
        m.node(kind, [x, m.constant(np.array(wanted, whole))], allowzero=m.maybe(m.pick(0, 1)))
    elif kind == "Squeeze":
        axes = m.axes(rank)  # none at all are all of them to onnxruntime
        some = [m.constant(np.array(axes, whole))] if axes and m.rng.random() < 0.5 else []
        m.node(kind, [x, *some])
    elif kind == "Unsqueeze":
        m.node(kind, [x, m.constant(np.array(m.axes(rank + 1), whole))])
    elif kind == "Flatten":
        m.node(kind, [x], axis=m.maybe(m.axis(rank)))
    elif kind == "Slice":
        axes = m.axes(rank) or [0]
        n = len(axes)
        ends = (0, 1, -1, 2, -2, 100, -100, 2**63 - 1, -(2**63))
        operands = [np.array([m.pick(*ends) for _ in range(n)], whole) for _ in range(2)]
        steps = np.array([m.pick(1, 2, -1, -2, 3, 100) for _ in range(n)], whole)
        # backwards to the largest number is to the very end in onnxruntime, and nothing in onnx
        operands[1] = np.where((steps < 0) & (operands[1] == 2**63 - 1), 100, operands[1])
        m.node(kind, [x, *map(m.constant, operands), m.constant(np.array(axes, whole)), m.constant(steps)])
    elif kind == "Concat":
        axis = int(m.rng.integers(rank))
        other = tuple(int(m.rng.integers(0, 4)) if i == axis else n for i, n in enumerate(shape))
        m.node(kind, [x, m.given(other), x], axis=axis - m.pick(0, rank))
    elif kind == "Split":
        axis = int(m.rng.integers(rank))
        first = int(m.rng.integers(0, shape[axis] + 1))
        sizes = m.constant(np.array([first, shape[axis] - first], whole))
        m.node(kind, [x, sizes], 2, axis=axis)
    elif kind == "Tile":
        m.node(kind, [x, m.constant(np.array([m.pick(1, 2, 3, 0) for _ in shape], whole))])
    elif kind == "Expand":
        wanted = [m.pick(n, 1) if n != 1 else m.pick(1, 3) for n in shape]
        m.node(kind, [x, m.constant(np.array([2, *wanted] if m.rng.random() < 0.3 else wanted, whole))])
    else:
        pads = np.array([m.pick(0, 0, 1, 2, 5, -1) for _ in range(2 * rank)], whole)
        mode = m.pick("constant", "reflect", "edge", "wrap" if m.opset >= 19 else "constant")
        value = [m.constant(FLOAT(m.pick(0.0, 1.5, -2.0)))] if m.rng.random() < 0.5 else []
        m.node("Pad", [x, m.constant(pads), *value], mode=m.maybe(mode))


def _index(m: OddModel) -> None:
    shape = m.full_shape(1, 4)
    x, rank = m.given(shape), len(shape)
    axis = int(m.rng.integers(rank))
    kind = m.pick(
        "Gather", "GatherElements", "ScatterElements", "TopK", "ArgMax", "ArgMin", "CumSum", "OneHot", "Trilu",
        "NonZero",
    )  # fmt: skip
    low, high = -shape[axis], max(shape[axis], 1)
    if kind == "Gather":
        indices = m.rng.integers(min(low, -1) if shape[axis] else 0, high, m.shape(0, 2))
        m.node(kind, [x, m.constant(indices.astype(m.pick(np.int32, np.int64)))], axis=m.maybe(axis))
    elif kind in ("GatherElements", "ScatterElements"):
        indices = m.rng.integers(min(low, 0), high, shape)
        at = m.constant(indices.astype(np.int64))
        if kind == "GatherElements":
            m.node(kind, [x, at], axis=axis)
        else:
            m.node(kind, [x, at, m.given(shape)], axis=axis, reduction=m.maybe(m.pick("none", "add", "mul", "max")))
    elif kind == "TopK":
        k = np.array([m.pick(0, 1, shape[axis], shape[axis] // 2)], np.int64)
        m.node(kind, [x, m.constant(k)], 2, axis=axis, largest=m.maybe(m.pick(0, 1)), sorted=1)
    elif kind.startswith("Arg"):
        m.node(kind, [x], axis=m.maybe(axis - m.pick(0, rank)), keepdims=m.maybe(m.pick(0, 1)),
               select_last_index=m.maybe(m.pick(0, 1)))  # fmt: skip
    elif kind == "CumSum":
        m.node(kind, [x, m.constant(np.array(axis - m.pick(0, rank), np.int64))], exclusive=m.maybe(m.pick(0, 1)),
               reverse=m.maybe(m.pick(0, 1)))  # fmt: skip
    elif kind == "OneHot":
        where = m.given((3,), m.rng.integers(-6, 6, 3).astype(np.int64))
        values = m.constant(np.array([0, 1.5], FLOAT))
        m.node(kind, [where, m.constant(np.int64(m.pick(1, 4))), values], axis=m.maybe(m.pick(0, -1)))
    elif kind == "Trilu":
        diagonal = [m.constant(np.int64(m.pick(0, 1, -2, 100)))] if m.rng.random() < 0.7 else []
        m.node(kind, [x, *diagonal], upper=m.maybe(m.pick(0, 1)))
    else:
        m.node(kind, [x])


def _pointwise(m: OddModel) -> None:
    shape = m.shape()
    other = tuple(m.pick(n, 1) for n in shape[int(m.rng.integers(0, len(shape) + 1)) :])
    x = m.given(shape)
    kind = m.pick("binary", "binary", "unary", "Where", "Clip", "PRelu", "Mod", "Pow")
    if kind == "binary":
        op = m.pick("Add", "Sub", "Mul", "Div", "Max", "Min")
        m.node(op, [x, m.given(other) if m.rng.random() < 0.5 else m.constant(m.data(other))])
    elif kind == "unary":
        op = m.pick("Relu", "Sigmoid", "Tanh", "Erf", "HardSwish", "Softplus", "Softsign", "Elu", "Selu", "LeakyRelu",
                    "HardSigmoid", "Celu", "ThresholdedRelu", "Abs", "Neg", "Exp", "Floor", "Ceil", "Round", "Sign",
                    "Sin", "Cos", "Identity")  # fmt: skip
        takes = op in ("Elu", "LeakyRelu", "HardSigmoid", "ThresholdedRelu")
        m.node(op, [x], alpha=m.maybe(float(m.pick(0.0, 0.2, 1.0, -0.5))) if takes else None)
    elif kind == "Where":
        m.node(kind, [m.given(other, m.rng.random(other) < 0.5), x, m.given(())])
    elif kind == "Clip":
        limits = m.pick((-1, 1), (2, -2), (0, 0), (0, 6))
        m.node(kind, [x, *(m.constant(FLOAT(b)) if m.rng.random() < 0.8 else "" for b in limits)])
    elif kind == "PRelu":
        m.node(kind, [x, m.constant(m.data(other))])
    elif kind == "Mod":
        m.node(kind, [x, m.constant(FLOAT(m.pick(2.0, -1.5)))], fmod=1)
    else:
        m.node(kind, [x, m.constant(FLOAT(m.pick(2.0, 3.0, 0.0, 1.0)))])


def _windows(m: OddModel) -> None:
    dims = m.pick(1, 2, 2, 3)
    groups = m.pick(1, 1, 2)
    channels = 2 * groups
    sizes = tuple(int(m.rng.integers(1, 8)) for _ in range(dims))
    x = m.given((m.pick(1, 2), channels, *sizes))
    kernel = [int(m.rng.integers(1, 4)) for _ in range(dims)]
    auto = m.pick("NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    attributes: dict[str, Any] = {
        "strides": m.maybe([int(m.rng.integers(1, 4)) for _ in range(dims)]),
        "dilations": m.maybe([int(m.rng.integers(1, 3)) for _ in range(dims)]),
        "auto_pad": auto if auto != "NOTSET" else None,
        "pads": m.maybe([int(m.rng.integers(0, 3)) for _ in range(2 * dims)]) if auto == "NOTSET" else None,
    }
    op = m.pick("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool")
    if op == "Conv":
        bias = [m.constant(m.data((2 * groups,)))] if m.rng.random() < 0.5 else []
        weight = m.constant(m.data((2 * groups, channels // groups, *kernel)))
        m.node(op, [x, weight, *bias], group=groups, **attributes)
    elif op == "ConvTranspose":
        m.node(op, [x, m.constant(m.data((channels, 2, *kernel)))], group=groups,
               output_padding=m.maybe([0] * dims), **attributes)  # fmt: skip
    elif op.startswith("Global"):
        m.node(op, [x])
    else:
        if op == "AveragePool" and m.opset < 19:
            attributes["dilations"] = None
        m.node(op, [x], kernel_shape=kernel, ceil_mode=m.maybe(m.pick(0, 1)), **attributes,
               count_include_pad=m.maybe(m.pick(0, 1)) if op == "AveragePool" else None,
               p=m.maybe(m.pick(1, 2, 3)) if op == "LpPool" else None)  # fmt: skip


def _products(m: OddModel) -> None:
    a, k, b = (int(m.pick(1, 2, 3, 5, 0) if m.rng.random() < 0.2 else m.rng.integers(1, 6)) for _ in range(3))
    kind = m.pick("MatMul", "MatMul", "Gemm", "Einsum")
    if kind == "MatMul":
        left, right = m.pick(
            ((a, k), (k, b)), ((2, a, k), (k, b)), ((2, 1, a, k), (3, k, b)), ((k,), (k, b)), ((a, k), (k,)),
            ((k,), (k,)),
        )  # fmt: skip
        if k == 0:  # onnxruntime does not broadcast over nothing
            left, right = (a, k), (k, b)
        m.node(kind, [m.given(left), m.given(right) if m.rng.random() < 0.5 else m.constant(m.data(right))])
    elif kind == "Gemm":
        turned = m.pick(0, 1), m.pick(0, 1)
        x = m.given((k, a) if turned[0] else (a, k))
        w = m.constant(m.data((b, k) if turned[1] else (k, b)))
        c = [m.constant(m.data(m.pick((), (1,), (b,), (a, 1), (1, b))))] if m.rng.random() < 0.6 else []
        m.node(
            kind,
            [x, w, *c],
            transA=turned[0],
            transB=turned[1],
            alpha=m.maybe(m.pick(0.5, 0.0)),
            beta=m.maybe(2.0) if k else None,
        )
    else:
        equation = m.pick("ij,jk->ik", "ij,jk", "bij,bjk->bik", "ij->ji", "ii->i", "ij->", "i,j->ij", "...ij,jk->...ik")
        sizes = {"i": a, "j": k, "k": b, "b": 2}
        terms = equation.split("->")[0].split(",")
        shapes = [tuple(sizes[c] if c != "." else 2 for c in term.replace("...", ".")) for term in terms]
        m.node(kind, [m.given(shape) for shape in shapes], equation=equation)


def _norms(m: OddModel) -> None:
    kind = m.pick("Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization", "LRN", "Hardmax")
    shape = m.full_shape(3, 4)  # of no elements, an instance's mean ends onnxruntime
    x, rank = m.given(shape), len(shape)
    if kind in ("Softmax", "LogSoftmax", "Hardmax"):
        m.node(kind, [x], axis=m.maybe(m.axis(rank)))
    elif kind == "LayerNormalization":
        axis = int(m.rng.integers(rank))
        m.node(kind, [x, m.constant(m.data(shape[axis:]))], axis=axis, epsilon=m.maybe(1e-3))
    elif kind == "InstanceNormalization":
        m.node(kind, [x, m.constant(m.data(shape[1:2])), m.constant(m.data(shape[1:2]))], epsilon=m.maybe(1e-3))
    else:
        m.node(kind, [m.given((1, 5, 3, 3))], size=m.pick(1, 3, 5), alpha=m.maybe(0.1), bias=m.maybe(2.0))


def _pictures(m: OddModel) -> None:
    shape = (1, 2, int(m.rng.integers(1, 6)), int(m.rng.integers(1, 6)))
    kind = m.pick("Resize", "Resize", "DepthToSpace", "SpaceToDepth", "GridSample")
    if kind == "Resize":
        sizes = np.array([1, 2, int(m.rng.integers(1, 9)), int(m.rng.integers(1, 9))], np.int64)
        mode = m.pick("nearest", "linear", "cubic")
        places = m.pick("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
        m.node(kind, [m.given(shape), "", "", m.constant(sizes)], mode=mode,
               coordinate_transformation_mode=m.maybe(places),
               nearest_mode=m.maybe(m.pick("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")),
               exclude_outside=m.maybe(1) if mode == "cubic" else None)  # fmt: skip
    elif kind == "DepthToSpace":
        m.node(kind, [m.given((1, 8, 2, 3))], blocksize=2, mode=m.maybe(m.pick("DCR", "CRD")))
    elif kind == "SpaceToDepth":
        m.node(kind, [m.given((1, 2, 4, 6))], blocksize=2)
    else:
        grid = m.rng.uniform(-1.3, 1.3, (1, 3, 4, 2)).astype(FLOAT)
        m.node(kind, [m.given(shape), m.given(grid.shape, grid)], align_corners=m.maybe(m.pick(0, 1)),
               padding_mode=m.maybe(m.pick("zeros", "border", "reflection")),
               mode=m.maybe(m.pick("bilinear" if m.opset < 20 else "linear", "nearest")))  # fmt: skip


FAMILIES: tuple[Callable[[OddModel], None], ...] = (
    _reduce, _moves, _moves, _index, _pointwise, _windows, _windows, _products, _norms, _pictures,
)  # fmt: skip


def odd_model(seed: int) -> tuple[bytes, dict[str, np.ndarray], float]:
    """A model by number, inputs for it, and the step of its encodings: 0 where it is a float model."""
    rng = np.random.default_rng([20, seed])
    m = OddModel(rng, int(rng.choice([13, 17, 18, 19, 21])))
    FAMILIES[seed % len(FAMILIES)](m)
    node = m.nodes[-1]
    results, integers = list(node.output), node.op_type in ("ArgMax", "ArgMin", "NonZero")
    if rng.random() < 0.35 and not integers and all(a.dtype == FLOAT for a in m.feeds.values()):
        m.scale = 0.05
        scale, zero = m.constant(FLOAT(m.scale)), m.constant(np.uint8(128))
        before: list[onnx.NodeProto] = []
        for name in m.feeds:
            before += [
                helper.make_node("QuantizeLinear", [name, scale, zero], [f"{name}_q"]),
                helper.make_node("DequantizeLinear", [f"{name}_q", scale, zero], [f"{name}_d"]),
            ]
            node.input[:] = [f"{name}_d" if i == name else i for i in node.input]
        m.nodes[:0] = before
        m.nodes += [
            helper.make_node("QuantizeLinear", [results[0], scale, zero], ["y_q"]),
            helper.make_node("DequantizeLinear", ["y_q", scale, zero], ["y"]),
        ]
        results[0] = "y"
    elif rng.random() < 0.3 and not integers:
        results[0] = m.node("Relu", [results[0]])[0]
    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in m.feeds.items()}
    ends = [helper.make_tensor_value_info(name, types[name], array.shape) for name, array in m.feeds.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in results]
    graph = helper.make_graph(m.nodes, "odd", ends, outputs, m.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", m.opset)], ir_version=10)
    return model.SerializeToString(), m.feeds, m.scale


def odd_models(seed: int) -> list[str]:
    """What is wrong with how an odd model ends on the cpu and htp backends."""
    model, feeds, scale = odd_model(seed)
    quiet = onnxruntime.SessionOptions()
    quiet.log_severity_level = 4
    quiet.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    want: list[Any] | None = None
    try:
        want = onnxruntime.InferenceSession(model, quiet, providers=["CPUExecutionProvider"]).run(None, feeds)
    except Exception:  # of several kinds
        want = None
    found = []
    for backend in ("cpu", "htp"):
        options = hexforge.SessionOptions()
        options.log_severity_level = 4
        try:
            provider = ("QNNExecutionProvider", {"backend_type": backend})
            got = hexforge.InferenceSession(model, options, providers=[provider]).run(None, feeds)
        except HexforgeError:
            continue
        except Exception as error:
            found.append(f"{backend}: {type(error).__name__}: {error}")
            continue
        for ours, theirs in zip(got, want or [], strict=False):
            fault = difference(np.asarray(ours), np.asarray(theirs), scale, backend)
            if fault:
                found.append(f"{backend}: {fault}")
    ops = [n.op_type for n in onnx.load_from_string(model).graph.node if "Linear" not in n.op_type]
    return [f"seed {seed}: {'QDQ ' if scale else ''}{ops[0]}: {what}" for what in found]


def difference(ours: np.ndarray, theirs: np.ndarray, scale: float, backend: str) -> str:
    """How two results differ by more than arithmetic explains; empty where they do not."""
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return f"{ours.dtype}{list(ours.shape)}, not {theirs.dtype}{list(theirs.shape)}"
    if ours.dtype.kind != "f":
        wrong = int((ours != theirs).sum())
        return f"{wrong} of {ours.size} differ" if wrong and (backend == "cpu" or wrong > 0.1 * ours.size) else ""
    if backend == "htp":  # float16 has no numbers beyond
        ours, theirs = (np.where(np.abs(a) > 60000, np.sign(a) * 60000, a) for a in (ours, theirs))
    if not np.array_equal(np.isnan(ours), np.isnan(theirs)):
        return f"{np.isnan(ours).sum()} NaN, not {np.isnan(theirs).sum()}"
    largest = float(np.nanmax(np.abs(np.where(np.isfinite(theirs), theirs, 0)), initial=1.0))
    allowed = STEPS * scale if scale else (1e-4 if backend == "cpu" else 2e-2) * largest
    with np.errstate(invalid="ignore"):
        worst = float(np.nanmax(np.where(ours == theirs, 0, np.abs(ours - theirs)), initial=0.0))
    return f"off by {worst:.3g}, {allowed:.3g} allowed" if worst > allowed else ""
