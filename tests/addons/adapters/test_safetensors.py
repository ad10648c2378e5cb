# SPDX-License-Identifier: Apache-2.0
"""Safetensors and npz files of adapter weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 - so that numpy knows bfloat16
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.addons.adapters.safetensors import read_arrays
from hexforge.errors import CallError, FormatError
from hexforge.ir import Array

NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64", "int8": "I8"}


def written(path: Path, arrays: dict[str, Array], **changed: Any) -> Path:
    """A file by the format's description."""
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, array in arrays.items():
        data = array.tobytes()
        table[name] = {
            "dtype": NAMES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(data)],
            **changed,
        }
        body += data
    header = json.dumps(table).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + body)
    return path


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(sorted(NAMES)), max_size=4), st.integers(0, 9))
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, dtypes: list[str], seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = {f"t{i}": (rng.random(rng.integers(0, 4, i)) * 99).astype(np.dtype(d)) for i, d in enumerate(dtypes)}
    found = read_arrays(written(tmp_path_factory.mktemp("s") / "a.safetensors", arrays))
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize(
    "changed",
    [{"dtype": "F8"}, {"dtype": 1}, {"shape": [3]}, {"shape": 4}, {"shape": [-2, -1]}, {"shape": [1 << 60, 0]},
     {"data_offsets": [0, 16]}, {"data_offsets": [8, 0]}, {"data_offsets": [-8, 0]}, {"data_offsets": "ab"},
     {"shape": [True, 2]}],
)  # fmt: skip
def test_malformed_rows(tmp_path: Path, changed: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="tensor 't'"):
        read_arrays(written(tmp_path / "a", {"t": np.zeros(2, np.float32)}, **changed))


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", (1 << 62).to_bytes(8, "little"), b"\2\0\0\0\0\0\0\0[]", b"\2\0\0\0\0\0\0\0{{", b"PK\3\4not a zip"],
)  # fmt: skip
def test_other_files(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a"
    path.write_bytes(data)
    with pytest.raises(FormatError):
        read_arrays(path)
    with pytest.raises(CallError, match="no such file"):
        read_arrays(tmp_path / "none")


def test_npz_without_objects(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, a=np.arange(3), b=np.zeros((2, 2), np.float16))
    assert {n: a.shape for n, a in read_arrays(path).items()} == {"a": (3,), "b": (2, 2)}
    np.savez(path, a=np.array([object()]))
    with pytest.raises(FormatError, match="Python objects"):
        read_arrays(path)
