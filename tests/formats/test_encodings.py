# SPDX-License-Identifier: Apache-2.0
"""AIMET encodings files, all versions: a round trip keeps every encoding, and damage is named."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.errors import CallError, FormatError
from hexforge.formats.encodings import dump, parse
from hexforge.ir import AxisScaleOffset, Block, BlockwiseExpansion, DType, Encoding, ScaleOffset

Fixed = tuple[DType, Encoding]

scales = st.floats(1e-6, 1e3, allow_subnormal=False)


@st.composite
def activations(draw: st.DrawFn) -> Fixed:
    dtype = draw(st.sampled_from([DType.UINT8, DType.UINT16]))
    return dtype, ScaleOffset(draw(scales), -draw(st.integers(0, dtype.range[1])))


@st.composite
def parameters(draw: st.DrawFn) -> Fixed:
    dtype = draw(st.sampled_from([DType.INT4, DType.INT8, DType.INT16]))
    if draw(st.booleans()):
        return dtype, ScaleOffset(draw(scales))
    found = draw(st.lists(scales, min_size=2, max_size=5))
    return dtype, AxisScaleOffset(1, tuple(found), (0,) * len(found))


@settings(max_examples=40)
@given(
    st.dictionaries(st.text(min_size=1), activations(), max_size=4),
    st.dictionaries(st.text(min_size=1).map(lambda s: f"w{s}"), parameters(), max_size=4),
    st.sampled_from(["0.6.1", "1.0.0", "2.0.0"]),
)
def test_round_trip(acts: dict[str, Fixed], params: dict[str, Fixed], version: str) -> None:
    acts = {f"a{name}": fixed for name, fixed in acts.items() if not _is_symmetric(fixed)}
    found = parse(dump(acts, params, version=version), axes=dict.fromkeys(params, 1))
    assert found == {**acts, **params}


def _is_symmetric(fixed: Fixed) -> bool:
    dtype, encoding = fixed
    return isinstance(encoding, ScaleOffset) and encoding.offset == -(1 << dtype.bits - 1)


def test_blocks_of_version_2() -> None:
    lpbq = BlockwiseExpansion(1, 0, (0.5, 0.25), (0, 0), (1, 16, 3, 4, 5, 6), 4, 4)
    conv = BlockwiseExpansion(0, 1, (0.5, 0.25), (0, 0), (1, 16, 3, 4), 4, 4)
    block = Block((1, 4), (0.5, 0.25, 1.0, 2.0), (0, 0, 0, 1))
    params: dict[str, Fixed | None] = {
        "w": (DType.INT4, lpbq), "c": (DType.INT4, conv), "v": (DType.INT8, block), "float": None,
    }  # fmt: skip
    shapes = {"w": (96, 2), "c": (2, 8, 1, 1), "v": (2, 8)}
    text = dump({}, params, shapes, "2.0.0")
    entries = {entry["name"]: entry for entry in json.loads(text)["encodings"]}
    assert entries["w"] == {
        "name": "w", "output_dtype": "int4", "per_block_int_scale": [[1, 4], [16, 5], [3, 6]],
        "per_channel_float_scale": [[0.5, 0.25]], "axis": 0, "block_size": 32,
    }  # fmt: skip
    assert entries["v"]["y_zero_point"] == [[0, 0], [0, -1]]
    assert parse(text, {"w": 1, "c": 0, "v": 0}, shapes) == params


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"output_dtype": "int9", "y_scale": 1}, "4, 8, 16 and 32 bits"),
        ({"output_dtype": "byte"}, "int8, uint16 and the like"),
        ({"output_dtype": "int8", "y_scale": [1, [2]]}, "no even lists"),
        ({"output_dtype": "int8", "y_scale": [1, 2]}, "no axis that they run along"),
        ({"output_dtype": "int8", "y_scale": [1, 2], "axis": 4}, "no axis 4"),
        ({"output_dtype": "uint8", "y_scale": 1, "y_zero_point": 300}, "outside 0..255"),
        ({"output_dtype": "uint8", "y_scale": -1}, "scales are positive"),
        ({"output_dtype": "int4", "per_block_int_scale": [1], "per_channel_float_scale": [1], "axis": 0}, "blocks"),
        ({"output_dtype": "int8", "y_scale": [[1]], "axis": 0, "block_size": "x"}, "positive number"),
        ({"output_dtype": "int8"}, "y_scale"),
    ],
)
def test_damaged_entries_of_version_2(entry: dict[str, Any], words: str) -> None:
    text = json.dumps({"version": "2.0.0", "encodings": [{"name": "w", **entry}]}).encode()
    with pytest.raises(FormatError, match=words):
        parse(text, shapes={"w": (2, 2)})


def test_signed_activations_of_version_2_are_unsigned_here() -> None:
    text = b'{"version": "2.0.0", "encodings": [{"name": "x", "output_dtype": "int8", "y_scale": 0.5}]}'
    assert parse(text) == {"x": (DType.UINT8, ScaleOffset(0.5, -128))}


def test_symmetric_activations_stay_unsigned() -> None:
    given = {"x": (DType.UINT8, ScaleOffset(0.5, -128))}
    assert parse(dump(given, {})) == given


def test_blocks() -> None:
    lpbq = BlockwiseExpansion(1, 0, (0.5, 0.25), (0, 0), (1, 16, 3, 4), 4, 4)
    block = Block((1, 4), (0.5, 0.25, 1.0, 2.0), (0, 0, 0, 0))
    params: dict[str, Fixed | None] = {"w": (DType.INT4, lpbq), "v": (DType.INT8, block), "float": None}
    text = dump({}, params, {"w": (64, 2), "v": (2, 8)})
    records = {r["name"]: r for r in json.loads(text)["param_encodings"]}
    assert (records["w"]["block_size"], records["w"]["compressed_bw"], records["w"]["bw"]) == (32, 4, 8)
    assert parse(text, {"w": 1, "v": 0}, {"v": (2, 8)}) == params
    with pytest.raises(CallError, match=r"0\.6\.1"):
        dump({}, params, version="0.6.1")
    with pytest.raises(CallError, match="shape"):
        dump({}, params)


def test_as_published() -> None:
    """The shape of the files that AIMET writes: 0.6.1 with min and max, 1.0.0 with records."""
    old: dict[str, Any] = {
        "version": "0.6.1",
        "activation_encodings": {
            "in": [{"bitwidth": 8, "dtype": "int", "is_symmetric": "False", "max": 2.0, "min": -0.55, "offset": -55,
                    "scale": 0.01}],
            "half": [{"bitwidth": 16, "dtype": "float"}],
        },
        "param_encodings": {
            "w": [{"bitwidth": 8, "dtype": "int", "is_symmetric": "True", "max": 1.27, "min": -1.28}],
        },
    }  # fmt: skip
    found = parse(json.dumps(old).encode())
    assert found["in"] == (DType.UINT8, ScaleOffset(0.01, -55))
    assert found["half"] is None
    weight = found["w"]
    assert weight is not None
    assert weight[0] is DType.INT8
    assert isinstance(weight[1], ScaleOffset)
    assert (round(weight[1].scale, 9), weight[1].offset) == (0.01, 0)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"bw": 3}, "bw is 3"),
        ({"scale": [0.0]}, "positive"),
        ({"scale": ["x"]}, "not a number"),
        ({"scale": [1e999]}, "not a number"),
        ({"offset": [3]}, "offset outside"),
        ({"offset": [1, 2]}, "differs from scale"),
        ({"enc_type": "PER_WORD"}, "PER_WORD"),
        ({"dtype": "COMPLEX"}, "COMPLEX"),
        ({"enc_type": "LPBQ", "compressed_bw": 4, "block_size": 0}, "block_size"),
        ({"enc_type": "LPBQ", "compressed_bw": 4, "block_size": 8, "per_block_int_scale": [0]}, "1 to 256"),
        ({"is_sym": True, "offset": [-3]}, "symmetric"),
    ],
)
def test_faults_are_named(record: dict[str, Any], said: str) -> None:
    good = {
        "name": "w",
        "bw": 8,
        "dtype": "INT",
        "enc_type": "PER_TENSOR",
        "is_sym": False,
        "scale": [0.1],
        "offset": [0],
    }
    text = json.dumps({"version": "1.0.0", "activation_encodings": [], "param_encodings": [good, {**good, **record}]})
    with pytest.raises(FormatError, match=said) as caught:
        parse(text.encode(), where="file.json")
    assert "file.json" in str(caught.value)
    assert "'w'" in str(caught.value)


KEYS = st.sampled_from(["activation_encodings", "param_encodings", "name", "bw", "scale"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
TREES = st.recursive(LEAVES, lambda v: st.lists(v, max_size=3) | st.dictionaries(KEYS, v, max_size=3), max_leaves=8)


@settings(max_examples=40)
@given(st.binary(max_size=60) | TREES.map(lambda v: json.dumps(v).encode()))
def test_any_bytes_give_an_error_or_encodings(text: bytes) -> None:
    try:
        found = parse(text)
    except FormatError:
        return
    assert isinstance(found, dict)
