# SPDX-License-Identifier: Apache-2.0
"""Validated: every fault of somebody else's data with its place and what would work, and nothing taken for another."""

from __future__ import annotations

import enum
import json
import math
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from hexforge.errors import CallError, FormatError
from hexforge.formats.json_text import read_yaml
from hexforge.formats.validated import MOST_FAULTS, ByName, OneOrMore, Within, validated, validated_json


class Color(enum.Enum):
    RED = 1
    GREEN = 2


@dataclass(frozen=True, slots=True)
class Graph:
    name: str
    us: Annotated[float, Within(0, 1e15)] = 1000.0
    tasks: Annotated[int, Within(1, 64)] = 1


@dataclass(frozen=True, slots=True)
class Plan:
    graphs: Annotated[tuple[Graph, ...], Within(1)]
    color: Annotated[Color, ByName()] = Color.RED
    chips: Annotated[tuple[str, ...], OneOrMore()] = ()
    latency: float | dict[str, float] | None = None
    kind: Literal["slow", "fast"] = "slow"
    flag: bool = False
    files: dict[int, str] = field(default_factory=dict)
    share: Annotated[float, Within(0, above=True)] = 1.0


def test_a_record_is_made_by_its_types() -> None:
    data = {"graphs": [{"name": "g", "us": 2}], "color": "GREEN", "chips": "SM8650", "files": {"1": "a"}}
    plan = validated(Plan, {**data, "latency": {"SM8650": 3}}, "plan")
    assert plan.graphs == (Graph("g", 2.0),)
    assert (plan.color, plan.chips, plan.latency) == (Color.GREEN, ("SM8650",), {"SM8650": 3.0})
    assert plan.files == {1: "a"}
    assert validated_json(Plan, json.dumps(data).encode(), "plan").chips == ("SM8650",)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"graphs": []}, "plan: graphs is []: expected a list of at least 1"),
        ({"graphs": [{"name": 1}]}, "plan: graphs[0].name is 1: expected a text"),
        ({"graphs": [{}]}, "plan: graphs[0].name: is missing"),
        ({"graphs": [{"name": "g", "task": 2}]}, "plan: graphs[0].task: unknown key; did you mean 'tasks'?"),
        ({"graphs": [{"name": "g", "zz": 2}]}, "plan: graphs[0].zz: unknown key; there are name, us, tasks"),
        (
            {"graphs": [{"name": "g", "tasks": 0}]},
            "plan: graphs[0].tasks is 0: expected a whole number of at least 1 and at most 64",
        ),
        (
            {"graphs": [{"name": "g", "tasks": True}]},
            "plan: graphs[0].tasks is True: expected a whole number of at least 1 and at most 64",
        ),
        (
            {"graphs": [{"name": "g", "tasks": "3"}]},
            "plan: graphs[0].tasks is '3': expected a whole number of at least 1 and at most 64",
        ),
        (
            {"graphs": [{"name": "g", "us": math.nan}]},
            "plan: graphs[0].us is nan: expected a number of at least 0 and at most 1e+15",
        ),
        ({"color": "GREN"}, "plan: color is 'GREN': expected 'RED' or 'GREEN'; did you mean 'GREEN'?"),
        ({"kind": "quick"}, "plan: kind is 'quick': expected 'slow' or 'fast'"),
        ({"latency": "x"}, "plan: latency is 'x': expected a number or an object"),
        ({"latency": {"SM8650": "x"}}, "plan: latency.SM8650 is 'x': expected a number"),
        ({"flag": 1}, "plan: flag is 1: expected true or false"),
        ({"files": {"one": "a"}}, "plan: files.one is 'one': expected a whole number"),
        ({"share": 0}, "plan: share is 0: expected a number above 0"),
    ],
)
def test_a_fault_says_where_what_and_what_would_work(change: dict[str, Any], says: str) -> None:
    with pytest.raises(CallError) as caught:
        validated(Plan, {"graphs": [{"name": "g"}], **change}, "plan")
    assert says in str(caught.value).splitlines()


def test_all_faults_are_said_at_once_and_their_number_is_bounded() -> None:
    with pytest.raises(CallError) as caught:
        validated(Plan, {"graphs": [{"name": 1} for _ in range(1000)]}, "plan")
    lines = str(caught.value).splitlines()
    assert len(lines) == MOST_FAULTS + 1
    assert lines[-1] == f"plan: and {1000 - MOST_FAULTS} more"


def test_what_a_message_shows_is_bounded() -> None:
    with pytest.raises(CallError) as caught:
        validated(Plan, {"graphs": [{"name": list(range(100_000))}]}, "plan")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("data", [[], "text", 3, None])
def test_data_that_are_no_object_are_another_file(data: Any) -> None:
    with pytest.raises(FormatError, match="expected an object with graphs, color, chips"):
        validated(Plan, data, "plan")


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff", b"[" * 100_000, b'{"graphs": ' * 5000])
def test_bytes_that_are_no_json_are_said(raw: bytes) -> None:
    with pytest.raises(FormatError, match=r"plan: "):
        validated_json(Plan, raw, "plan", FormatError)


def test_what_no_json_can_hold_is_said() -> None:
    with pytest.raises(CallError, match="plan: holds what no JSON does"):
        validated(Plan, {"graphs": [{"name": "\ud800"}]}, "plan")


def test_declaring_a_record_loads_no_pydantic() -> None:
    code = "import sys, hexforge.addons.budgets.limits; print('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.split() == [b"False"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "is no YAML"),
        ("a: 2024-99-99", "is no YAML"),
        ("[" * 5000, "is no YAML"),
        ("a: !!python/object:os.system x", "is no YAML"),
        ("&a [*a]", "aliases make more than"),
        ("\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'x'] * 10)}]" for i in range(12)), "aliases make"),
    ],
)
def test_yaml_that_cannot_be_read_is_said(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(FormatError, match=says):
        read_yaml(path)
