# SPDX-License-Identifier: Apache-2.0
"""The reader of .pte files: what it finds, and what it says of damaged and foreign ones."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.addons.executorch.formats.pte import (
    DelegateCall,
    Dynamism,
    FreeCall,
    IntList,
    JumpFalseCall,
    KernelCall,
    MoveCall,
    TensorValue,
    read_pte,
)
from hexforge.addons.executorch.formats.qnn_options import read_options
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.file_kinds import kind_of
from hexforge.formats.flatbuffer import Flatbuffer, FlatTable
from tests.addons.executorch.pte_files import Ints, Plan, Tensor, pte

WEIGHT = np.arange(6, dtype=np.float32).reshape(2, 3)
PLAN = Plan(
    [
        Tensor(np.float32, (2, 3), dynamism=1),
        Tensor(np.float32, (2, 3), WEIGHT),
        Tensor(np.int64, (4,), memory=(1, 64)),
        7,
        True,
        0.5,
        "text",
        None,
        Ints((3, 3)),
    ],
    [0],
    [2],
    [("kernel", 0, [0, 1, 2, 2]), ("delegate", 0, [0, 2]), ("move", 0, 2), ("jump", 4, 4), ("free", 2, None)],
    operators=["aten::add.out"],
    delegates=[("QnnBackend", b"blob")],
    specs={"qnn_compile_spec": b"spec"},
)


def test_everything_is_read() -> None:
    (plan,) = read_pte(pte(PLAN)).plans
    assert (plan.name, plan.inputs, plan.outputs, plan.memory_bytes) == ("forward", (0,), (2,), (0, 4096))
    assert plan.values[3:8] == (7, True, 0.5, "text", None)
    assert plan.values[8] == IntList((3, 3))
    first, weight, planned = plan.values[:3]
    assert isinstance(first, TensorValue)
    assert isinstance(weight, TensorValue)
    assert isinstance(planned, TensorValue)
    assert (first.dynamism, first.sizes, first.data) == (Dynamism.BOUND, (2, 3), None)
    assert weight.is_constant
    assert weight.data is not None
    assert bytes(weight.data) == WEIGHT.tobytes()
    assert planned.allocation is not None
    assert planned.allocation.offset == 64
    assert plan.instructions == (
        KernelCall("aten::add.out", (0, 1, 2, 2)), DelegateCall(0, (0, 2)), MoveCall(0, 2), JumpFalseCall(4, 4),
        FreeCall(2),
    )  # fmt: skip
    (delegate,) = plan.delegates
    assert (delegate.id, bytes(delegate.data), bytes(delegate.specs["qnn_compile_spec"])) == (
        "QnnBackend",
        b"blob",
        b"spec",
    )


def test_a_file_is_mapped(tmp_path: Path) -> None:
    path = tmp_path / "model.pte"
    path.write_bytes(pte(PLAN))
    assert kind_of(path).name == "an ExecuTorch program (.pte)"
    assert read_pte(path).plan("forward").operators == ("aten::add.out",)
    with pytest.raises(CallError, match="no such file"):
        read_pte(tmp_path / "none.pte")
    with pytest.raises(CallError, match="has no method 'other'; it has forward"):
        read_pte(path).plan("other")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not an ExecuTorch program"),
        (b"\x08\x00\x00\x00ONNX" + bytes(64), "is not an ExecuTorch program"),
        (pte(PLAN, magic=b"ET11"), "is of version 'ET11', this hexforge reads 'ET12'"),
        (pte(PLAN, version=3), "is of schema version 3"),
        (pte(PLAN)[:30], "ends within the header"),
        (pte(PLAN)[:300], "is cut short or damaged"),
        (pte(PLAN)[:-1], "is cut short: it has"),
        (bytes(4) + b"BP08" + bytes(64), "is a bundled program"),
        (bytes(4) + b"FT01" + bytes(64), "holds tensors of a program"),
        (pte(), "has 0 methods"),
        (pte(PLAN, PLAN), "has 2 methods"),
        (pte(Plan([1], [4], [0], [])), "refers to value 4 of 1"),
        (pte(Plan([1], [0], [0], [("kernel", 2, [0])])), "refers to operator 2 of 0"),
        (pte(Plan([1], [0], [0], [("delegate", 0, [0])])), "refers to delegate 0 of 0"),
        (pte(Plan([1], [0], [0], [("jump", 0, 9)])), "refers to instruction 9 of 2"),
        (pte(Plan([Ints((1,)), "x"], [0], [0], [])), "has a list whose item 1 is no int"),
        (pte(Plan([Tensor(np.float32, (2000,), memory=(1, 0))], [0], [0], [])), "outside the memory planned for it"),
        (pte(Plan([Tensor(np.float32, (-1,))], [0], [0], [])), "has a tensor of sizes"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value[:30],
)
def test_what_is_wrong_is_said(data: bytes, said: str) -> None:
    with pytest.raises(FormatError, match=said.replace("(", r"\(")):
        read_pte(data, "model.pte")


WHOLE = pte(PLAN)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=12), st.integers(0, len(WHOLE))
)
def test_no_damage_is_a_fault(changes: list[tuple[int, int]], size: int) -> None:
    """Any bytes are read, or refused with an error of ours."""
    data = bytearray(WHOLE)
    for at, byte in changes:
        data[at] = byte
    for candidate in (bytes(data), bytes(data[:size])):
        with contextlib.suppress(HexforgeError):
            read_pte(candidate)


def test_a_small_file_cannot_describe_a_huge_tree() -> None:
    """Tables whose vector names the next table many times over: what is read of it is counted."""
    levels, fan = 8, 16
    data = bytearray(struct.pack("<IHHHH", 12, 6, 8, 4, 0))  # the root's offset; a vtable: field 0 at byte 4 of 8
    for level in range(levels):
        table = len(data)
        data += struct.pack("<iI", table - 4, 4)
        data += struct.pack("<I", fan if level < levels - 1 else 0)
        end = table + 12 + 4 * fan
        data += b"".join(struct.pack("<I", end - (table + 12 + 4 * i)) for i in range(fan))

    def count(table: FlatTable) -> int:
        return 1 + sum(count(below) for below in table.tables(0))

    with pytest.raises(FormatError, match="again and again"):
        count(Flatbuffer(memoryview(bytes(data)), "file").root())


def test_a_compile_spec_that_is_none() -> None:
    with pytest.raises(FormatError, match="too few"):
        read_options(b"1234", "model.pte")
    with pytest.raises(FormatError):
        read_options(bytes(range(64)), "model.pte")


@settings(max_examples=200, deadline=None)
@given(st.binary(min_size=8, max_size=256))
def test_any_bytes_as_a_compile_spec(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        read_options(data, "model.pte")


def test_tables_that_point_outside() -> None:
    with pytest.raises(FormatError, match="points outside"):
        Flatbuffer(memoryview(struct.pack("<I", 1000)), "file").root()
