# SPDX-License-Identifier: Apache-2.0
"""Symptoms: what would stop the NPU sessions of a place: a symptom for each thing that was found."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from hexforge.results import Column, Key, Result

Known = TypeVar("Known")
"""What a check looks at: the facts of files, or the answers of a device or machine."""


@dataclass(frozen=True, slots=True)
class Symptom(Result):
    """What was found, what to do, and the public evidence that it stops sessions."""

    id: str
    level: Literal["fault", "advice"]
    """A fault stops the session, or keeps the app out of a store; advice is worth knowing."""
    found: str
    would_work: str
    evidence: str

    described = (Column("level"), Column("id"), Column("found"), Column("would_work"), Column("evidence", leaves=1))


@dataclass(frozen=True, slots=True)
class Check(Generic[Known]):
    """A row of a table: what is looked for in what is known of a place, and what it means."""

    id: str
    level: Literal["fault", "advice"]
    looks: Callable[[Known], Iterator[str]]
    """What yields a sentence for each that it finds; its docstring says what it looks for."""
    would_work: str
    evidence: str

    def symptoms(self, known: Known) -> Iterator[Symptom]:
        """What it finds."""
        for sentence in self.looks(known):
            yield Symptom(self.id, self.level, sentence, self.would_work, self.evidence)


@dataclass(frozen=True, slots=True)
class DoctorReport(Result):
    """What the doctor says of a place."""

    place: str
    kind: str
    """folder, archive, device, log or machine."""
    examined: tuple[str, ...]
    """What was looked at, in words."""
    findings: tuple[Symptom, ...]

    described = ("place kind examined", Key("healthy", of="healthy"), "findings")

    @property
    def faults(self) -> tuple[Symptom, ...]:
        """The findings that stop a session."""
        return tuple(finding for finding in self.findings if finding.level == "fault")

    @property
    def healthy(self) -> bool:
        """Whether nothing was found that would stop a session."""
        return not self.faults
