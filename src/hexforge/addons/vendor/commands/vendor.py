# SPDX-License-Identifier: Apache-2.0
"""`hexforge vendor`: Qualcomm's package: what is installed and can do, and contexts made by it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hexforge.chips.soc import DEFAULT_SOC, require_chip
from hexforge.cli.arguments import Json, Options, Soc, pairs
from hexforge.cli.screen import bold_start, console, interruptible, print_json, spinner, table
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    from hexforge.addons.vendor.compiling import CompiledContexts

Timeout = Annotated[
    float, typer.Option("--timeout", min=1, help="Seconds that Qualcomm's package may take for one thing.")
]
MemoryMb = Annotated[
    int, typer.Option("--memory-mb", min=0, help="MB that the package's process may have; 0: no limit.")
]


def vendor(
    models: list[Path] | None = argument(
        "Models to make contexts of.", default=None, exists=True, dir_okay=False, show_default=False
    ),
    output: Path | None = option(None, "Folder for the contexts.", "--output", "-o", file_okay=False),
    soc: Soc = DEFAULT_SOC,
    share: bool = option(False, "Graphs of one binary that has common weights once; for devices."),
    embed: bool = option(False, "The binary inside the context model."),
    prefix: str = option("", "Put before names of EPContext nodes.", "--node-name-prefix"),
    option: Options = None,
    timeout: Timeout = 600.0,
    memory_mb: MemoryMb = 16384,
    as_json: Json = False,
) -> None:
    """Say what of Qualcomm's package is installed and can do; given models, have it make contexts of them."""
    if models:
        if output is None:
            raise CallError("the folder for the contexts is missing: give it with -o")
        compiled = _compile(models, output, soc, share, embed, prefix, pairs(option, "--option"), timeout, memory_mb)
        if as_json:
            print_json(compiled.to_json())
        else:
            _print_compiled(compiled)
        return
    from hexforge.addons.vendor.abilities import vendor_abilities

    with spinner("asking Qualcomm's package"):
        able = vendor_abilities()
    if as_json:
        print_json(able.to_json())
        return
    screen = console()
    if not able.usable:
        screen.print(bold_start("not usable", f": {able.reason}"))
        return
    screen.print(bold_start(f"onnxruntime-qnn {able.version}", f" with onnxruntime {able.onnxruntime}: {able.python}"))
    screen.print("makes context binaries for every chip of `hexforge socs`, in a process of its own")
    where = "on its emulator: this computer has no NPU" if able.emulates else "on this computer's NPU"
    screen.print(f"runs models {where} (--backend vendor)")


def _compile(
    models: list[Path],
    output: Path,
    soc: str,
    share: bool,
    embed: bool,
    prefix: str,
    options: dict[str, str],
    timeout: float,
    memory_mb: int,
) -> CompiledContexts:
    from hexforge.addons.vendor.compiling import ContextOptions, compile_contexts
    from hexforge.addons.vendor.process import ProcessLimits, VendorProcess
    from hexforge.addons.vendor.session import VendorOptions
    from hexforge.ort.options.provider_options import ProviderOptions

    ProviderOptions.parse(options)  # the package ignores names that it does not know
    chosen = ContextOptions(VendorOptions(require_chip(soc).name, options), embed, share, prefix)
    with (
        interruptible("no context was written"),
        VendorProcess(limits=ProcessLimits(timeout, memory_mb << 20)) as process,
        spinner(f"compiling {', '.join(model.name for model in models)}"),
    ):
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CallError(f"{output}: cannot be made: {error.strerror}; name another folder with -o") from None
        return compile_contexts(models, output, chosen, process)


def _print_compiled(compiled: CompiledContexts) -> None:
    rows = [
        (c.model, c.context_model.name, str(len(c.placement.taken)), str(len(c.placement.left)), f"{c.seconds:.2f}")
        for c in compiled.contexts
    ]
    console().print(table("", ("model", "context model", "placed", "on the CPU", "seconds"), rows))
    for path in compiled.files:
        console().print(f"{path}  {path.stat().st_size:,} bytes")
