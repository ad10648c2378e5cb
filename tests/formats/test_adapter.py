# SPDX-License-Identifier: Apache-2.0
"""Adapter files: what differs between two programs, written, read back, and believed only when whole."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hexforge.errors import FormatError
from hexforge.formats.adapter import Adapter, AdapterGraph, Change, program_changes, writer
from hexforge.formats.container import SLACK, Container, Pool, Writer

ARRAY = np.arange(40, dtype=np.int16)
leaves = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b"])
programs = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4)
)


def file(*graphs: AdapterGraph, pool: Pool | None = None) -> bytes:
    return writer("tests", "htp", graphs, pool or Pool()).to_bytes()


def base(offset: int, size: int) -> memoryview:
    return memoryview(b"base")[offset : offset + size]


@settings(max_examples=40, deadline=None)
@given(programs, programs)
def test_changes_make_one_of_the_other(old: Any, new: Any) -> None:
    found = program_changes(old, new)
    adapter = Adapter(file(AdapterGraph("g", "", 0, (), tuple(found))))
    made = adapter.patch_program(adapter.graphs[0], copy.deepcopy(old))
    old_text, new_text, made_text = (json.dumps(d, sort_keys=True) for d in (old, new, made))  # where True is not 1
    assert made_text == new_text
    assert bool(found) == (old_text != new_text)


def test_only_the_leaves_that_differ() -> None:
    old = {"stages": [{"steps": [["conv", [0], {"w": {"at": [0, 4]}, "flush": 3}]], "reads": ["x"]}], "graph": "text"}
    new = copy.deepcopy(old)
    new["stages"][0]["steps"][0][2]["w"] = {"at": [100, 4]}  # type: ignore[index]
    assert program_changes(old, new) == [Change(("stages", 0, "steps", 0, 2, "w"), {"at": [100, 4]})]
    assert program_changes(old, copy.deepcopy(old)) == []


def test_a_text_changes_line_by_line() -> None:
    old = {"graph": "first\nsecond\nthird", "name": "one\ntwo"}
    new = {"graph": "first\nother\nthird", "name": "one"}
    changes = program_changes(old, new)
    assert changes == [Change(("graph", 1), "other"), Change(("name",), "one")]
    adapter = Adapter(file(AdapterGraph("g", "", 0, (), tuple(changes))))
    assert adapter.patch_program(adapter.graphs[0], copy.deepcopy(old)) == new
    for place, value, fault in ((("graph", 3), "x", "not there"), (("graph", 1), 7, "no line")):
        hostile = Adapter(file(AdapterGraph("g", "", 0, (), (Change(place, value),))))
        with pytest.raises(FormatError, match=fault):
            hostile.patch_program(hostile.graphs[0], copy.deepcopy(old))


def test_arrays_are_the_bases_or_its_own() -> None:
    pool = Pool()
    pool.put(np.zeros(1, np.uint8))
    offset, size = pool.put(ARRAY)
    adapter = Adapter(file(AdapterGraph("g", "0f", 4, ("w",), ()), pool=pool))
    graph = adapter.graphs[0]
    assert graph == AdapterGraph("g", "0f", 4, ("w",), ())
    get = adapter.arrays(graph, base)
    assert bytes(get(1, 3)) == b"ase"
    np.testing.assert_array_equal(np.frombuffer(get(4 + offset, size), np.int16), ARRAY)
    for wrong in ((4, len(adapter.weights) - SLACK + 1), (4 + len(adapter.weights), 1), (4, -1)):
        with pytest.raises(FormatError, match="which are"):
            get(*wrong)


@pytest.mark.parametrize("place", [("a", 2), ("a", -1), ("b",), ("a", "0"), ("a", 0, "x"), (0,)])
def test_a_place_that_is_not_there(place: tuple[Any, ...]) -> None:
    adapter = Adapter(file(AdapterGraph("g", "", 0, (), (Change(place, 1),))), "it")
    with pytest.raises(FormatError, match=r"it: changes \[.*\] of a program, which is not there"):
        adapter.patch_program(adapter.graphs[0], {"a": [1, 2]})


GOOD = {"producer": "p", "backend": "htp", "graphs": [
    {"name": "g", "base": "", "base_bytes": 0, "tensors": ["w"], "changes": [[["a", 0], 1]]}]}  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [("base_bytes", -1), ("base_bytes", 1.0), ("base_bytes", True), ("name", 3), ("tensors", [1]), ("tensors", 5),
     ("changes", [1]), ("changes", [["a", 1]]), ("changes", [[[1.5], 1]]), ("changes", [[[True], 1]]), ("base", None)],
)  # fmt: skip
def test_malformed_tables(key: str, value: Any) -> None:
    data: Any = copy.deepcopy(GOOD)
    assert _opened(data).graphs[0].changes == (Change(("a", 0), 1),)
    data["graphs"][0][key] = value
    with pytest.raises(FormatError, match="the table of the adapter is malformed"):
        _opened(data)


@pytest.mark.parametrize("data", [[], {}, {"producer": "p"}, {**GOOD, "graphs": {}}, {**GOOD, "graphs": []},
                                  {**GOOD, "graphs": GOOD["graphs"] * 2}, {**GOOD, "backend": 1}])  # type: ignore[operator]  # fmt: skip
def test_malformed_files(data: Any) -> None:
    with pytest.raises(FormatError):
        _opened(data)


def _opened(data: Any) -> Adapter:
    made = Writer()
    made.add_json("adapter", "", data)
    made.add("weights", "", bytes(SLACK))
    return Adapter(made.to_bytes())


def test_every_byte_is_covered_or_padding() -> None:
    pool = Pool()
    pool.put(ARRAY)
    whole = file(AdapterGraph("g", "0f", 4, ("w",), (Change(("a",), {"at": [4, 80]}),)), pool=pool)
    sections = Container(whole).sections
    covered = [*range(64), *range(len(whole) - 40, len(whole))]
    covered += [b for s in sections for b in range(s.offset, s.offset + min(s.bytes, 200))]
    for at in covered:
        data = bytearray(whole)
        data[at] ^= 1 << at % 8
        with pytest.raises(FormatError):
            Adapter(bytes(data))
    for size in (0, 10, 64, 4096, len(whole) - 1):
        with pytest.raises(FormatError):
            Adapter(whole[:size])
    start = next(s.offset for s in sections if s.kind == "weights")
    data = bytearray(whole)
    data[start] ^= 1
    assert Adapter(bytes(data), verify=False).graphs[0].name == "g"  # skip_validation_on_binary_section
