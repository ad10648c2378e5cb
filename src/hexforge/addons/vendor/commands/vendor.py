# SPDX-License-Identifier: Apache-2.0
"""`hexforge vendor`: Qualcomm's package: what is installed and can do, and contexts made by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hexforge.addons.vendor.compiling import CompileOptions
from hexforge.addons.vendor.process import ProcessLimits
from hexforge.addons.vendor.session import VendorOptions
from hexforge.chips.soc import DEFAULT_SOC, require_chip
from hexforge.cli.arguments import Json, Options, Soc, pairs
from hexforge.cli.screen import bold_start, console, interruptible, print_json, spinner, table
from hexforge.errors import CallError
from hexforge.request_fields import argument, option

if TYPE_CHECKING:
    from hexforge.addons.vendor.compiling import CompiledFiles


def vendor(
    models: list[Path] | None = argument(
        "Models to make contexts of.", default=None, exists=True, dir_okay=False, show_default=False
    ),
    output: Path | None = option(None, "Folder for the contexts.", "--output", "-o", file_okay=False),
    soc: Soc = DEFAULT_SOC,
    option: Options = None,
    *,
    written: CompileOptions,
    limits: ProcessLimits,
    as_json: Json = False,
) -> None:
    """Say what of Qualcomm's package is installed and can do; given models, have it make contexts of them."""
    if models:
        if output is None:
            raise CallError("the folder for the contexts is missing: give it with -o")
        session = VendorOptions(require_chip(soc).name, pairs(option, "--option"))
        compiled = _compile(models, output, replace(written, session=session), limits)
        if as_json:
            print_json(compiled.to_json())
        else:
            _print_compiled(compiled)
        return
    from hexforge.addons.vendor.process import vendor_abilities

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


def _compile(models: list[Path], output: Path, options: CompileOptions, limits: ProcessLimits) -> CompiledFiles:
    from hexforge.addons.vendor.compiling import compile_contexts
    from hexforge.addons.vendor.process import VendorProcess
    from hexforge.ort.options.provider_options import ProviderOptions

    ProviderOptions.parse(options.session.provider_options)  # the package ignores names that it does not know
    with (
        interruptible("no context was written"),
        VendorProcess(limits=limits) as process,
        spinner(f"compiling {', '.join(model.name for model in models)}"),
    ):
        try:
            output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CallError(f"{output}: cannot be made: {error.strerror}; name another folder with -o") from None
        return compile_contexts(models, output, options, process)


def _print_compiled(compiled: CompiledFiles) -> None:
    rows = [
        (c.model, c.context_model.name, str(len(c.placement.taken)), str(len(c.placement.left)), f"{c.seconds:.2f}")
        for c in compiled.contexts
    ]
    console().print(table("", ("model", "context model", "placed", "on the CPU", "seconds"), rows))
    for path in compiled.files:
        console().print(f"{path}  {path.stat().st_size:,} bytes")
