# SPDX-License-Identifier: Apache-2.0
"""Single ops that few models have, against onnxruntime on the CPU: `python -m benchmarks.htp.operators [NAME ...]`.

Selections and regions of detectors, Fourier transforms, and products whose second operand is computed at run time, as
float models and as QDQ models. Both engines run in this process with one thread and take turns; the figures are the CPU
time of a run (us, the best round), the ratio is hexforge's over onnxruntime's. The last column says which nodes have no
native kernel. `--check` also compares the outputs: the largest difference beside the largest number of the peer's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from benchmarks.peers.engines import ENGINES, cpu_times, hexforge_session, programs

Array = np.ndarray[Any, Any]
_RNG = np.random.default_rng(5)


@dataclass(frozen=True, slots=True)
class Operator:
    """A model of one op: its node, what is fed, what is constant, and the outputs' types."""

    name: str
    op: str
    feeds: dict[str, Array]
    constants: dict[str, Array] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    out: int = TensorProto.FLOAT
    quantized: str = ""
    """Data type of activations (uint8, uint16) where it is a QDQ model."""
    rows: bool = False
    """True where the output's shape is taken from onnxruntime: it depends on the numbers."""

    def model(self) -> onnx.ModelProto:
        """The file."""
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in self.feeds.items()
        ]
        nodes: list[Any] = []
        held = [] if self.quantized else [numpy_helper.from_array(a, n) for n, a in self.constants.items()]
        names = [*self.feeds, *self.constants]
        if self.quantized:
            names = [_requantized(n, a, self.quantized, nodes, held) for n, a in self.feeds.items()]
            names += [_bias(n, a, names, nodes, held) for n, a in self.constants.items()]
        nodes.append(helper.make_node(self.op, names, ["r" if self.quantized else "y"], self.op, **self.attributes))
        if self.quantized:
            result = self._output(
                [*nodes[:-1], helper.make_node(self.op, names, ["y"], **self.attributes)], inputs, held
            )
            last = _requantized("r", result, self.quantized, nodes, held)
            nodes.append(helper.make_node("Identity", [last], ["y"]))
        shape = self._output(nodes, inputs, held).shape if self.rows else None
        return _model(nodes, inputs, held, self.out, shape)

    def _output(self, nodes: Sequence[onnx.NodeProto], inputs: Any, held: Any) -> Array:
        session = onnxruntime.InferenceSession(_model(nodes, inputs, held, self.out, None).SerializeToString())
        return np.asarray(session.run(None, self.feeds)[0])


def _model(nodes: Any, inputs: Any, held: Any, out: int, shape: Any) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", out, shape)], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _requantized(name: str, array: Array, kind: str, nodes: list[Any], held: list[Any]) -> str:
    """Quantize and Dequantize behind a tensor, by the range of its numbers."""
    low, high = min(0.0, float(array.min())), max(0.0, float(array.max()))
    most = np.iinfo(kind).max
    scale = np.float32(max(high - low, 1e-6) / most)
    held += [
        numpy_helper.from_array(scale, f"{name}_s"),  # type: ignore[arg-type]
        numpy_helper.from_array(np.array(round(-low / scale), kind), f"{name}_z"),
    ]
    nodes.append(helper.make_node("QuantizeLinear", [name, f"{name}_s", f"{name}_z"], [f"{name}_q"]))
    nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_d"]))
    return f"{name}_d"


def _bias(name: str, array: Array, names: Sequence[str], nodes: list[Any], held: list[Any]) -> str:
    """A constant in 32 bits, its scale the product of the operands', as quantizers write it."""
    scales = {one.name: numpy_helper.to_array(one) for one in held}
    scale = np.float32(np.prod([scales[n.removesuffix("_d") + "_s"] for n in names]))
    held += [numpy_helper.from_array(scale, f"{name}_s"), numpy_helper.from_array(np.array(0, np.int32), f"{name}_z"),  # type: ignore[arg-type]
             numpy_helper.from_array(np.rint(array / scale).astype(np.int32), f"{name}_q")]  # fmt: skip
    nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_d"]))
    return f"{name}_d"


def _half(array: Array) -> Array:
    """Numbers that float16, the HTP's float type, has: the engines are given the same problem."""
    return array.astype(np.float16).astype(np.float32)


def _f32(*shape: int) -> Array:
    return _half(_RNG.standard_normal(shape))


def _boxes(batch: int, count: int) -> Array:
    corner, size = _RNG.random((2, batch, count, 2))
    return _half(np.concatenate([corner, corner + 0.2 * size], -1))


def _selection(name: str, batch: int, classes: int, count: int, most: int) -> Operator:
    limits = {
        "most": np.array([most], np.int64),
        "iou": np.array([0.5], np.float32),
        "least": np.array([0.3], np.float32),
    }
    scores = _half(_RNG.random((batch, classes, count)))
    return Operator(name, "NonMaxSuppression", {"boxes": _boxes(batch, count), "scores": scores}, limits,  # type: ignore[arg-type]
                    out=TensorProto.INT64, rows=True)  # fmt: skip


