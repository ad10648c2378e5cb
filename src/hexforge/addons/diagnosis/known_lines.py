# SPDX-License-Identifier: Apache-2.0
"""Known lines: what a line of a log means, by the table log_lines.yaml."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal

import yaml

from hexforge.amounts import size
from hexforge.chips.soc import find_chip

HINTS = (
    "fail|err|unable|cannot|could not|can't|mismatch|support|requires|invalid|specified|arch |loaded|initializing|"
    "magic number|switching|selected|not equal|!=|skip load|newer|memory usage|unmap|incorrect|finalized|qnn_open|"
    "returned|not set|not found|missing|not possible|not initialized|no snapdragon|domain id|status 0x|done. status|"
    "dispatch|unsupported_key|unreachable|not available|not compatible|already compiled|winml|denied|elf segment|"
    "remoteproc|adding shared|instead of|unsuccessful|is unknown|creation failure|context fault|no context id|"
    "defaulting to|forcing|did you mean|chipset|wrong value"
).split("|")
"""Words, one of which every line of the table has: a line without any need not be compared with all patterns."""
LineKind = Literal["cause", "consequence", "notice"]


@dataclass(frozen=True, slots=True)
class KnownLine:
    """A row of the table: a pattern, and what a line that has it means. Groups of it stand in the texts by name."""

    id: str
    pattern: re.Pattern[str]
    kind: LineKind
    happened: str
    why: str
    would_work: tuple[str, ...]
    sources: tuple[str, ...]
    proof: str


@functools.cache
def known_lines() -> tuple[KnownLine, ...]:
    """Every row of the table, in its order."""
    text = files(__package__).joinpath("log_lines.yaml").read_text(encoding="utf-8")
    return tuple(
        KnownLine(
            row["id"],
            re.compile(row["pattern"]),
            row["kind"],
            row["happened"],
            row.get("why", ""),
            tuple(row["would_work"]),
            tuple(row["sources"]),
            row.get("proof", ""),
        )
        for row in yaml.safe_load(text)
    )


def match_line(line: str) -> tuple[KnownLine, dict[str, str]] | None:
    """The first row whose pattern a line has, and the values of its groups."""
    lowered = line.lower()
    if not any(hint in lowered for hint in HINTS):
        return None
    for row in known_lines():
        if match := row.pattern.search(line):
            return row, {name: value for name, value in match.groupdict().items() if value is not None}
    return None


def filled(text: str, values: Mapping[str, str]) -> str:
    """A text of the table with the values of a line in it."""
    return text.format_map(_Values(values))


def bytes_of(values: Mapping[str, str], name: str) -> int | None:
    """The bytes that a line gives as NAME_kb or NAME_bytes, decimal or hexadecimal."""
    for unit, factor in (("kb", 1024), ("bytes", 1)):
        if given := values.get(f"{name}_{unit}"):
            return int(given, 0) * factor
    return None


class _Values(dict[str, Any]):
    """Values of a line, and what follows from them: sizes, the chip of a number, the parts that fit a limit."""

    def __missing__(self, name: str) -> str:
        if name == "chip":
            chip = find_chip(self["soc"])
            return f"{chip.name}, SoC {self['soc']}" if chip else f"SoC {self['soc']}"
        if name == "parts":
            need, limit = bytes_of(self, "need"), bytes_of(self, "limit")
            return str(math.ceil(need / limit)) if need and limit else "two"
        if name.endswith("_size") and (count := bytes_of(self, name.removesuffix("_size"))) is not None:
            return size(count)
        return "…"
