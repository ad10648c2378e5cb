# SPDX-License-Identifier: Apache-2.0
"""Which ops keep numbers past 65504, and how they round, by the vendor's emulator on each architecture and by hexforge.

    python -m benchmarks.accuracy.vendor_float_range

Every row is a float model of one to four nodes; its figures are results, brought to the nearest half, as the emulator's
last conversion adds up to 1.2e-7. docs/numerics.md ("float16") says what follows from them.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import hexforge
from benchmarks.peers import vendor
from hexforge.backends.htp.numbers.halves import vector_half
from hexforge.chips.soc import find_chip

Array = np.ndarray[Any, Any]
Node = tuple[str, Sequence[str], Mapping[str, Any]]
SOCS = ("36", "43", "57", "69", "87")
"""v69, v73, v75, v79, v81. v68 (30) and no soc_model compute in float32 there, so halves are not what they show."""
SHOWN = 6
"""Results of a row that are printed."""


@dataclass(frozen=True)
class Probe:
    """A small float model. Nodes write t0, t1, …; inputs are x, z, constants have their own names."""

    nodes: Sequence[Node]
    inputs: Mapping[str, Array]
    constants: Mapping[str, Array] = field(default_factory=dict)

    def model(self) -> onnx.ModelProto:
        """The ONNX model; its output is what the last node writes."""
        names = [f"t{i}" for i in range(len(self.nodes))]
        made = [
            helper.make_node(op, ins, [out], **dict(attributes))
            for (op, ins, attributes), out in zip(self.nodes, names, strict=True)
        ]
        infos = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in self.inputs.items()
        ]
        outputs = [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, None)]
        held = [numpy_helper.from_array(a, n) for n, a in self.constants.items()]
        graph = helper.make_graph(made, "probe", infos, outputs, held)
        opset = helper.make_opsetid("", 18)
        return onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=[opset], ir_version=10))


def _row(*numbers: float, width: int = 0) -> Array:
    """Numbers along the last axis, with zeros behind them where it is to be wider."""
    return np.array([[[[*numbers, *[0.0] * (width - len(numbers))]]]], np.float32)


def _image(*numbers: float) -> Array:
    """Numbers in the first channel of 32, 8 x 8."""
    image = np.zeros((1, 32, 8, 8), np.float32)
    image[0, 0].flat[: len(numbers)] = numbers
    return image


def _one(op: str, *ins: str, **attributes: Any) -> Node:
    return op, ins, attributes


_MANY = (1000, 655, 1e4, 6e4, -1000, 683)
_SAME = np.eye(32, dtype=np.float32)[:, :, None, None]
_MASK = [_one("Sub", "one", "x"), _one("Mul", "t0", "least"), _one("Add", "z", "t1")]
_MASK_CONSTANTS = {"one": np.ones((), np.float32), "least": np.asarray(np.finfo(np.float32).min)}
_TIES = (2049, 2051, -2049, 70000, 1e10, 2**-25)


def _pair(first: Sequence[float], second: Sequence[float], width: int = 0) -> dict[str, Array]:
    return {"x": _row(*first, width=width), "z": _row(*second, width=width)}


PROBES = {
    "input, Neg": Probe([_one("Neg", "x")], {"x": _row(*_TIES)}),
    "constant, Sub 0": Probe([_one("Sub", "c", "x")], {"x": _row(*[0] * 6)}, {"c": _row(*_TIES)}),
    "Mul": Probe([_one("Mul", "x", "z")], _pair(_MANY, [100] * 5 + [3])),
    "Mul, Mul": Probe(
        [_one("Mul", "x", "z"), _one("Mul", "t0", "u")], _pair(_MANY, [100] * 5 + [3]) | {"u": _row(*[0.01] * 6)}
    ),
    "Sub": Probe([_one("Sub", "x", "z")], _pair([6e4, 2048, 2052, -6e4, 0, 1], [-3e4, -1, 1, 7e4, 7e4, 1])),
    "Add, 6 wide": Probe(
        [_one("Add", "x", "z")], _pair([6e4, 6e4, 2048, 2052, -6e4, 1e5], [3e4, 7e4, 1, -1, -3e4, 1e5])
    ),
    "Add, 16 wide": Probe(
        [_one("Add", "x", "z")], _pair([6e4, 6e4, 2048, 2052, -6e4, 3], [3e4, 7e4, 1, -1, -3e4, 1], width=16)
    ),
    "Add, 16 wide, a row": Probe(
        [_one("Add", "x", "c")],
        {"x": np.repeat(_row(6e4, 6e4, 2048, 2052, -6e4, 3, width=16), 2, 2)},
        {"c": _row(3e4, 7e4, 1, -1, -3e4, 1, width=16)},
    ),
    "Div": Probe([_one("Div", "x", "z")], _pair([1, 0, -1, 6e4, 1, 2], [0, 0, 0, 1e-3, 3, 0])),
    "Relu": Probe([_one("Relu", "x")], {"x": _row(65519, 65520, 7e4, np.inf, np.nan, -np.inf)}),
    "Abs": Probe([_one("Abs", "x")], {"x": _row(65519, 65520, -7e4, np.inf, np.nan, -np.inf)}),
    "Exp": Probe([_one("Exp", "x")], {"x": _row(5, 10, 11, 11.5, 12, 0)}),
    "Sqrt": Probe([_one("Sqrt", "x")], {"x": _row(4, 65504, 1e5, 2, 0, 1)}),
    "Conv 1x1": Probe([_one("Conv", "x", "w")], {"x": _image(*_MANY)}, {"w": _SAME * np.float32(3)}),
    "Conv 1x1, by 100": Probe([_one("Conv", "x", "w")], {"x": _image(*_MANY)}, {"w": _SAME * np.float32(100)}),
    "Conv, Conv": Probe(
        [_one("Conv", "x", "w"), _one("Conv", "t0", "v")],
        {"x": _image(655, 600, 3, -655, 1, 2)},
        {"w": _SAME * np.float32(100), "v": _SAME * np.float32(0.01)},
    ),
    "Conv depthwise": Probe(
        [_one("Conv", "x", "w", group=32, pads=[1] * 4)],
        {"x": _image(*[1e4] * 64)},
        {"w": np.ones((32, 1, 3, 3), np.float32)},
    ),
    "MatMul": Probe(
        [_one("MatMul", "x", "z")],
        {"x": np.eye(32, dtype=np.float32)[None] * np.float32(3), "z": np.repeat(_row(*_MANY, width=32)[0], 32, 1)},
    ),
    "Gemm": Probe(
        [_one("Gemm", "x", "w")],
        {"x": np.repeat(_row(*_MANY, width=32)[0, 0], 32, 0)},
        {"w": np.eye(32, dtype=np.float32) * np.float32(3)},
    ),
    "AveragePool": Probe(
        [_one("AveragePool", "x", kernel_shape=[1, 2], strides=[1, 2])],
        {"x": _image(6e4, 6e4, 1e5, 1e5, 2048, 2050, 2050, 2052)},
    ),
    "ReduceSum": Probe(
        [_one("ReduceSum", "x", "axes", keepdims=1)],
        {"x": np.array([[[[6e4] * 6, [1025, 1024] + [0] * 4]]], np.float32)},
        {"axes": np.array([3])},
    ),
    "ReduceMean": Probe(
        [_one("ReduceMean", "x", "axes", keepdims=1)],
        {"x": np.array([[[[6e4] * 4, [2048, 2050] * 2]]], np.float32)},
        {"axes": np.array([3])},
    ),
    "Cast of integers, Mul": Probe(
        [_one("Cast", "x", to=TensorProto.FLOAT), _one("Mul", "t0", "z")],
        {"x": np.array([[2049, 2051, -2049, 70000, 200000, 5]], np.int32), "z": np.ones((1, 6), np.float32)},
    ),
    "mask, Add": Probe(_MASK, {"x": _row(1, 1, 1, 0, 0, 0), "z": _row(1, 2, 3, 4, 5, 6)}, _MASK_CONSTANTS),
    "mask, Add, Softmax": Probe(
        [*_MASK, _one("Softmax", "t2", axis=-1)],
        {"x": _row(1, 1, 1, 0, 0, 0), "z": _row(1, 2, 3, 4, 5, 6)},
        _MASK_CONSTANTS,
    ),
    "all masked, Softmax": Probe(
        [*_MASK, _one("Softmax", "t2", axis=-1)], {"x": _row(*[0] * 6), "z": _row(1, 2, 3, 4, 5, 6)}, _MASK_CONSTANTS
    ),
}


def figures(names: Sequence[str] = tuple(PROBES), socs: Sequence[str] = SOCS) -> dict[str, dict[str, Array]]:
    """The first results of each probe, by the emulator for each chip ("57") and by hexforge ("hexforge 57")."""
    found: dict[str, dict[str, Array]] = {name: {} for name in names}
    with tempfile.TemporaryDirectory() as folder:
        cases = []
        for i, name in enumerate(names):
            path = Path(folder) / f"{i}.onnx"
            onnx.save(PROBES[name].model(), path)
            cases.append(vendor.Case(path, PROBES[name].inputs))
        for soc in socs:
            for name, case, theirs in zip(names, cases, vendor.run(cases, fp16=True, soc_model=soc), strict=True):
                if theirs.whole:
                    found[name][soc] = _first(next(iter(theirs.outputs.values())))
                provider = ("QNNExecutionProvider", {"backend_type": "htp", "soc_model": soc})
                session = hexforge.InferenceSession(str(case.model), providers=[provider])
                found[name][f"hexforge {soc}"] = _first(session.run(None, dict(case.feeds))[0])
    return found


def _first(results: Array) -> Array:
    return np.asarray(vector_half(results.ravel()[:SHOWN] * np.float32(1 - 2.0**-22)))


def table(found: Mapping[str, Mapping[str, Array]], socs: Sequence[str] = SOCS) -> Table:
    """A probe per line: what the architectures give, those alike together, and whether hexforge gives the same."""
    made = Table("model", "architectures", "results", "hexforge", title="Past 65504, and ties")
    for name, results in found.items():
        groups: dict[bytes, list[str]] = {}
        for soc in socs:
            groups.setdefault(results[soc].tobytes() if soc in results else b"", []).append(soc)
        for key, chips in groups.items():
            arches = " ".join(f"v{_arch(soc)}" for soc in chips)
            if not key:
                made.add_row(name, arches, "not run", "")
                continue
            same = all(np.array_equal(results[soc], results[f"hexforge {soc}"]) for soc in chips)
            made.add_row(
                name, arches, _shown(results[chips[0]]), "same" if same else _shown(results[f"hexforge {chips[0]}"])
            )
    return made


def _arch(soc: str) -> int:
    chip = find_chip(soc)
    assert chip is not None
    return chip.htp_arch


def _shown(numbers: Array) -> str:
    return " ".join(f"{number:.6g}" for number in numbers)


def main() -> int:
    """Print the table."""
    if why := vendor.missing():
        print(f"no vendor emulator: {why}", file=sys.stderr)
        return 2
    Console(width=160).print(table(figures()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
