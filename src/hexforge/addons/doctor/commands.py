# SPDX-License-Identifier: Apache-2.0
"""`hexforge doctor` and `hexforge versions`: what would stop a session, and which versions go together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hexforge.addons.doctor.symptoms import DoctorReport
from hexforge.cli.arguments import Json
from hexforge.cli.findings import FileFinding, FindingFiles
from hexforge.cli.screen import console, print_json, spinner, table
from hexforge.errors import CallError
from hexforge.request_fields import argument, option


def doctor(
    places: list[Path] | None = argument(
        "Folders, APKs, AABs, or logs (.log, .txt).", metavar="PLACE…", default=None, show_default=False
    ),
    soc: str = option(
        "", "The chip that it is for, by any name; else the phone's, else that of its contexts.", show_default=False
    ),
    device: bool = option(False, "Examine a phone behind adb, virtual or real.", "--device"),
    serial: str = option("", "Which phone.", "--serial", "-s", show_default=False),
    machine: bool = option(False, "Examine this machine.", "--machine"),
    *,
    files: FindingFiles,
    as_json: Json = False,
) -> None:
    """Say what would stop the NPU session of a folder, an app, a log, a phone or this machine, and what to do.

    Exit code 1: something would.
    """
    if not places and not device and not serial and not machine:
        raise CallError("name a folder, an APK, an AAB or a log; or give --device or --machine")
    files.check()
    with spinner("examining"):
        reports = list(_reports(places or [], soc, device or bool(serial), serial, machine))
    if as_json:
        told = [report.to_json() for report in reports]
        print_json(told[0] if len(told) == 1 else told)
    else:
        for report in reports:
            _print(console(), report)
    files.give(_findings(reports))
    if not all(report.healthy for report in reports):
        raise typer.Exit(1)


def _findings(reports: Iterable[DoctorReport]) -> Iterator[FileFinding]:
    """What the reports found, each at the place that was examined."""
    for report in reports:
        for found in report.to_json()["findings"]:
            level: Literal["error", "warning"] = "error" if found["level"] == "fault" else "warning"
            yield FileFinding(found["id"], level, f"{found['found']} {found['would_work']}", Path(report.place))


def _reports(places: list[Path], soc: str, device: bool, serial: str, machine: bool) -> list[DoctorReport]:
    from hexforge.addons.doctor.answers import DEVICE_QUESTIONS
    from hexforge.addons.doctor.examination import examine_device, examine_machine, examine_path
    from hexforge.chips.soc import find_chip, known_chip

    chip, reports = find_chip(soc), []
    if device:
        from hexforge.addons.phone.adb_device import DeviceRunError, find_device

        phone = find_device(serial)

        def shell(command: str) -> str:
            try:
                return phone.adb("shell", command, timeout_s=30.0)
            except DeviceRunError:
                return ""

        reports.append(examine_device(phone.serial, shell))
        chip = chip or known_chip(shell(DEVICE_QUESTIONS["chip"]).strip())
    if machine:
        reports.append(examine_machine())
    return [*(examine_path(path, chip) for path in places), *reports]


def _print(screen: Console, report: DoctorReport) -> None:
    screen.print(Text(f"{report.place} ({report.kind})", "bold"))
    screen.print(Padding(Text("; ".join(report.examined), "dim"), (0, 0, 0, 2)))
    for finding in report.findings:
        colour = "bold red" if finding.level == "fault" else "yellow"
        screen.print(Text.assemble((f"{finding.level} {finding.id}: ", colour), finding.found))
        facts = [f"Try: {finding.would_work}", f"See: {finding.evidence}"]
        for fact in facts:
            screen.print(Padding(Text(fact), (0, 0, 0, 2)))
    if report.healthy:
        screen.print(Text("Nothing was found that would stop the session.", "green"))


def versions(
    package: str = argument("A package, or a part of its name.", default="", show_default=False), as_json: Json = False
) -> None:
    """List which package stands on which QAIRT and onnxruntime, and what reads whose contexts."""
    from hexforge.qnn_api.releases import blob_version, releases

    rows = [row for row in releases() if package.lower() in row.package.lower()]
    if not rows:
        raise CallError(f"{package!r} is in no name of a package; without one every row is listed")
    if as_json:
        print_json([asdict(row) | {"context_blob": blob_version(row.qairt)} for row in rows])
        return
    cells = [(r.package, r.version, r.qairt or "not known", r.onnxruntime, blob_version(r.qairt)) for r in rows]
    console().print(table("", ("package", "version", "QAIRT", "onnxruntime", "context blob"), cells, whole=True))
    console().print("Libraries read contexts of their own QAIRT and, as published, of older ones; never of newer ones.")
