# SPDX-License-Identifier: Apache-2.0
"""The recipe grammar: what is said is what is read, and every fault is named at once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.errors import CallError, FormatError
from hexforge.ir import DType, TensorType
from hexforge.ir.fixed_point import quantize
from hexforge.quant.decide.ranges import weight_encoding
from hexforge.quant.decide.recipe_reading import IMPROVEMENTS, METHODS, check_method, recipe, restricted


@pytest.mark.parametrize(
    ("text", "activation", "weight", "per_channel", "block"),
    [
        ("w8a8", DType.UINT8, DType.INT8, False, 0),
        ("w8a16", DType.UINT16, DType.INT8, False, 0),
        ("w16a16", DType.UINT16, DType.INT16, False, 0),
        ("w4a16", DType.UINT16, DType.INT4, True, 0),
        ("w4a16_block", DType.UINT16, DType.INT4, True, 32),
        ("w4a16_block[64]", DType.UINT16, DType.INT4, True, 64),
        ("w8a8_channel", DType.UINT8, DType.INT8, True, 0),
        ("W8A8", DType.UINT8, DType.INT8, False, 0),
        ("fp16", None, DType.INT8, False, 0),
    ],
)
def test_precisions(text: str, activation: DType | None, weight: DType, per_channel: bool, block: int) -> None:
    found = recipe(text)
    assert (found.activation, found.weight, found.per_channel, found.block) == (activation, weight, per_channel, block)


@settings(max_examples=40)
@given(
    st.sampled_from(["w8a8", "w8a16", "w16a16", "w4a16_block[16]"]),
    st.lists(st.sampled_from(IMPROVEMENTS), unique=True, max_size=3),
    st.sampled_from([*METHODS, "percentile=99.5", None]),
)
def test_words_after_the_precision(precision: str, improve: list[str], method: str | None) -> None:
    found = recipe("+".join([precision, *improve, *([method] if method else [])]))
    assert found.improve == tuple(improve)
    assert found.method == (method or "minmax")


def test_exceptions_apply_in_order() -> None:
    found = recipe("w8a8; MatMul=w8a16; /encoder/*=w4a16_channel; /encoder/last=float; tensor:logits=a16")
    assert found.at_node("MatMul", "/decoder/q").activation is DType.UINT16
    assert found.at_node("Conv", "/decoder/q").activation is DType.UINT8
    assert found.at_node("Conv", "/encoder/q").weight is DType.INT4
    assert found.at_node("Conv", "/encoder/q").per_channel
    assert found.at_node("MatMul", "/encoder/last").activation is None
    assert found.explicit("MatMul", "x")
    assert not found.explicit("Conv", "x")
    said = found.at_tensor("logits")
    assert said is not None
    assert said.activation is DType.UINT16
    assert found.at_tensor("x") is None


def test_names_that_are_op_types_need_a_prefix() -> None:
    assert recipe("w8a8; node:MatMul=a16").rules[0].kind == "node"
    assert recipe("w8a8; MatMul=a16").rules[0].kind == "op"
    assert recipe("w8a8; conv1=a16").rules[0].kind == "node"


def test_every_fault_at_once() -> None:
    with pytest.raises(CallError) as caught:
        recipe("w9a8_chanel+percentil; MatMul; tensr:x=a16; x=w8b8; y=a12")
    said = str(caught.value)
    for part in ("not 9", "did you mean '_channel'?", "did you mean 'percentile'?", "'MatMul': an exception",
                 "'tensor'?", "did you mean 'w8a8'?", "8 or 16 bits, not 12"):  # fmt: skip
        assert part in said, part


@pytest.mark.parametrize("text", ["", "w8", "a16", "w8a8+percentile=20", "w8a8+minmax=3", "w8a8; =a16",
                                  "w4a16_block[0]", "w16a16_block[8]", "w16a8"])  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(CallError, match="recipe"):
        recipe(text)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text(
        """
        recipe: w8a8_channel
        method: percentile=99.9
        weight_method: mse
        improve: [equalize, bias]
        ops: {MatMul: w8a16, Softmax: a16}
        nodes: {"/head/*": float}
        tensors:
          logits: a16
          mask: {type: a16, min: -1, max: 0.5, symmetric: true, method: mse}
        """
    )
    found = recipe(path)
    assert (found.name, found.method, found.weight_method, found.improve) == (
        "mix.yaml", "percentile=99.9", "mse", ("equalize", "bias"),
    )  # fmt: skip
    assert [str(rule) for rule in found.rules] == [
        "op:MatMul", "op:Softmax", "node:/head/*", "tensor:logits", "tensor:mask",
    ]  # fmt: skip
    mask = found.at_tensor("mask")
    assert mask is not None
    assert (mask.low, mask.high, mask.symmetric, mask.method) == (-1.0, 0.5, True, "mse")
    other = tmp_path / "mix.json"
    other.write_text('{"recipe": "w8a16", "tensors": {"x": "w4"}}')
    assert recipe(str(other)).rules[0].weight is DType.INT4


def test_faults_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text(
        "recipee: w8a8\nmethod: histogram\nops: {Matmul: w8a16}\ntensors: {x: {mni: 1}, y: {min: 2, max: 1}}"
    )
    with pytest.raises(CallError) as caught:
        recipe(path)
    said = str(caught.value)
    for part in ("did you mean 'recipe'?", "'histogram' is no method", "did you mean 'MatMul'?", "did you mean 'min'?",
                 "min 2 is not below max 1"):  # fmt: skip
        assert part in said, part


@pytest.mark.parametrize("text", ["a: [", "- 1", "[1, 2]", "recipe: \0", "recipe: !!timestamp now", "recipe: !!bool x"])
def test_files_that_are_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mix.yaml"
    path.write_text(text)
    with pytest.raises((CallError, FormatError), match=r"mix\.yaml"):
        recipe(path)
    with pytest.raises(CallError, match="there is no such file"):
        recipe(tmp_path / "none.yaml")


_TEXTS = st.tuples(
    st.sampled_from(["w8a8", "w8a16_channel", "w4a16", "w4a16_tensor", "w4a16_block[64]", "w16a16", "fp16"]),
    st.lists(st.sampled_from(["percentile=99.9", "weight=mse", "equalize", "bias"]), unique=True),
    st.lists(
        st.sampled_from(["MatMul=w8a16", "/a/*=float", "/a/*=w4", "node:b=a16", "Conv=w8a8_channel", "tensor:t=a8",
                         "tensor:x=a16", "b=w8a16_tensor"])
    ),
).map(lambda parts: "; ".join(["+".join([parts[0], *parts[1]]), *parts[2]]))  # fmt: skip
_TENSORS = st.dictionaries(
    st.sampled_from("xyz"),
    st.sampled_from([{"type": "a16", "min": -1, "max": 2}, {"symmetric": True}, {"method": "mse"}, "a8"]),
)


@settings(max_examples=40)
@given(_TEXTS, _TENSORS)
def test_what_is_written_is_what_is_read(text: str, tensors: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "r.json"
        path.write_text(json.dumps({"recipe": text, "tensors": tensors}))
        first = recipe(path)
        path.write_text(json.dumps(first.to_mapping()))
        again = recipe(path)
    assert replace(again, rules=()) == replace(first, rules=())
    for name in (*"abtxyz", "/a/b"):
        assert again.at_tensor(name) == first.at_tensor(name)
        for op in ("MatMul", "Conv", "Relu"):
            assert again.at_node(op, name) == first.at_node(op, name)


def test_methods_by_themselves() -> None:
    assert check_method("percentile=99.9") == "percentile=99.9"
    with pytest.raises(CallError, match="did you mean 'entropy'"):
        check_method("entrpy")


@pytest.mark.feature("A16W16", guide="2694")
def test_the_integers_of_weights_can_be_restricted() -> None:
    chosen = restricted(recipe("w16a16"), "-0x8000 0x7F7F")
    assert chosen.weight_steps == (-0x8000, 0x7F7F)
    assert recipe(chosen.to_mapping()["recipe"]).weight_steps == chosen.weight_steps
    for text, said in (
        ("-0x8000 0x7FFF", "within -0x8000 0x7f7f"),
        ("0x1 0x2", "around 0"),
        ("-0x80", "not two hexadecimal numbers"),
        ("low high", "not two hexadecimal numbers"),
    ):
        with pytest.raises(CallError, match=f"restrict_quantization_steps: .*{said}"):
            restricted(recipe("w16a16"), text)
    weights = np.linspace(-1, 1, 101, dtype=np.float32)
    for steps in ((-0x80, 0x7F), (-0x40, 0x3F)):
        encoding = weight_encoding(weights, DType.INT8, steps=steps)
        integers = quantize(weights, TensorType(DType.INT8, weights.shape, encoding))
        assert (integers.min(), integers.max()) == (-steps[1], steps[1])
