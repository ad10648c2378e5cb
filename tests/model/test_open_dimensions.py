# SPDX-License-Identifier: Apache-2.0
"""Open dimensions: a batch becomes one, others are offered a size that suits them, inputs can be pinned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hexforge.errors import CallError
from hexforge.model.declarations import batch_of_one, fix_shapes, suggested_size, with_batch_of_one
from hexforge.model.reader import read


def model(path: Path, shape: list[int | str | None]) -> Path:
    """y = x * rate, with an input that is a single number."""
    rate = helper.make_tensor_value_info("rate", TensorProto.INT64, [])
    nodes = [helper.make_node("Cast", ["rate"], ["r"], to=1), helper.make_node("Mul", ["x", "r"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x, rate], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("shape", "dims", "shapes"),
    [
        (("batch", 3, 8, 8), {"batch": 1}, {}),
        (("unk__7", 2048), {"unk__7": 1}, {}),
        ((None, 3, 8, 8), {}, {"x": (1, 3, 8, 8)}),
        (("batch", 3, "height", "width"), {"batch": 1}, {}),
        (("seq_len", 16), {}, {}),
        (("N",), {"N": 1}, {}),
        (("length",), {}, {}),
        ((2, "batch_size", 64), {"batch_size": 1}, {}),
        ((None, None), {}, {}),
        ((1, 3), {}, {}),
        (("batch_size", "N"), {"batch_size": 1}, {}),  # a wave of N samples
        (("N", 3), {"N": 1}, {}),
    ],
)
def test_a_batch_becomes_one(shape: tuple[int | str | None, ...], dims: object, shapes: object) -> None:
    fixed = batch_of_one({"x": shape}, {}, {})
    assert (fixed.dims, fixed.shapes) == (dims, shapes)
    assert bool(fixed.note) == bool(dims or shapes)


def test_what_is_given_stays() -> None:
    assert batch_of_one({"x": ("batch", 3)}, {"batch": 4}, {}).dims == {"batch": 4}
    assert not batch_of_one({"x": ("batch", 3)}, {}, {"x": (4, 3)}).note
    both = batch_of_one({"x": ("batch", 3), "y": ("batch", 5)}, {}, {"x": (4, 3)})
    assert both.dims == {}  # the shape of x says what a batch is


@pytest.mark.parametrize(
    ("symbol", "axis", "shape", "size"),
    [
        ("batch", 0, ("batch", 3), 1), ("height", 2, (1, 3, "height", "width"), 224), (None, 1, (2, None, 128), 1),
        ("sequence", 1, ("batch", "sequence"), 128), ("audio_samples", 1, (1, "audio_samples"), 16_000),
        (None, 3, (1, 3, None, None), 224), ("N", 1, ("batch_size", "N"), 128), ("N", 1, (2, "N", 64), 1),
    ],
)  # fmt: skip
def test_sizes_that_suit(symbol: str | None, axis: int, shape: tuple[object, ...], size: int) -> None:
    assert suggested_size(symbol, axis, shape) == size


def test_a_wave_is_long() -> None:
    assert suggested_size("N", 1, ("batch_size", "N"), "waveforms") == 16_000
    assert suggested_size(None, 0, (None,), "waveforms_lens") == 128


def test_a_short_name_is_a_batch_where_it_comes_first_somewhere() -> None:
    both = {"x": ("N", 3), "state": (2, "N", 64)}
    assert batch_of_one(both, {}, {}).dims == {"N": 1}
    assert batch_of_one({"state": (2, "N", 64)}, {}, {}).dims == {}


def test_the_message_offers_them(tmp_path: Path) -> None:
    path = model(tmp_path / "m.onnx", ["batch", 3, "height", "width"])
    fixed = with_batch_of_one(path)
    with pytest.raises(CallError, match="--dim height=224 --dim width=224"):
        read(path, dims=fixed.dims).require_static()


def test_a_pinned_input_is_a_constant(tmp_path: Path) -> None:
    path, copy = model(tmp_path / "m.onnx", [1, 4]), tmp_path / "pinned.onnx"
    pinned = read(path, constants={"rate": 3})
    assert [value.name for value in pinned.inputs] == ["x"]
    assert [node.op_type for node in pinned.ir.graph] == ["Mul"]  # the Cast of a constant is folded
    fix_shapes(path, copy, constants={"rate": 3})
    onnx.checker.check_model(onnx.load(copy), full_check=True)
    import onnxruntime

    session = onnxruntime.InferenceSession(copy, providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"x": np.ones((1, 4), np.float32)})
    assert y.tolist() == [[3, 3, 3, 3]]


@pytest.mark.parametrize(
    ("constants", "words"),
    [
        ({"rat": 1}, "no input 'rat' to pin; did you mean 'rate'"),
        ({"rate": 1.5}, "input 'rate' is int64, which cannot be 1.5"),
        ({"x": [1.0, 2.0]}, r"input 'x' is \[1, 4\]; the value to pin is \[2\]"),
        ({"x": "a"}, "cannot be 'a'"),
    ],
)
def test_what_cannot_be_pinned(constants: dict[str, object], words: str, tmp_path: Path) -> None:
    with pytest.raises(CallError, match=words):
        read(model(tmp_path / "m.onnx", [1, 4]), constants=constants)


def test_fixed_sizes_that_are_given_others_are_said() -> None:
    fixed = batch_of_one({"x": (1, 3, "h", 4)}, {}, {"x": (1, 3, 8, 8)})
    assert fixed.overridden == "dimension 3 of input 'x', fixed as 4, is 8"
    assert not batch_of_one({"x": (1, 3, "h", 4)}, {}, {"x": (1, 3, 8, 4)}).overridden
