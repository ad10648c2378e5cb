# SPDX-License-Identifier: Apache-2.0
"""The features of the QNN HTP guide, each with the tests that show it: what `python -m docs.generate` writes into
docs/htp_features.md.

The list is docs/htp_features.csv. A test says which feature it shows by a marker, which is read from its source:

    @pytest.mark.feature("Weight sharing", guide="131-137")

The door that it goes through is that of its folder, or what the marker says: `door="tools"`.
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FEATURES = Path(__file__).with_name("htp_features.csv")
FEATURES_PAGE = Path(__file__).with_name("htp_features.md")


PYTHON, TOOLS, C = DOORS = ("Python", "tools", "C")
"""How a feature is reached: hexforge's Python API, commands and QNN's tools, QNN's C API."""
FOLDERS = {"addons/capi": C, "addons/tools": TOOLS, "cli": TOOLS}
"""The folders of tests that go through another door than Python."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A row of the table: its lines of the page, why it cannot be known where it cannot, and what of it is open."""

    part: str
    name: str
    lines: str
    unknown: str
    open: str
    no_python: str
    no_tools: str
    no_c: str
    """Why the feature is not reached through a door, where that is so."""

    @property
    def closed(self) -> dict[str, str]:
        """By door, why the feature is not reached through it."""
        return dict(zip(DOORS, (self.no_python, self.no_tools, self.no_c), strict=True))


@dataclass(frozen=True, slots=True)
class Marked:
    """A test that shows a feature: `tests/….py::name`, the lines of the page that its marker gives, and its door."""

    test: str
    feature: str
    lines: str
    door: str


def features() -> list[Feature]:
    """Every row of the list, in the order of the page's reading."""
    with FEATURES.open(encoding="utf-8", newline="") as file:
        return [Feature(*row) for row in csv.reader(file)][1:]


def marked_tests(folder: Path = ROOT / "tests") -> list[Marked]:
    """Tests with a marker `feature`, by reading their source; a module's `pytestmark` counts for the module."""
    return [marked for path in sorted(folder.rglob("test_*.py")) for marked in _of_module(path)]


def missing() -> list[str]:
    """Features that have neither a test nor a reason why they cannot be known."""
    shown = {marked.feature for marked in marked_tests()}
    return [row.name for row in features() if row.name not in shown and not row.unknown]


def left_open() -> list[str]:
    """Features of which a part does not work yet."""
    return [row.name for row in features() if row.open]


def line_numbers(lines: str) -> set[int]:
    """The lines that `9-13, 20` names."""
    numbers: set[int] = set()
    for span in lines.split(","):
        first, _, last = span.strip().partition("-")
        numbers |= set(range(int(first), int(last or first) + 1))
    return numbers


def features_page() -> str:
    """The table of features: lines of the page, tests by door, and whether it works or why that cannot be known."""
    rows, marked = features(), marked_tests()
    tests = {row.name: [one.test for one in marked if one.feature == row.name] for row in rows}
    works = sum(bool(tests[row.name]) and not row.open for row in rows)
    partly = sum(bool(tests[row.name] and row.open) for row in rows)
    unknown = sum(bool(row.unknown) and not tests[row.name] for row in rows)
    cells = {(row.name, door): _door_cell(row, door, marked) for row in rows for door in DOORS}
    by_door = [
        f"{door}: {sum(cells[row.name, door].startswith('works') for row in rows)} work, "
        f"{sum(cells[row.name, door] == NO_TEST for row in rows)} have no test"
        for door in DOORS
    ]
    parts = [
        "# Features of the HTP backend\n",
        "What the QNN HTP guide documents (Qualcomm's page on the HTP backend of AI Engine Direct; numbers are its\n"
        "lines), and the tests here that show each. Written by `make docs` out of `docs/htp_features.csv` and the\n"
        "tests' markers `feature`; edit those, not this page.\n",
        f"{len(rows)} features: {works} work, {partly} partly, {unknown} cannot be known, "
        f"{len(rows) - works - partly - unknown} have no marked test yet. A door works where a test goes through it: "
        f"{'; '.join(by_door)}.\n",
    ]
    for part in dict.fromkeys(row.part for row in rows):
        parts += [f"## {part}\n", f"| feature | lines of the guide | {' | '.join(DOORS)} | state |", "|---" * 6 + "|"]
        for row in rows:
            if row.part == part:
                shown = bool(tests[row.name])
                state = f"partly: {row.open}" if row.open else "works" if shown else row.unknown or "**no test yet**"
                through = " | ".join(cells[row.name, door] for door in DOORS)
                parts.append(f"| {row.name} | {row.lines} | {through} | {state} |")
        parts.append("")
    return "\n".join(parts)


NO_TEST = "no test"


def _door_cell(row: Feature, door: str, marked: list[Marked]) -> str:
    """Whether a feature works through a door, with the tests that go through it; else why it does not go through it."""
    tests = [f"`{one.test}`" for one in marked if (one.feature, one.door) == (row.name, door)]
    return f"works: {', '.join(tests)}" if tests else row.closed[door] or NO_TEST


def _of_module(path: Path) -> Iterator[Marked]:
    text = path.read_text(encoding="utf-8")
    if "mark.feature" not in text:
        return
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    module = ast.parse(text)
    for statement in module.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "pytestmark":
            given = statement.value.elts if isinstance(statement.value, (ast.List, ast.Tuple)) else [statement.value]
            yield from _marked(name, given)
    for node in ast.walk(module):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from _marked(f"{name}::{node.name}", node.decorator_list)


def _marked(test: str, marks: list[ast.expr]) -> Iterator[Marked]:
    for mark in marks:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.feature":
            words = {word.arg: ast.literal_eval(word.value) for word in mark.keywords}
            folder = next((door for name, door in FOLDERS.items() if f"tests/{name}/" in f"{test}"), PYTHON)
            door = words.get("door", folder)
            if not words.get("guide") or len(mark.args) != 1 or door not in DOORS:
                raise ValueError(f'{test}: write @pytest.mark.feature(name, guide="LINES"), with door one of {DOORS}')
            yield Marked(test, ast.literal_eval(mark.args[0]), words["guide"], door)
