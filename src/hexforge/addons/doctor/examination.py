# SPDX-License-Identifier: Apache-2.0
"""Examination: what the doctor says of a folder, an archive, a log, a device or this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hexforge.addons.diagnosis.reading import explain_text
from hexforge.addons.doctor.answers import DEVICE, MACHINE, ask_device, ask_machine
from hexforge.addons.doctor.symptoms import DoctorReport, Symptom
from hexforge.chips.soc import Soc
from hexforge.errors import CallError

LOGS = (".log", ".txt", ".logcat")
LARGEST_LOG = 64 << 20
"""Bytes of a log that are read."""


def examine_path(path: Path, chip: Soc | None = None) -> DoctorReport:
    """A folder, an archive or a log."""
    if not path.exists():
        raise CallError(f"{path}: there is no such file or folder")
    if path.is_file() and path.suffix.lower() in LOGS:
        with path.open("rb") as file:
            return examine_log(path.name, file.read(LARGEST_LOG).decode("utf-8", "replace"))
    from hexforge.addons.doctor.checks import examine
    from hexforge.addons.doctor.facts import facts_of
    from hexforge.addons.doctor.place import open_place

    facts = facts_of(open_place(path), chip)
    looked = [f"{len(facts.place.entries):,} files", f"{len(facts.libraries)} libraries", f"{len(facts.models)} models"]
    looked += ["its manifest"] if facts.manifest is not None else []
    looked += (
        [f"packages: {', '.join(sorted({f'{p.name} {p.version}' for p in facts.packages}))}"] if facts.packages else []
    )
    looked += [f"for {chip.name} (v{chip.htp_arch})"] if chip is not None else []
    return DoctorReport(facts.place.name, facts.place.kind, tuple(looked), tuple(examine(facts)))


def examine_log(name: str, text: str) -> DoctorReport:
    """A log: what in it stopped the session, the first cause first."""
    explanation = explain_text(text)
    first = explanation.first_cause
    causes = explanation.of("cause", "code") if first is None or first.kind != "consequence" else (first,)
    ordered = sorted(causes, key=lambda finding: finding is not first)
    found = tuple(
        Symptom(
            cause.id or (cause.codes[0].name if cause.codes else cause.text),
            "fault",
            f"line {cause.line}: {cause.happened}",
            " ".join(cause.would_work),
            (cause.sources or ("",))[0],
        )
        for cause in ordered
    )
    return DoctorReport(name, "log", (f"{explanation.lines:,} lines",), found)


def examine_device(serial: str, shell: Callable[[str], str]) -> DoctorReport:
    """A running device, asked by its shell."""
    answers = ask_device(shell)
    findings = [finding for question in DEVICE for finding in question.symptoms(answers)]
    said = [f"chip {answers['chip']}"] if answers.get("chip") else []
    return DoctorReport(
        serial, "device", (*said, *(name for name, answer in answers.items() if answer)), tuple(findings)
    )


def examine_machine() -> DoctorReport:
    """This machine."""
    answers = ask_machine()
    findings = [finding for question in MACHINE for finding in question.symptoms(answers)]
    looked = (f"{name} {answer}" for name, answer in answers.items() if answer)
    return DoctorReport("this machine", "machine", tuple(looked), tuple(findings))


def findings_of_folder(folder: Path) -> list[dict[str, str]]:
    """What would stop the session of a folder that is shipped, as its manifest keeps it."""
    return [finding.to_json() for finding in examine_path(folder).findings]