def _regions(name: str, shape: tuple[int, ...], count: int, bins: int, samples: int, quantized: str = "") -> Operator:
    corner, size = _RNG.random((2, count, 2))
    rois = _half(np.concatenate([corner, corner + size], -1) * shape[-1] * 8)
    # regions and images stay as they are in a QDQ model
    return Operator(name, "RoiAlign", {"x": _f32(*shape), "rois": rois, "of": _RNG.integers(0, shape[0], count)},
                    attributes={"output_height": bins, "output_width": bins, "sampling_ratio": samples,
                                "spatial_scale": 0.125}, quantized=quantized)  # fmt: skip


def _frames(name: str, samples: int, length: int, step: int, channels: int = 1) -> Operator:
    held = {"step": np.array(step), "window": _half(np.hanning(length)), "length": np.array(length)}
    return Operator(name, "STFT", {"x": _f32(1, samples, channels)}, held, {"onesided": int(channels == 1)})


def _products(kind: str) -> list[Operator]:
    said = {"": "float", "uint8": "A8", "uint16": "A16"}[kind]
    two: Callable[..., dict[str, Array]] = lambda a, b: {"a": _f32(*a), "b": _f32(*b)}  # noqa: E731
    return [
        Operator(f"scores {said}", "MatMul", two((12, 197, 64), (12, 64, 197)), quantized=kind),
        Operator(f"values {said}", "MatMul", two((12, 197, 197), (12, 197, 64)), quantized=kind),
        Operator(f"row {said}", "MatMul", two((1, 512), (512, 512)), quantized=kind),
        Operator(f"broadcast {said}", "MatMul", two((4, 3, 32, 48), (3, 48, 40)), quantized=kind),
        Operator(f"gemm {said}", "Gemm", two((64, 256), (128, 256)), {"c": _f32(128)}, {"transB": 1}, quantized=kind),
        Operator(f"gemm transA {said}", "Gemm", two((256, 64), (256, 128)), {}, {"transA": 1}, quantized=kind),
        Operator(f"conv {said}", "Conv", {"x": _f32(1, 64, 28, 28), "w": _f32(64, 64, 3, 3) / 8}, {"c": _f32(64)},
                 {"pads": [1, 1, 1, 1]}, quantized=kind),
        Operator(f"depthwise {said}", "Conv", {"x": _f32(1, 96, 31, 31), "w": _f32(96, 1, 7, 7)}, {}, {"group": 96},
                 quantized=kind),
    ]  # fmt: skip


def operators() -> list[Operator]:
    """Everything that is measured."""
    return [
        _selection("nms 1x1x1000", 1, 1, 1000, 100),
        _selection("nms 1x80x2100", 1, 80, 2100, 50),
        _selection("nms 4x20x500", 4, 20, 500, 20),
        _regions("roi 256x50x50, 100 of 7x7", (1, 256, 50, 50), 100, 7, 2),
        _regions("roi 256x50x50, 100 of 14x14, adaptive", (1, 256, 50, 50), 100, 14, 0),
        _frames("stft 16000, 400 every 160", 16000, 400, 160),
        _frames("stft 16000, 512 every 128", 16000, 512, 128),
        _frames("stft complex 8000, 256 every 64", 8000, 256, 64, 2),
        *(product for kind in ("", "uint8", "uint16") for product in _products(kind)),
    ]


def main(arguments: list[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="parts of names; all by default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--check", action="store_true", help="compare the outputs, too")
    given = parser.parse_args(arguments)
    table = Table("op", "hexforge, us", "onnxruntime, us", "ratio", "difference", "without a native kernel")
    for one in operators():
        if given.names and not any(name in one.name for name in given.names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "one.onnx"
            onnx.save(one.model(), path)
            runners = {name: ENGINES[name](path, 1) for name in ("hexforge", "onnxruntime")}
            references = {n.op.name for p in programs(hexforge_session(path, 1)) for n in p.facts.references}
            times = cpu_times(runners, one.feeds, given.rounds, lambda: None)
            mine, theirs = (times[name].best * 1e3 for name in ("hexforge", "onnxruntime"))
            difference = ""
            if given.check:
                outputs, wanted = (
                    np.asarray(next(iter(run(one.feeds).values())), np.float64) for run in runners.values()
                )
                difference = f"{np.abs(outputs - wanted).max() / max(1e-9, np.abs(wanted).max()):.1e}"
        table.add_row(
            one.name, f"{mine:.0f}", f"{theirs:.0f}", f"{mine / theirs:.2f}", difference, ", ".join(references)
        )
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
