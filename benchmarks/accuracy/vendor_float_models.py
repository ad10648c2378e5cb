# SPDX-License-Identifier: Apache-2.0
"""How near hexforge's floats are to the vendor's emulator: groups of ops as models have them, and whole float models.

A step is the distance between two halves that are neighbours: a unit of the last place. Beside the share of results
within one step of the emulator's, the share within one step of the output's largest number is given: small results of
long sums differ by more of their own steps than that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from rich.table import Table

import hexforge
from benchmarks.peers import vendor
from hexforge.backends.htp.numbers.halves import vector_half, vector_patterns
from hexforge.model.reader import read
from tests.models.fetch import FILES, stored

Array = np.ndarray[Any, Any]
Made = tuple[onnx.ModelProto, dict[str, Array]]
LEAST = np.float32(np.finfo(np.float32).min)


class _Group:
    """A small float model, written node by node."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.feeds: dict[str, Array] = {}

    def input(self, *shape: int, scale: float = 1.0) -> str:
        """A run-time input of normal numbers."""
        return self.given(self.random.normal(0, scale, shape))

    def given(self, array: Any) -> str:
        """A run-time input."""
        name = f"x{len(self.feeds)}"
        self.feeds[name] = np.asarray(array, np.float32)
        return name

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        """A constant."""
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        """Constant weights that keep the size of what they are multiplied with."""
        return self.constant(self.random.normal(0, float(np.prod(shape[1:])) ** -0.5, shape))

    def op(self, type: str, *ins: str, **attributes: Any) -> str:
        """The result of a node."""
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(type, ins, [name], **attributes))
        return name

    def made(self, output: str) -> Made:
        """The model, and what it is fed."""
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in self.feeds.items()]
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "group", infos, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model), self.feeds


def _attention(masked: str) -> Made:
    g = _Group(1)
    mask = np.ones((1, 1, 1, 32))
    mask[..., 20:] = 0
    q, k, v = (g.input(1, 4, 32, 16) for _ in range(3))
    scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2])), g.constant(0.25))
    if masked == "Where":
        chosen = g.op("Cast", g.given(mask), to=TensorProto.BOOL)
        scores = g.op("Where", chosen, scores, g.constant(-np.inf))
    else:
        away = g.op("Mul", g.op("Sub", g.constant(1), g.given(mask)), g.constant(LEAST if masked == "least" else -1e4))
        scores = g.op("Add", scores, away)
    return g.made(g.op("MatMul", g.op("Softmax", scores, axis=-1), v))


def _all_masked() -> Made:
    g = _Group(2)
    away = g.op("Mul", g.op("Sub", g.constant(1), g.given(np.zeros((1, 1, 1, 32)))), g.constant(LEAST))
    return g.made(g.op("Softmax", g.op("Add", g.input(1, 4, 32, 32), away), axis=-1))


def _layer_norm(scale: float) -> Made:
    g = _Group(3)
    gamma, beta = g.constant(g.random.normal(1, 0.1, 64)), g.constant(g.random.normal(0, 0.1, 64))
    return g.made(g.op("LayerNormalization", g.input(1, 32, 64, scale=scale), gamma, beta, axis=-1))


def _norm_by_parts(scale: float, centered: bool) -> Made:
    g = _Group(4)
    x, axes = g.input(1, 32, 64, scale=scale), g.constant([-1], np.int64)
    if centered:
        x = g.op("Sub", x, g.op("ReduceMean", x, axes, keepdims=1))
    power = g.op("ReduceMean", g.op("Mul", x, x), axes, keepdims=1)
    divisor = g.op("Sqrt", g.op("Add", power, g.constant(1e-5)))
    return g.made(g.op("Mul", g.op("Div", x, divisor), g.constant(g.random.normal(1, 0.1, 64))))


def _activation(type: str) -> Made:
    g = _Group(5)
    x = g.op("Conv", g.input(1, 16, 20, 20), g.weights(32, 16, 3, 3), pads=[1] * 4)
    return g.made(g.op("Mul", x, g.op("Sigmoid", x)) if type == "SiLU" else g.op(type, x))


def _feed_forward() -> Made:
    g = _Group(6)
    x = g.input(1, 32, 64)
    hidden = g.op("Gelu", g.op("MatMul", x, g.constant(g.random.normal(0, 0.125, (64, 256)))))
    return g.made(g.op("Add", g.op("MatMul", hidden, g.constant(g.random.normal(0, 0.06, (256, 64)))), x))


