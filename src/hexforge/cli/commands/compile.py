# SPDX-License-Identifier: Apache-2.0
"""`hexforge compile`: models into one context file, for one chip or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from hexforge.chips.graph_config import BEST_LEVEL, LEVEL, THREADS, VTCM, GraphConfig, vtcm_text
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.cli.arguments import BackendName, InputArguments, Json, pairs
from hexforge.cli.request_options import GivenOptions
from hexforge.cli.screen import bar, console, print_json, table
from hexforge.errors import CallError
from hexforge.request_fields import argument, option, required
from hexforge.rules import by_reason, some_of

if TYPE_CHECKING:
    from hexforge.backend import Backend, GraphSettings
    from hexforge.formats.backend_extensions import Config
    from hexforge.runtime.contexts.compile import Compiled
    from hexforge.runtime.contexts.request import ContextRequest

_FIXED = ("name", "arena_bytes", "spill_fill_bytes", "vtcm_bytes")
_HEADINGS = {LEVEL: "level", THREADS: "HVX threads", VTCM: "VTCM budget"}


@dataclass(frozen=True, slots=True)
class CompileArguments:
    """What the context file is to hold."""

    graph_name: list[str] | None = option(None, "Name of the graph, one for each model; else the file's.")
    quantized_io: bool = option(False, "Inputs and outputs of the graphs are integers, as QDQ nodes say.")
    allow_partial: bool = option(False, "Leave refused nodes to the CPU: several graphs of one model.")
    updatable: list[str] | None = option(
        None, "Constants that LoRA adapters may change (`hexforge lora`).", metavar="PATTERN"
    )
    share: bool | None = option(None, "Store common weights once (v73 and newer, one VTCM size).", "--share/--no-share")

    def request(self, names: Sequence[str], file: Config, settings: Sequence[GraphSettings]) -> ContextRequest:
        """The request for graphs of these names; the config file says what the command line does not."""
        from hexforge.runtime.contexts.request import ContextRequest

        share = self.share
        if share is None:
            share = len(names) > 1 and file.htp.context.weight_sharing_enabled
        return ContextRequest(
            weight_sharing=share,
            quantized_io=self.quantized_io,
            allow_partial=self.allow_partial,
            updatable=tuple(self.updatable or ()),
            graph_names=tuple(names),
            settings=settings,
        )


def compile(
    models: list[Path] = argument("The ONNX files.", show_default=False),
    output: Path = required("The context file to write.", "--output", "-o", dir_okay=False),
    backend: BackendName = "htp",
    soc: list[str] | None = option(None, f"Chip by name or device ({DEFAULT_SOC}); again for more in one file."),
    config_file: Path | None = option(
        None, "Config file of QNN's tools; flags here win.", "--config-file", "--config_file"
    ),
    *,
    graph: Annotated[GivenOptions, GraphConfig],
    context: CompileArguments,
    option: list[str] | None = option(None, "A provider option.", metavar="KEY=VALUE"),
    inputs: InputArguments,
    wrap: bool = option(False, "Also write an ONNX model around each graph."),
    as_json: Json = False,
) -> None:
    """Compile models into one context file; nothing is run. A node the backend refuses is an error.

    Unless the command line or the config file says otherwise, a graph has 4 HVX threads and 4 MB of VTCM, and is
    prepared at level 3.
    """
    from hexforge.runtime.contexts.compile import compile as compiled
    from hexforge.runtime.contexts.request import names_of
    from hexforge.runtime.contexts.wrap import wrap as wrapped
    from hexforge.runtime.tool_config import graph_settings

    names = names_of(models, context.graph_name)
    options = pairs(option, "--option")
    if config_file is not None and options.setdefault("backend_extensions", str(config_file)) != str(config_file):
        raise CallError("the config file is given twice: as --config-file and in the option backend_extensions")
    chosen = _backend(backend, soc, options, graph, names)
    file = _config_file(options)
    request = context.request(names, file, [graph_settings(file.graph(name), graph) for name in names])
    fixed = [inputs.request(model) for model in models]
    with bar(f"compiling {', '.join(m.name for m in models)}") as progress:
        result = compiled(
            models, output, chosen, request, dims=[one.dims or {} for one in fixed],
            shapes=[one.shapes or {} for one in fixed], constants=[one.constants or {} for one in fixed],
            progress=progress,
        )  # fmt: skip
    facts = _facts(result, output, wrapped(output, quantized_io=False) if wrap else [])
    if as_json:
        print_json(facts)
    else:
        _print(facts)


def _config_file(options: Mapping[str, str]) -> Config:
    """The config file among the options; what of it will do nothing is logged."""
    from hexforge.cli.arguments import read_config
    from hexforge.formats.config_sections import GENERATOR

    path = options.get("backend_extensions")
    return read_config(Path(path) if path else None, GENERATOR)


def _backend(
    name: str, soc: Sequence[str] | None, options: Mapping[str, str], given: GivenOptions, graphs: Sequence[str]
) -> Backend:
    """The backend that the command line names, for every chip that it lists."""
    from hexforge.backend import ContextBackend
    from hexforge.ort.options.backend import settings_for
    from hexforge.ort.options.provider_options import ProviderOptions
    from hexforge.runtime import registry

    parsed = ProviderOptions.parse({"backend_type": name, **options})
    settings, own = settings_for(parsed, graphs), parsed.settings()
    flags = {}
    for row in GraphConfig.table():
        if row.name in given and not (row.config_file and row.config_file.per_graph):
            text = flags[row.key] = row.write(given[row.name])
            if own.get(row.key, text) != text:
                said = f"{row.command_line} {text} and the option {row.key}={own[row.key]}"
                raise CallError(f"{said} contradict each other")
    if not isinstance(registry.backend(name), ContextBackend):
        if soc:
            raise CallError(f"the {name} backend runs on no chip; leave --soc out, or use the htp backend")
        return registry.backend(name, {**settings, **flags})
    if soc and "soc_model" in own:
        raise CallError("the chip is given twice: as --soc and in the option soc_model; leave one out")
    if soc:
        settings["soc_model"] = ",".join(soc)
    elif "htp_arch" not in settings:
        settings.setdefault("soc_model", DEFAULT_SOC)
    return registry.backend(name, {**GraphConfig(optimization=BEST_LEVEL).pairs(), **settings, **flags})


def _facts(compiled: Compiled, output: Path, wrappers: list[Path]) -> dict[str, Any]:
    from hexforge.backend import ContextBackend
    from hexforge.runtime import registry

    info = compiled.info
    made = registry.backend(info.backend, info.options)
    prepares = made if isinstance(made, ContextBackend) else None
    blobs = {g.name: {} if prepares is None else prepares.blob_info(g.settings, 0) for g in info.graphs}
    return {
        "file": str(output),
        "bytes": compiled.nbytes,
        "backend": compiled.info.backend,
        "socs": [t.name or t.label for t in compiled.info.targets],
        "weight_sharing": compiled.info.weight_sharing,
        "weights_bytes": compiled.weights_bytes,
        "stored_weights_bytes": compiled.stored_bytes,
        "saved_bytes": compiled.saved_bytes,
        "graphs": [
            {
                "name": g.name,
                "arena_bytes": g.arena_bytes,
                "spill_fill_bytes": g.spill_fill_bytes,
                "vtcm_bytes": blobs[g.name].get("vtcmSizeInBytes", 0),
                **g.settings,
            }
            for g in compiled.info.graphs
        ],
        "left_to_cpu": [
            {"model": left.model, "node": row.node, "op": row.op_type, "reason": row.reason}
            for left in compiled.left_on_cpu
            for row in left.rows
        ],
        "wrappers": [str(path) for path in wrappers],
    }


def _print(facts: dict[str, Any]) -> None:
    screen = console()
    chips = f" for {', '.join(facts['socs'])}" if facts["socs"] else ""
    screen.print(Text(f"{facts['file']}: {facts['bytes']:,} bytes, backend {facts['backend']}{chips}", "bold"))
    if facts["left_to_cpu"]:
        left = [(f"{r['node']} ({r['op']})", r["reason"] or "") for r in facts["left_to_cpu"]]
        alike = [(str(len(nodes)), some_of(nodes), reason) for reason, nodes in by_reason(left)]
        columns = ("nodes", "which", "why; what would work")
        screen.print(table(f"left to the CPU, not in the file: {len(left)} nodes", columns, alike))
    settings = list(dict.fromkeys(key for g in facts["graphs"] for key in g if key not in _FIXED))
    rows = [
        (
            g["name"],
            *(vtcm_text(g["vtcm_bytes"]) if key == VTCM else str(g[key]) for key in settings),
            f"{g['arena_bytes']:,}",
            f"{g['spill_fill_bytes']:,}",
        )
        for g in facts["graphs"]
    ]
    headings = [_HEADINGS.get(key, key) for key in settings]
    columns = ("graph", *headings, "arena bytes", "spill-fill bytes")
    screen.print()
    screen.print(table("", columns, rows, optional=tuple(headings)))
    if len(facts["weights_bytes"]) > 1:
        by_graph = ", ".join(f"{name} {size:,}" for name, size in facts["weights_bytes"].items())
        shared = (
            f"{facts['saved_bytes']:,} bytes saved" if facts["weight_sharing"] else "not shared, which --share would"
        )
        screen.print(Text(f"weights alone: {by_graph}; together {facts['stored_weights_bytes']:,}: {shared}"))
    for path in facts["wrappers"]:
        screen.print(Text(path))
