# SPDX-License-Identifier: Apache-2.0
"""`qnn-profile-viewer`: a profiling log as text, as a trace, as an analysis summary, by the reader that is named."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hexforge.addons.tools.flags import ToolFlags, Version
from hexforge.cli.say import say
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.files import write_together
from hexforge.formats.json_text import read_json
from hexforge.options import did_you_mean
from hexforge.request_fields import option

if TYPE_CHECKING:
    from hexforge.addons.profiler.record import Profile

RAW, AVERAGE, OPTRACE = "QnnHtpProfilingReader", "QnnChrometraceProfilingReader", "QnnHtpOptraceProfilingReader"
READERS = (RAW, AVERAGE, OPTRACE)
_UNPUBLISHED = "Refused: what it writes is published nowhere."
_LIBRARY = re.compile(r"(?:lib)?(\w+?)(?:\.so(?:\.\d+)*|\.dll|\.dylib)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewerFlags(ToolFlags):
    """What qnn-profile-viewer is called with."""

    input_log: str = option("", "Profiling logs, separated by commas.")
    reader: str = option("", "libQnnHtpProfilingReader.so, …Chrometrace… or …HtpOptrace…; else averages.")
    schematic: str = option("", "The graph's <graph>_schematic.bin.")
    config: Path | None = option(None, 'JSON: {"features": {"gzip": true, …}}.')
    output: Path | None = option(None, "The trace to write; .gz compresses it.")
    dlc: Path | None = option(None, "Where ops come from: a model, context, recording or qnn_op_trace.json.")
    zoom_start: str = option("", "Only from this node on, by either name.")
    zoom_end: str = option("", "Only up to this node, by either name.")
    gzip: bool = option(False, "Compress the trace.")
    extract_opaque_objects: bool = option(False, _UNPUBLISHED)
    standardized_json_output: bool = option(False, _UNPUBLISHED)


def run(flags: ViewerFlags, version: Version = False) -> None:
    """Show what a profiling log holds: as text, and where --output is given as a trace and a summary beside it."""
    from hexforge.addons.profiler.chrometrace import ViewerFeatures
    from hexforge.addons.profiler.profile_files import viewer_files
    from hexforge.addons.profiler.profile_text import average_reports, reports
    from hexforge.addons.profiler.recording.zoom import zoom_profile

    for flag, given in (
        ("extract_opaque_objects", flags.extract_opaque_objects),
        ("standardized_json_output", flags.standardized_json_output),
    ):
        if given:
            raise UnsupportedError(
                f"--{flag}: what it writes is published nowhere; leave it out, --output writes a trace"
            )
    if not flags.input_log:
        raise CallError("--input_log is missing; it is a qnn-profiling-data log")
    chosen = reader_of(flags.reader)
    features = ViewerFeatures()
    if flags.config is not None:
        features = ViewerFeatures.parse(read_json(flags.config), str(flags.config))
    features = replace(features, gzip=features.gzip or flags.gzip)
    profile = read_logs(flags.input_log)
    if flags.schematic:
        profile = with_schematic(profile, flags.schematic)
    if flags.dlc is not None:
        profile = with_sources(profile, flags.dlc)
    if chosen == OPTRACE:
        _require_trace(profile, flags.input_log, flags.output)
    elif flags.zoom_start or flags.zoom_end:
        raise CallError(f"--zoom_start and --zoom_end are for {OPTRACE}; name it with --reader")
    profile = zoom_profile(profile, flags.zoom_start, flags.zoom_end)
    if chosen != OPTRACE:
        for report in reports(profile) if chosen == RAW else average_reports(profile):
            say(report, nl=False)
    output = flags.output
    if output is None:
        return
    if chosen == RAW:
        raise CallError(f"{RAW} prints text; for a trace name {AVERAGE} or {OPTRACE}")
    if not output.parent.is_dir():
        raise CallError(f"--output {output}: there is no folder {output.parent}")
    files = viewer_files(profile, output, features, summary_by_output=True)  # where ExecuTorch's QnnTool looks for it
    if chosen != OPTRACE:  # the summary is of single activities, which only optrace has
        files = files[:1]
    write_together(files)
    for path, _ in files:
        say(path, err=True)


def _require_trace(profile: Profile, input_log: str, output: Path | None) -> None:
    """CallError where there is nothing to make a trace of, or nowhere to write it."""
    if not profile.has_activities:
        raise CallError(
            f"{input_log}: is of level {profile.level}, and {OPTRACE} reads optrace; "
            "profile with --profiling_level detailed --profiling_option optrace"
        )
    if output is None:
        raise CallError(f"{OPTRACE} writes a trace; say where with --output")


def reader_of(library: str) -> str:
    """The reader that a library's name selects; none: averages."""
    if not library:
        return AVERAGE
    name = re.split(r"[\\/]", library)[-1]
    match = _LIBRARY.fullmatch(name)
    if match is None or match[1] not in READERS:
        known = [f"lib{reader}.so" for reader in READERS]
        raise CallError(
            f"--reader {library}: no reader has that name; expected {', '.join(known)}{did_you_mean(name, known)}"
        )
    return match[1]