def _residual() -> Made:
    g = _Group(7)
    x = g.input(1, 32, 16, 16)
    inner = g.op("Relu", g.op("Conv", x, g.weights(32, 32, 3, 3), pads=[1] * 4))
    return g.made(g.op("Relu", g.op("Add", g.op("Conv", inner, g.weights(32, 32, 1, 1)), x)))


def _arithmetic(scale: float) -> Made:
    g = _Group(8)
    a, b, c = (g.input(1, 8, 16, 32, scale=scale) for _ in range(3))
    return g.made(g.op("Sub", g.op("Mul", g.op("Add", a, b), c), g.op("Mul", a, b)))


def _reductions() -> Made:
    g = _Group(9)
    x = g.op("AveragePool", g.input(1, 32, 16, 16), kernel_shape=[2, 2], strides=[2, 2])
    return g.made(g.op("Sub", g.op("MaxPool", x, kernel_shape=[8, 8]), g.op("GlobalAveragePool", x)))


def _large_convolution(largest: float) -> Made:
    g = _Group(10)
    x = g.given(np.clip(g.random.normal(0, 3e4, (1, 32, 8, 8)), -largest, largest))
    return g.made(g.op("Relu", g.op("Conv", x, g.weights(32, 32, 1, 1))))


GROUPS: dict[str, Callable[[], Made]] = {
    "attention, mask of the least float32": lambda: _attention("least"),
    "attention, mask of -1e4": lambda: _attention("-1e4"),
    "attention, mask by Where and -inf": lambda: _attention("Where"),
    "all masked, Softmax": _all_masked,
    "LayerNormalization": lambda: _layer_norm(1.0),
    "LayerNormalization, numbers to 40,000": lambda: _layer_norm(1e4),
    "LayerNorm by parts": lambda: _norm_by_parts(1.0, True),
    "RMS norm by parts": lambda: _norm_by_parts(1.0, False),
    "RMS norm by parts, squares past 65504": lambda: _norm_by_parts(100.0, False),
    "Conv, SiLU": lambda: _activation("SiLU"),
    "Conv, HardSwish": lambda: _activation("HardSwish"),
    "Conv, Gelu": lambda: _activation("Gelu"),
    "MatMul, Gelu, MatMul, Add": _feed_forward,
    "Conv, Relu, Conv, Add, Relu": _residual,
    "Add, Mul, Mul, Sub": lambda: _arithmetic(1.0),
    "Add, Mul, Mul, Sub past 65504": lambda: _arithmetic(150.0),
    "pools": _reductions,
    "Conv, sums past 65504, Relu": lambda: _large_convolution(65504),
    "Conv, inputs past 65504, Relu": lambda: _large_convolution(131008),
}
LIGHT = ("resnet50", "squeezenet", "inception_v1", "inception_v2", "densenet121", "shufflenet")
"""Of the onnx package's own tests: their weights are constants, and in most of them numbers pass 65504."""
REAL: dict[str, tuple[str, dict[str, list[int]]]] = {
    "ppocr_cls": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", {"x": [1, 3, 48, 192]}),
    "ppocr_rec": ("ch_PP-OCRv4_rec_infer.onnx", {"x": [1, 3, 48, 160]}),
    "nudenet": ("320n.onnx", {"images": [1, 3, 320, 320]}),
}


def light_model(name: str) -> Made:
    """A model of the onnx package, with inputs."""
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / f"light_{name}.onnx")
    held, random = {c.name for c in model.graph.initializer}, np.random.default_rng(0)
    feeds = {
        value.name: random.random([d.dim_value for d in value.type.tensor_type.shape.dim], np.float32)
        for value in model.graph.input
        if value.name not in held
    }
    return model, feeds


def real_model(name: str) -> Made:
    """A fetched model, of fixed shape, with inputs."""
    file, shapes = REAL[name]
    source = next(stored(f) for files in FILES.values() for f in files if f.endswith(file))
    model = read(source, shapes=shapes).ir
    random = np.random.default_rng(0)
    return onnx_ir.to_proto(model), {n: random.random(tuple(s), np.float32) for n, s in shapes.items()}


MODELS: dict[str, Callable[[], Made]] = {
    **{f"light {name}": lambda name=name: light_model(name) for name in LIGHT},  # type: ignore[misc]
    **{name: lambda name=name: real_model(name) for name in REAL},  # type: ignore[misc]
}


