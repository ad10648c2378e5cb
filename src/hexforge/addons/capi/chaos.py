# SPDX-License-Identifier: Apache-2.0
"""Chaos: a program run again and again, each time with one of its calls failing by a code that QNN may give."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hexforge.addons.capi.library import lib_path
from hexforge.errors import CallError
from hexforge.qnn_api.calls import calls

NO_MEMORY, SYSTEM = 1002, 1003
"""What any call can end with, where the table of calls has no codes for it."""
EACH_CALL = 2
"""How many calls of one name are made to fail: the first ones."""
_NEVER = ("free", "getMessage", "getProviders", "Log_", "Property_")


@dataclass(frozen=True, slots=True)
class ChaosFinding:
    """A call whose failure the program does not bear."""

    call: str
    number: int
    """Of all calls of the program, from 1 on."""
    code: int
    verdict: str
    """`crash`, `hang`, `leak` or `misuse`."""
    detail: str

    def as_json(self) -> dict[str, Any]:
        """The finding as an object of JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Run:
    code: int | None
    """None where it did not end."""
    rules: Counter[str]
    calls: list[tuple[str, int]]


def chaos(program: Sequence[str], timeout_s: float = 60.0) -> Iterator[tuple[str, int, int, ChaosFinding | None]]:
    """Every failure that was tried, with what was found: the call, its number, the code."""
    plain = _run(program, timeout_s, "")
    if plain.code is None:
        raise CallError(f"{program[0]}: did not end within {timeout_s:g} s, without a failure")
    tried: Counter[str] = Counter()
    for call, number in plain.calls:
        if any(word in call for word in _NEVER) or tried[call] >= EACH_CALL:
            continue
        tried[call] += 1
        for code in _codes(call):
            ran = _run(program, timeout_s, f"{number}:{code}")
            yield call, number, code, _finding(call, number, code, plain, ran)


def _codes(call: str) -> tuple[int, ...]:
    known = {row.name: row.codes for row in calls()}
    return known.get(call) or (NO_MEMORY, SYSTEM)


def _finding(call: str, number: int, code: int, plain: _Run, ran: _Run) -> ChaosFinding | None:
    more = ran.rules - plain.rules
    if ran.code is None:
        return ChaosFinding(call, number, code, "hang", "it did not end")
    if ran.code < 0 or ran.code > 128:
        return ChaosFinding(call, number, code, "crash", f"it ended with signal {abs(ran.code) & 127}")
    if more.pop("missing-free", 0):
        return ChaosFinding(call, number, code, "leak", "handles are left that it frees otherwise")
    if more:
        return ChaosFinding(call, number, code, "misuse", ", ".join(sorted(more)))
    return None


def _run(program: Sequence[str], timeout_s: float, failing: str) -> _Run:
    with tempfile.TemporaryDirectory(prefix="hexforge-chaos-") as folder:
        findings, log = Path(folder, "findings"), Path(folder, "calls")
        paths = [str(lib_path()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        settings = {"LD_LIBRARY_PATH": os.pathsep.join(paths), "HEXFORGE_QNN_CHECK": str(findings),
                    "HEXFORGE_QNN_CALLS": str(log), "HEXFORGE_QNN_CHAOS": failing}  # fmt: skip
        try:
            ended = subprocess.run(
                [*program], env={"HEXFORGE_PYTHON": sys.executable, **os.environ, **settings}, check=False,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=timeout_s,
            )  # fmt: skip
            code: int | None = ended.returncode
        except subprocess.TimeoutExpired:
            code = None
        except OSError as error:
            raise CallError(f"{program[0]}: cannot be run: {error.strerror or error}") from None
        rows = [json.loads(line) for line in _lines(log)]
        rules = Counter(str(json.loads(line)["rule"]) for line in _lines(findings))
        return _Run(code, rules, [(str(row["call"]), int(row["number"])) for row in rows])


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
