# SPDX-License-Identifier: Apache-2.0
"""Files of a profile: trace, analysis summary, schema, Netron's graph, log and text, by the names of QNN's tools."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hexforge.addons.profiler import log
from hexforge.addons.profiler.chrometrace import ViewerFeatures, chrometrace
from hexforge.addons.profiler.profile_text import average, average_reports
from hexforge.addons.profiler.qhas import qhas_page
from hexforge.addons.profiler.record import LEVELS, Profile
from hexforge.addons.profiler.summary import schema, summary
from hexforge.addons.profiler.topology import topology
from hexforge.addons.tuning.advice.result import Advice
from hexforge.formats.files import file_names, file_stem

SUMMARY = "qnn_htp_analysis_summary"
SCHEMA = "qhas_schema.json"
LOG, TRACE, TEXT = "qnn-profiling-data_0.log", "chrometrace.json", "profile.txt"


def viewer_files(
    profile: Profile,
    output: Path,
    features: ViewerFeatures,
    *,
    advice: Sequence[Advice] = (),
    advised: bool = False,
    before: Profile | None = None,
    summary_by_output: bool = False,
) -> list[tuple[Path, bytes]]:
    """What is written for a trace that goes to `output`, beside it; a name that ends in .gz compresses it.

    The summary as JSON is called as the model; with `summary_by_output` there is one called as the trace, too.
    """
    packed = features.gzip or output.suffix == ".gz"
    plain = output.with_suffix("") if output.suffix == ".gz" else output
    stem, folder = plain.with_suffix("").name, output.parent
    trace = _json(chrometrace(profile, features))
    files = [(plain.with_name(f"{plain.name}.gz"), gzip.compress(trace, mtime=0)) if packed else (plain, trace)]
    several, stems = len(profile.graphs) > 1, file_names(graph.name for graph in profile.graphs)
    for graph in profile.graphs:
        mark = f"_{stems[graph.name]}" if several else ""
        page = qhas_page(profile, graph=graph, advice=advice, advised=advised, before=before)
        files.append((folder / f"{stem}{mark}_{SUMMARY}.html", page.encode("utf-8", "replace")))
        if features.qhas_json:
            data = _json(summary(profile, graph))
            called = dict.fromkeys([file_stem(profile.model), *[stem] * summary_by_output])
            files += [(folder / f"{name}{mark}_{SUMMARY}.json", data) for name in called]
        if features.htp_json and graph.ops:
            files.append((folder / f"{stem}{mark}_htp.json", _json(topology(graph, average(graph)))))
    if features.qhas_schema:
        files.append((folder / SCHEMA, _json(schema())))
    return files


def profile_files(
    profile: Profile,
    folder: Path,
    features: ViewerFeatures,
    *,
    advice: Sequence[Advice] = (),
    advised: bool = False,
    before: Profile | None = None,
) -> list[tuple[Path, bytes]]:
    """All files of a profile in one folder: those of the viewer, the log, the report as text, schematics."""
    text = "\n".join(map(str, average_reports(profile)))
    files: list[tuple[Path, bytes]] = [(folder / LOG, log.to_bytes(profile)), (folder / TEXT, text.encode())]
    if profile.level == LEVELS[-1]:
        stems = file_names(graph.name for graph in profile.graphs)
        for graph in profile.graphs:
            schematic = Profile(profile.model, profile.level, profile.source, (log.without_runs(graph),))
            files.append((folder / f"{stems[graph.name]}_schematic.bin", log.to_bytes(schematic)))
    trace = folder / TRACE
    return files + viewer_files(profile, trace, features, advice=advice, advised=advised, before=before)


def _json(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":"), allow_nan=False).encode()
