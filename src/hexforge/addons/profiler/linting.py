# SPDX-License-Identifier: Apache-2.0
"""The text of an execution's profile as qnn-profile-viewer prints it: basic, detailed and linting, read and written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from hexforge.errors import FormatError

AVERAGE = "Average"
CRITICAL = "Accelerator (critical path execute) time (cycles)"
CYCLES = "Accelerator (execute) time (cycles)"
RPC, ACCELERATOR = "RPC (execute) time", "QNN accelerator (execute) time"
YIELDS = "Num times yield occured"  # as QNN spells it
VTCM, POWER = "Time for initial VTCM acquire", "Time for HVX + HMX power on and acquire"
_TITLE = re.compile(r"Execute Stats \((.+)\):")
_NETRUN = re.compile(r"NetRun:\s+(\d+) us")
_BACKEND = re.compile(r"Backend \((.+)\): (\d+)\s+(us|count|cycles)")
_OP = re.compile(r"(.*?OpId_\d+) \(cycles\): (\d+)\s+cycles")
_ENTRY = re.compile(r"(Wait \(Scheduler\)|Overlap|Overlap \(wait\)) time: (\d+)\s+cycles")
_RESOURCES = re.compile(r"Resources:\s*((?:\w+(?:, )?)*)")


@dataclass(frozen=True, slots=True)
class LintedOp:
    """An op's lines in the report."""

    label: str
    cycles: int
    wait: int | None = None
    """None where the report is detailed and not linting, as are all fields that follow."""
    overlap: int | None = None
    beside: tuple[str, ...] = ()
    overlap_wait: int | None = None
    beside_wait: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ExecutionReport:
    """An execution as text has it."""

    title: str
    """Average, or which run it is."""
    netrun_us: int
    backend: tuple[tuple[str, int, str], ...]
    """Figures of the backend: name, value, unit."""
    ops: tuple[LintedOp, ...] = ()

    def figure(self, name: str) -> int | None:
        """A figure of the backend by its name."""
        return next((value for figure_name, value, _ in self.backend if figure_name == name), None)

    def __str__(self) -> str:
        return "\n".join(_lines(self)) + "\n"


def _lines(report: ExecutionReport) -> Iterator[str]:
    title = f"Execute Stats ({report.title}):"
    yield from (title, "-" * len(title), "Total Inference Time:", "-" * 21, f"   NetRun:  {report.netrun_us} us")
    for name, value, unit in report.backend:
        yield f"   Backend ({name}): {value}  {unit}"
    for op in report.ops:
        yield f"      {op.label} (cycles): {op.cycles}  cycles"
        if op.wait is None:
            continue
        yield f"            Wait (Scheduler) time: {op.wait}  cycles"
        yield f"            Overlap time: {op.overlap}  cycles"
        yield from (f"               {name}" for name in op.beside)
        yield f"            Overlap (wait) time: {op.overlap_wait}  cycles"
        yield from (f"               {name}" for name in op.beside_wait)
        yield f"            Resources: {', '.join(op.resources)}".rstrip()


def parse(text: str, where: str = "report") -> ExecutionReport:
    """The report of a text; FormatError naming the line that is none of its lines."""
    reports = parse_all(text, where)
    if len(reports) != 1:
        raise FormatError(f"{where}: has {len(reports)} reports where one is expected")
    return reports[0]


def parse_all(text: str, where: str = "report") -> list[ExecutionReport]:
    """Every report in a text; other lines may only come before the first."""
    reports: list[ExecutionReport] = []
    lines = [(n, line.strip()) for n, line in enumerate(text.splitlines(), 1) if line.strip()]
    starts = [k for k, (_, line) in enumerate(lines) if _TITLE.fullmatch(line)]
    for start, end in pairwise([*starts, len(lines)]):
        reports.append(_report(lines[start:end], where))
    return reports


def _report(lines: Sequence[tuple[int, str]], where: str) -> ExecutionReport:
    title = _TITLE.fullmatch(lines[0][1])
    assert title is not None
    netrun: int | None = None
    backend: list[tuple[str, int, str]] = []
    ops: list[LintedOp] = []
    fields: dict[str, int] = {}
    names: dict[str, list[str]] = {}
    label, entry, resources = "", "", None

    def close() -> None:
        if not label:
            return
        linted = entry != ""
        if linted and (resources is None or fields.keys() != {"cycles", *_FIELDS.values()}):
            raise FormatError(f"{where}: {label}: its wait, overlaps or resources are missing")
        ops.append(
            LintedOp(
                label, fields["cycles"], fields.get("wait"), fields.get("overlap"), tuple(names.get("overlap", ())),
                fields.get("overlap_wait"), tuple(names.get("overlap_wait", ())), resources or (),
            )
        )  # fmt: skip

    for number, line in lines[1:]:
        if line == "Total Inference Time:" or not line.strip("-"):
            continue
        if match := _NETRUN.fullmatch(line):
            netrun = int(match[1])
        elif match := _BACKEND.fullmatch(line):
            backend.append((match[1], int(match[2]), match[3]))
        elif match := _OP.fullmatch(line):
            close()
            label, entry, resources = match[1], "", None
            fields, names = {"cycles": int(match[2])}, {}
        elif label and (match := _ENTRY.fullmatch(line)):
            entry = _FIELDS[match[1]]
            fields[entry] = int(match[2])
        elif label and entry and (match := _RESOURCES.fullmatch(line)):
            resources = tuple(match[1].split(", ")) if match[1] else ()
        elif label and entry in ("overlap", "overlap_wait") and resources is None and "OpId_" in line:
            names.setdefault(entry, []).append(line)
        else:
            raise FormatError(f"{where}: line {number} is no line of a report: {line[:80]!r}")
    close()
    if netrun is None:
        raise FormatError(f"{where}: has no NetRun line")
    return ExecutionReport(title[1], netrun, tuple(backend), tuple(ops))


_FIELDS = {"Wait (Scheduler)": "wait", "Overlap": "overlap", "Overlap (wait)": "overlap_wait"}
