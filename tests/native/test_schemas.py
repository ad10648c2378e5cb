# SPDX-License-Identifier: Apache-2.0
"""Every kind of step declares its tensors and attributes; what is given otherwise is refused by name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from hexforge import _native
from tests import ROOT

TABLE = {"count": 9, "table": np.zeros(256, np.uint8)}
POOL: dict[str, Any] = {
    "batch": 1, "in": (1, 3, 4), "out": (1, 2, 4), "kernel": (1, 2, 3), "stride": (1, 1, 1), "pad": (0, 0, 1),
    "pad_after": (0, 0, 1), "dilation": (1, 1, 1), "channels": 5,
}  # fmt: skip


def step(kind: str, attributes: dict[str, Any], ins: int = 1, outs: int = 1) -> None:
    program = _native.Program(0)
    tensors = [program.input_tensor(4096, _native.step_rooms().get(kind, 0)) for _ in range(ins)]
    program.step(kind, tensors, [program.output_tensor(4096) for _ in range(outs)], attributes)


def test_what_a_step_takes_is_what_it_declares() -> None:
    fields = _native.step_fields()
    assert fields["table_u8"] == {"count": "an integer", "table": "an array"}
    assert fields["pool_max_f32"]["count_pad"] == "an integer, or nothing"
    step("table_u8", TABLE)
    step("pool_max_f32", POOL)


def test_every_step_that_lowering_names_is_declared() -> None:
    named = set()
    for path in (ROOT / "src/hexforge/backends/htp/numbers/lower").rglob("*.py"):
        named |= set(re.findall(r'emit\(\s*"(\w+)"', path.read_text()))
    assert len(named) > 10
    assert named <= _native.step_fields().keys()


@pytest.mark.parametrize(
    ("kind", "attributes", "message"),
    [
        ("no_such_step", {}, "no step is named no_such_step"),
        ("table_u8", TABLE | {"scale": 1.0}, "table_u8 takes no attribute scale"),
        ("table_u8", TABLE | {"counts": 9}, "table_u8 takes no attribute counts"),
        ("table_u8", {"table": TABLE["table"]}, "table_u8 lacks count, an integer"),
        ("table_u8", {"count": 9}, "table_u8 lacks table, an array"),
        ("table_u8", TABLE | {"count": 9.0}, "table_u8 takes count as an integer"),
        ("table_u8", TABLE | {"count": TABLE["table"]}, "table_u8 takes count as an integer"),
        ("table_u8", TABLE | {"table": 3}, "table_u8 takes table as an array"),
        ("table_u8", TABLE | {"count": (9, 9)}, "table_u8 takes count with 1 values, not 2"),
        ("pool_max_f32", POOL | {"in": (3, 4)}, "pool_max_f32 takes in with 3 values, not 2"),
    ],
)
def test_another_attribute_type_or_count_is_refused(kind: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=rf"^{message}$"):
        step(kind, attributes)


@pytest.mark.parametrize(("ins", "outs"), [(0, 1), (2, 1), (1, 0), (1, 2)])
def test_another_number_of_tensors_is_refused(ins: int, outs: int) -> None:
    with pytest.raises(ValueError, match=r"^table_u8: wrong number of operands$"):
        step("table_u8", TABLE, ins, outs)