def read_logs(texts: str) -> Profile:
    """One or more logs as one profile: their runs follow each other."""
    from hexforge.addons.profiler import log

    each = [log.read(Path(text)) for text in texts.split(",")]
    first = each[0]
    for path, other in zip(texts.split(",")[1:], each[1:], strict=True):
        if (other.level, other.source) != (first.level, first.source):
            raise CallError(f"{path}: is of another level than the first log; view them one at a time")
        first = replace(first, graphs=(*first.graphs, *other.graphs))
    if not any(graph.runs for graph in first.graphs):
        raise CallError(f"{texts}: has no runs in it; is it a schematic?")
    return replace(first, graphs=tuple(graph for graph in first.graphs if graph.runs))


def with_schematic(profile: Profile, texts: str) -> Profile:
    """The profile with what schematics know of its graphs; CallError where one is of another graph."""
    from hexforge.addons.profiler import log

    graphs = list(profile.graphs)
    for text in texts.split(","):
        for known in log.read(Path(text)).graphs:
            places = [i for i, g in enumerate(graphs) if [o.id for o in g.ops] == [o.id for o in known.ops]]
            places = [i for i in places if [o.name for o in graphs[i].ops] == [o.name for o in known.ops]]
            if not places:
                names = ", ".join(graph.name for graph in graphs)
                raise CallError(
                    f"--schematic {text}: is of graph {known.name!r}, the log is of {names}; they do not fit"
                )
            for i in places:
                graphs[i] = replace(graphs[i], ops=known.ops)
    return replace(profile, graphs=tuple(graphs))


def with_sources(profile: Profile, path: Path) -> Profile:
    """The profile with the model's nodes that its ops come from, by a model, a context, a recording or an op trace."""
    if not path.exists():
        raise CallError(f"--dlc {path}: there is no such file")
    return named_ops(profile, _op_trace(path) if path.suffix == ".json" else _sources_of(profile, path), path)


def _sources_of(profile: Profile, path: Path) -> dict[str, tuple[str, ...]]:
    """The nodes of the framework for each op, by the op's name, of the graphs that a file or a recording holds."""
    from hexforge.addons.profiler.record import FIRST_NODE
    from hexforge.addons.profiler.recording.graph_json import graph_ops
    from hexforge.addons.saver.recorded_graphs import read_session
    from hexforge.addons.saver.recording import Recording
    from hexforge.analysis.timed_graphs import timed_graphs
    from hexforge.chips.deployment import Deployment
    from hexforge.formats.file_kinds import open_model
    from hexforge.runtime.contexts.context import Context

    if path.is_dir():
        held = [recorded.graph for recorded in read_session(Recording(path)).graphs.values()]
    elif open_model(path).does("validate"):
        context = Context(path)
        held = [context.program(row.name).graph for row in context.graphs]
    else:
        held = list(timed_graphs(path, Deployment(profile.graphs[0].chip)).graphs)
    nodes = [op for graph in held for op in graph_ops(graph).ops if op.id >= FIRST_NODE]
    return {op.name: op.sources or (op.name,) for op in nodes if op.name}


def named_ops(profile: Profile, sources: Mapping[str, tuple[str, ...]], path: Path) -> Profile:
    """The profile with the sources of its ops by their names; CallError where none of them has such a name."""
    listed = [op.name for graph in profile.graphs for op in graph.ops]
    if listed and not any(name in sources for name in listed if name not in ("", "Input", "Output")):
        raise CallError(f"--dlc {path}: is of another model: none of its ops is one of the log's")

    def named(op: Any) -> Any:
        return replace(op, sources=sources.get(op.name, op.sources))

    return replace(profile, graphs=tuple(replace(g, ops=tuple(map(named, g.ops))) for g in profile.graphs))


def _op_trace(path: Path) -> dict[str, tuple[str, ...]]:
    """What a session's qnn_op_trace.json says of ops."""
    content = read_json(path)
    try:
        return {
            mapping["dst_name"]: tuple(str(s["name"]) for s in mapping["sources"] if s["type"] == "OP")
            for soc in content["soc_traces"]
            for graph in soc["subgraph_traces"]
            for mapping in graph["op_mappings"]
        }
    except (KeyError, TypeError) as error:
        raise FormatError(f"{path}: is no qnn_op_trace.json: {error!r}") from None
