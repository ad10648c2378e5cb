# SPDX-License-Identifier: Apache-2.0
"""The support matrix says what translators write: no more, and no less."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import hexforge.ops  # noqa: F401 - fills the table
from benchmarks.conformance.cases import collect
from hexforge.errors import HexforgeError
from hexforge.frontends.onnx import written_ops
from hexforge.frontends.onnx.placing import place
from hexforge.frontends.onnx.translate.builder import AROUND
from hexforge.ir import table
from hexforge.model.reader import read
from tests import ROOT
from tests.frontends.onnx.emissions import Emissions, recorded
from tests.frontends.onnx.parts import units
from tests.frontends.onnx.single_node import f32, i64, model

HERE = Path(__file__).parent
RECORDED = (
    "group_query_attention", "group_query_windows", "data_ops", "matrix_ops", "windowed_ops", "fusions", "node_units",
)  # fmt: skip
"""Test files whose models are recorded, besides onnx's node cases."""
MS = "com.microsoft"
pytestmark = pytest.mark.timeout(1800)
"""Files of tests are run and a thousand models translated, once for all tests here: half a minute alone."""

FOLDED = {"Constant", "Range", "Shape"}
"""Op types that are constants before any unit is translated."""


@dataclass(frozen=True)
class OneNode:
    """A model of one node: its inputs in order, those of them that are constant, its outputs and attributes."""

    op: str
    given: dict[str, Any]
    outputs: dict[str, Any]
    domain: str = ""
    constants: tuple[str, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    opset: int = 21

    def proto(self) -> onnx.ModelProto:
        """The model."""
        node = helper.make_node(self.op, [*self.given], [*self.outputs], "node", domain=self.domain, **self.attributes)
        inputs = {name: a for name, a in self.given.items() if name not in self.constants}
        return model([node], inputs, {name: self.given[name] for name in self.constants}, self.outputs, self.opset)


def _bytes(*shape: int) -> np.ndarray:
    return np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)


def _qlinear(
    op: str, domain: str, x: np.ndarray, w: np.ndarray, constant: bool, out: Any, **attributes: int
) -> OneNode:
    scale, zero = np.float32(0.5), np.uint8(1)
    given = {"x": x, "xs": scale, "xz": zero, "w": w, "ws": scale, "wz": zero, "ys": np.float32(9), "yz": zero}
    constants = tuple(name for name in given if name != "x" and (constant or name != "w"))
    return OneNode(op, given, {"y": out}, domain, constants, attributes)