@dataclass(frozen=True, slots=True)
class FloatDifference:
    """How far two engines are apart on one float model."""

    name: str
    same: float = 0.0
    """Share of equal results."""
    near: float = 0.0
    """Share within one step."""
    near_largest: float = 0.0
    """Share within one step of the output's largest number."""
    sqnr_db: float = 0.0
    """Of hexforge's results, the emulator's being the signal."""
    exact_db: float = 0.0
    """Of hexforge's results, onnxruntime's in float32 being the signal."""
    their_exact_db: float = 0.0
    """Of the emulator's."""
    nan: int = 0
    """Results that are not finite here."""
    their_nan: int = 0
    said: str = ""
    """Why there is nothing to compare."""


def differences(models: Mapping[str, Callable[[], Made]], folder: Path) -> list[FloatDifference]:
    """Every model on both, as a session with default options runs it."""
    cases = []
    for index, make in enumerate(models.values()):
        model, feeds = make()
        path = folder / f"float{index}.onnx"
        onnx.save(model, path)
        cases.append(vendor.Case(path, feeds))
    rows = []
    for name, case, theirs in zip(models, cases, vendor.run(cases, fp16=True), strict=True):
        if not theirs.whole:
            rows.append(FloatDifference(name, said=theirs.error or f"placed {theirs.nodes}"))
            continue
        provider = ("QNNExecutionProvider", {"backend_type": "htp", "soc_model": vendor.SOC_MODEL})
        session = hexforge.InferenceSession(str(case.model), providers=[provider])
        ours = session.run(None, dict(case.feeds))
        plain = onnxruntime.InferenceSession(case.model.read_bytes(), providers=["CPUExecutionProvider"])
        exact = plain.run(None, dict(case.feeds))
        rows.append(_compared(name, list(theirs.outputs.values()), ours, exact))
    return rows


def _compared(name: str, theirs: Sequence[Array], ours: Sequence[Array], exact: Sequence[Array]) -> FloatDifference:
    sides = (np.concatenate([np.asarray(v, np.float32).ravel() for v in side]) for side in (theirs, ours, exact))
    a, b, signal = sides
    nans = int((~np.isfinite(b)).sum()), int((~np.isfinite(a)).sum())
    a, b = vector_half(a * np.float32(1 - 2.0**-22)), vector_half(b)  # the emulator's conversion adds up to 1.2e-7
    apart = np.abs(_place(a) - _place(b))
    largest = float(np.abs(a).max())
    step = 2.0 ** (np.floor(np.log2(largest)) - 10) if largest else 2.0**-24
    within = float((np.abs(a.astype(np.float64) - b) <= step).mean())
    return FloatDifference(
        name, float((apart == 0).mean()), float((apart <= 1).mean()), within,
        _sqnr(a, b), _sqnr(signal, b), _sqnr(signal, a), *nans,
    )  # fmt: skip


def _sqnr(signal: Array, results: Array) -> float:
    """Signal to noise in dB."""
    wide = signal.astype(np.float64)
    power, noise = float((wide**2).sum()), float(((wide - results) ** 2).sum())
    return float(10 * np.log10(power / noise)) if noise and power else float("inf")


def _place(halves: Array) -> Array:
    """Where halves are in their order."""
    bits = vector_patterns(halves).view(np.uint16).astype(np.int32)
    return np.where(bits & 0x8000, -(bits & 0x7FFF), bits & 0x7FFF)


def table(title: str, rows: Sequence[FloatDifference]) -> Table:
    """The differences, a model per line."""
    columns = "equal, %", "within 1 step, %", "of the largest, %", "dB", "to float32, dB", "theirs", "NaN", "theirs", ""
    made = Table(title, *columns)
    for row in rows:
        if row.said:
            made.add_row(row.name, *["-"] * 8, f"not run: {row.said[:60]}")
            continue
        shares = (f"{100 * share:.1f}" for share in (row.same, row.near, row.near_largest))
        verdict = "[bold red]NaN" if row.nan and not row.their_nan else ""
        noises = (f"{db:.1f}" for db in (row.sqnr_db, row.exact_db, row.their_exact_db))
        made.add_row(row.name, *shares, *noises, str(row.nan), str(row.their_nan), verdict)
    return made
