# SPDX-License-Identifier: Apache-2.0
"""Floats past 65504 and ties, held against what the vendor's emulator was seen to give (docs/numerics.md, float16)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import hexforge
from benchmarks.accuracy.vendor_float_models import light_model
from benchmarks.accuracy.vendor_float_range import PROBES

SEEN = {
    "input, Neg": [-2050, -2052, 2050, -70016, -131008, -(2.0**-24)],
    "constant, Sub 0": [2048, 2052, -2048, 65536, 65536, 0],
    "Mul": [100032, 65504, 131008, 131008, -100032, 2050],
    "Mul, Mul": [1000.5, 655, 1310, 1310, -1000.5, 20.5],
    "Sub": [89984, 2050, 2052, -130048, -70016, 0],
    "Add, 6 wide": [89984, 130048, 2050, 2052, -89984, 131008],
    "Add, 16 wide, a row": [89984, 125568, 2050, 2052, -89984, 4],
    "Div": [65504, 0, -65504, 131008, 0.333251953125, 131008],
    "Relu": [65504, 65536, 65536, 65536, 65536, 0],
    "Abs": [65504, 65536, 70016, 131008, 131008, 131008],
    "Exp": [148.375, 22032, 59872, 98688, 131008, 1],
    "Conv 1x1": [3000, 1965, 30000, 65536, -3000, 2048],
    "Conv 1x1, by 100": [65536, 65504, 65536, 65536, -65536, 65536],
    "MatMul": [3000, 1965, 30000, 65536, -3000, 2048],
    "Gemm": [3000, 1965, 30000, 65536, -3000, 2048],
    "ReduceSum": [131008, 2050],
    "Cast of integers, Mul": [2050, 2052, -2050, 70016, 131008, 5],
    "mask, Add": [1, 2, 3, -65536, -65536, -65536],
}
"""The first results by the emulator, the same on v73, v75 and v79."""


def session(model: onnx.ModelProto, soc: str = "57", **options: str) -> hexforge.InferenceSession:
    provider = ("QNNExecutionProvider", {"backend_type": "htp", "soc_model": soc, **options})
    return hexforge.InferenceSession(model.SerializeToString(), providers=[provider])


def results(name: str, soc: str = "57", **options: str) -> list[float]:
    probe = PROBES[name]
    found: list[Any] = session(probe.model(), soc, **options).run(None, dict(probe.inputs))
    return [float(number) for number in found[0].ravel()[:6]]


@pytest.mark.parametrize("level", ["1", "3"])
@pytest.mark.parametrize("name", SEEN)
def test_as_the_emulator(name: str, level: str) -> None:
    assert results(name, htp_graph_finalization_optimization_mode=level) == SEEN[name]


def test_the_matrix_unit_adds_from_v73_on() -> None:
    """60000 + 30000 and 2048 + 1 of tensors that are 16 wide."""
    assert results("Add, 16 wide", "36")[::2] == [89984, 2050, -89984]
    for soc in ("43", "57", "69", "87"):
        assert results("Add, 16 wide", soc)[::2] == [65536, 2048, -65536]


@pytest.mark.parametrize("name", ["mask, Add, Softmax", "all masked, Softmax"])
def test_masks_give_no_nan(name: str) -> None:
    found = results(name)
    assert sum(found) == pytest.approx(1, abs=2e-3)
    assert name.startswith("all") or found[3:] == [0, 0, 0]


@pytest.mark.feature("Float32 graphs by float16 math", guide="39, 974-986")
def test_float16_tensors_are_patterns(tmp_path: Path) -> None:
    """An infinity enters as 65536, and what is past 65536 leaves as the pattern of a NaN."""
    infos = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT16, (1, 4)) for n in ("x", "z", "y")]
    nodes = [onnx.helper.make_node("Mul", ["x", "z"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", infos[:2], infos[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    x, z = np.array([[1000, 655, -1000, np.inf]], np.float16), np.array([[100, 100, 100, 0.5]], np.float16)
    found = session(model).run(None, {"x": x, "z": z})[0]
    assert found.view(np.uint16).tolist() == [[32283, 31743, 65051, 0x7800]]


def test_a_model_whose_numbers_pass_65504_has_no_nan() -> None:
    model, feeds = light_model("squeezenet")
    made = session(model)
    found = made.run(None, feeds)[0]
    np.testing.assert_allclose(found, 1e-3, rtol=2e-3)
    assert any("past 65504" in note for note in made.notes)