_CONVS: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((1, 2, 4, 4), (3, 2, 2, 2), 1),
    ((1, 2, 4, 4), (2, 1, 2, 2), 2),
    ((1, 2, 3, 3, 3), (3, 2, 2, 2, 2), 1),
]
_ROWS = {"y": (np.float32, (2, 4)), "r": (np.float32, (2, 1))}
MORE = [
    OneNode("CastLike", {"x": f32(2, 3), "like": i64(1)}, {"y": np.int64}, "", (), {"saturate": 1}),
    OneNode("Dropout", {"x": f32(2, 3)}, {"y": np.float32, "mask": np.bool_}, opset=10),
    OneNode("RandomNormalLike", {"x": f32(2, 3)}, {"y": np.float32}),
    OneNode("Inverse", {"x": f32(2, 2)}, {"y": (np.float32, (2, 2))}, MS),
    OneNode("GlobalAveragePool", {"x": f32(1, 2, 2, 2, 2, 2)}, {"y": np.float32}),
    OneNode(
        "RMSNormalization", {"x": f32(2, 3, 4), "w": f32(3, 1)}, {"y": np.float32}, attributes={"axis": 1}, opset=23
    ),
    OneNode(
        "Upsample", {"x": f32(1, 2), "s": np.array([1, 2], np.float32)}, {"y": np.float32}, constants=("s",), opset=9
    ),
    OneNode(
        "Upsample",
        {"x": f32(1, 2, 3, 4), "s": np.array([1, 1, 1.5, 1.3], np.float32)},
        {"y": np.float32},
        constants=("s",),
        attributes={"mode": "linear"},
        opset=9,
    ),
    OneNode(
        "GroupQueryAttention",
        {
            "q": f32(1, 2, 64),
            "k": f32(1, 2, 32),
            "v": f32(1, 2, 32),
            "pk": f32(1, 2, 3, 16),
            "pv": f32(1, 2, 3, 16),
            "seqlens": np.array([4], np.int32),
            "total": np.array([5], np.int32),
            "cos": f32(8, 8),
            "sin": f32(8, 8),
        },
        {
            name: (np.float32, shape)
            for name, shape in (("y", (1, 2, 64)), ("nk", (1, 2, 5, 16)), ("nv", (1, 2, 5, 16)))
        },
        MS,
        ("cos", "sin"),
        {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "softcap": 5.0, "local_window_size": 3},
    ),
    OneNode("GlobalMaxPool", {"x": f32(1, 2, 2, 2, 2, 2)}, {"y": np.float32}),
    *(
        OneNode(op, {"x": f32(2, 4), "w": f32(4)}, _ROWS, domain, ("w",))
        for op, domain in (("SimplifiedLayerNormalization", ""), ("SimplifiedLayerNormalization", MS))
    ),
    *(
        _qlinear("QLinearConv", domain, _bytes(*x), _bytes(*w), True, np.uint8, group=group)
        for domain in ("", MS)
        for x, w, group in _CONVS
    ),
    *(
        OneNode("ConvInteger", {"x": _bytes(*x), "w": _bytes(*w)}, {"y": np.int32}, "", ("w",), {"group": group})
        for x, w, group in _CONVS
    ),
    *(
        _qlinear("QLinearMatMul", MS, _bytes(2, 3), _bytes(3, 4), constant, (np.uint8, (2, 4)))
        for constant in (True, False)
    ),
    *(
        OneNode(op, {"a": f32(3), "b": f32(3, 4)}, {"y": (np.float32, (4,))}, MS, ("b",))
        for op in ("FusedMatMul", "TransposeMatMul")
    ),
    *(
        OneNode("TransposeMatMul", {"a": f32(2, 3), "b": f32(3, 4)}, {"y": (np.float32, (2, 4))}, MS, constants, scaled)
        for constants in ((), ("b",))
        for scaled in ({}, {"alpha": 0.5})
    ),
]
"""Models for what no other test has."""


@pytest.fixture(scope="module")
def emissions(tmp_path_factory: pytest.TempPathFactory) -> Emissions:
    """What translators write in onnx's node cases, in the frontend's tests and in MORE."""
    path = tmp_path_factory.mktemp("emissions") / "emissions.json"
    tests = [*(str(HERE / f"test_{name}.py") for name in RECORDED), str(ROOT / "tests" / "ort" / "test_wide_units.py")]
    plugin = ["-p", "tests.frontends.onnx.emissions", "--emissions", str(path), "--hypothesis-seed=0"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *tests]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parents[2])
    assert done.returncode == 0, done.stdout[-2000:]
    with recorded() as found:
        for case in collect():
            _try(case.model)
        for one in MORE:
            refused = _try(one.proto())
            assert not refused, f"{one.op}: {refused}"
    for name, ops in json.loads(path.read_text()).items():
        found[name] |= set(ops)
    return found


def _try(proto: Any) -> list[str | None]:
    """Translate the units of a model; why those that are refused are."""
    try:
        placements = place(units(read(proto).ir), lambda node: None)
    except HexforgeError as error:
        return [str(error)]
    return [p.reason for p in placements if not p.taken]


def _declared() -> dict[str, set[str]]:
    fused = {f"fusion {kind}": set(ops) for kind, ops in written_ops.fusions().items()}
    return {op: set(ops) for op, ops in written_ops.onnx_ops().items()} | fused


def test_everything_declared_is_a_qnn_op() -> None:
    known = {op.name for op in table()}
    assert {name for ops in _declared().values() for name in ops} <= known
    assert set(AROUND) <= known


def test_every_translator_declares_something() -> None:
    assert [op for op, ops in _declared().items() if not ops] == []


def test_nothing_is_written_that_is_not_declared(emissions: Emissions) -> None:
    declared = _declared()
    silent = {op: sorted(ops - declared[op] - set(AROUND)) for op, ops in emissions.items()}
    assert {op: names for op, names in silent.items() if names} == {}


def test_nothing_is_declared_that_is_never_written(emissions: Emissions) -> None:
    idle = {op: sorted(ops - emissions.get(op, set())) for op, ops in _declared().items() if op not in FOLDED}
    assert {op: names for op, names in idle.items() if names} == {}


def test_what_is_folded_is_never_translated(emissions: Emissions) -> None:
    assert not FOLDED & emissions.keys()
