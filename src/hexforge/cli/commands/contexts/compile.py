"""`hexforge compile`: models into one context file, for one chip or several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from hexforge.cli.arguments import BackendName, Dims, Json, Shapes, dims, pairs, shapes
from hexforge.cli.screen import bar, console, print_json, table

if TYPE_CHECKING:
    from hexforge.runtime.contexts.compile import Compiled


def compile(
    models: Annotated[
        list[Path], typer.Argument(exists=True, dir_okay=False, help="The ONNX files.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The context file to write.", dir_okay=False)],
    backend: BackendName = "htp",
    soc: Annotated[
        list[str] | None, typer.Option("--soc", help="Chip name or number (SM8650); again for more chips in one file.")
    ] = None,
    optimization: Annotated[int, typer.Option(min=1, max=3, help="Finalization level; numbers are the same.")] = 3,
    vtcm_mb: Annotated[
        int | None, typer.Option(min=0, help="Vector memory of each graph in MB (4); 0: all of the chip's.")
    ] = None,
    hvx_threads: Annotated[int | None, typer.Option(min=1, help="Vector threads of each graph (4).")] = None,
    dlbc: Annotated[bool, typer.Option("--dlbc", help="Compress activations on their way to DRAM.")] = False,
    dlbc_weights: Annotated[
        bool, typer.Option("--dlbc-weights", help="Compress weights in DRAM; graphs then share none.")
    ] = False,
    weights_packing: Annotated[
        bool, typer.Option("--weights-packing", help="8-bit weights of 4-bit range lie packed (quantized models).")
    ] = False,
    slc: Annotated[bool, typer.Option("--slc", help="Spill into the system level cache (slc_alloc_enable).")] = False,
    graph_name: Annotated[
        list[str] | None, typer.Option("--graph-name", help="Name of the graph, one for each model; else the file's.")
    ] = None,
    quantized_io: Annotated[
        bool, typer.Option("--quantized-io", help="Inputs and outputs of the graphs are integers, as QDQ nodes say.")
    ] = False,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Leave refused nodes to the CPU: several graphs of one model.")
    ] = False,
    updatable: Annotated[
        list[str] | None,
        typer.Option(
            "--updatable", metavar="PATTERN", help="Constants that LoRA adapters may change (`hexforge lora`)."
        ),
    ] = None,
    share: Annotated[
        bool | None, typer.Option("--share/--no-share", help="Store common weights once; else where the chips can.")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="A provider option.")
    ] = None,
    dim: Dims = None,
    shape: Shapes = None,
    wrap: Annotated[bool, typer.Option("--wrap", help="Also write an ONNX model around each graph.")] = False,
    as_json: Json = False,
) -> None:
    """Compile models into one context file; nothing is run. A node the backend refuses is an error."""
    from hexforge.runtime.contexts.compile import compile as compiled
    from hexforge.runtime.contexts.wrap import wrap as wrapped

    with bar(f"compiling {', '.join(m.name for m in models)}") as progress:
        found = compiled(
            models,
            output,
            soc=soc,
            backend=backend,
            optimization=optimization,
            num_hvx_threads=hvx_threads,
            vtcm_mb=vtcm_mb,
            dlbc=dlbc,
            dlbc_weights=dlbc_weights,
            weights_packing=weights_packing,
            slc_alloc_enable=slc,
            weight_sharing=share,
            quantized_io=quantized_io,
            allow_partial=allow_partial,
            updatable=updatable or (),
            graph_names=graph_name,
            dims=dims(dim),
            shapes=shapes(shape),
            options=pairs(option, "--option"),
            progress=progress,
        )
    wrappers = wrapped(output, quantized_io=False) if wrap else []
    said = _said(found, output, wrappers)
    if as_json:
        print_json(said)
    else:
        _print(said)


def _said(found: Compiled, output: Path, wrappers: list[Path]) -> dict[str, Any]:
    return {
        "file": str(output),
        "bytes": found.nbytes,
        "backend": found.info.backend,
        "socs": [t.soc or f"v{t.arch}" for t in found.info.targets],
        "weight_sharing": found.info.weight_sharing,
        "alone_bytes": found.alone,
        "saved_bytes": found.saved_bytes,
        "graphs": [
            {
                "name": g.name,
                "arena_bytes": g.arena_bytes,
                "spill_fill_bytes": g.spill_fill_bytes,
                "num_hvx_threads": g.num_hvx_threads,
                "vtcm_mb": g.vtcm_mb,
                "optimization": g.optimization,
            }
            for g in found.info.graphs
        ],
        "left_to_cpu": [
            {"model": left.model, "node": row.node, "op": row.op_type, "reason": row.reason}
            for left in found.left
            for row in left.rows
        ],
        "wrappers": [str(path) for path in wrappers],
    }


def _print(said: dict[str, Any]) -> None:
    screen = console()
    rows = [
        (
            g["name"],
            str(g["optimization"]),
            str(g["num_hvx_threads"]),
            "all" if said["backend"] == "htp" and not g["vtcm_mb"] else str(g["vtcm_mb"]),
            f"{g['arena_bytes']:,}",
            f"{g['spill_fill_bytes']:,}",
        )
        for g in said["graphs"]
    ]
    columns = ("graph", "level", "HVX threads", "VTCM MB", "arena bytes", "spill-fill bytes")
    screen.print(table("", columns, rows))
    if said["left_to_cpu"]:
        left = [(r["model"], r["node"], r["op"], r["reason"] or "") for r in said["left_to_cpu"]]
        screen.print(table("left to the CPU, not in the file", ("model", "node", "op", "why; what would work"), left))
    chips = f" for {', '.join(said['socs'])}" if said["socs"] else ""
    screen.print(Text(f"{said['file']}: {said['bytes']:,} bytes, backend {said['backend']}{chips}"))
    if len(said["alone_bytes"]) > 1:
        alone = ", ".join(f"{name} {size:,}" for name, size in said["alone_bytes"].items())
        shared = f"{said['saved_bytes']:,} bytes saved" if said["weight_sharing"] else "weights are not shared"
        screen.print(Text(f"alone: {alone}; together {said['bytes']:,}: {shared}"))
    for path in said["wrappers"]:
        screen.print(Text(path))
