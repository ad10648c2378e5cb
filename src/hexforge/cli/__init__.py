"""The command line: one thin file per command, gathered here."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from hexforge.cli.commands.contexts.compile import compile
from hexforge.cli.commands.contexts.info import info
from hexforge.cli.commands.contexts.lora import lora
from hexforge.cli.commands.contexts.prune import prune
from hexforge.cli.commands.contexts.wrap import wrap
from hexforge.cli.commands.inspect.check import check
from hexforge.cli.commands.inspect.demo import demo
from hexforge.cli.commands.inspect.fix_shapes import fix_shapes
from hexforge.cli.commands.inspect.run import run
from hexforge.cli.commands.inspect.show import show
from hexforge.cli.commands.quality.compare import compare
from hexforge.cli.commands.quality.evaluate import evaluate
from hexforge.cli.commands.quality.quantize import quantize
from hexforge.cli.commands.quality.search import search
from hexforge.cli.commands.tables.ops import ops
from hexforge.cli.commands.tables.options import options
from hexforge.cli.commands.time.advise import advise
from hexforge.cli.commands.time.estimate import estimate
from hexforge.cli.commands.time.socs import socs
from hexforge.errors import HexforgeError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="The Snapdragon NPU stack on any computer: a model placed, computed, timed, quantized, compiled.",
)
for _command in (
    check,
    estimate,
    advise,
    quantize,
    compare,
    search,
    compile,
    info,
    wrap,
    prune,
    ops,
    show,
    run,
    fix_shapes,
    options,
    socs,
    demo,
):
    app.command()(_command)
app.command("eval")(evaluate)
app.add_typer(lora, name="lora")


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"hexforge {version('hexforge')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Options before the command."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command; an error of the model, the call or a file is one message and exit code 2."""
    try:
        app(None if arguments is None else list(arguments), prog_name="hexforge")
    except HexforgeError as error:
        typer.secho(f"hexforge: {error}", fg=typer.colors.RED, err=True)
        sys.exit(2)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        typer.secho(f"hexforge: {where}{error.strerror or error}", fg=typer.colors.RED, err=True)
        sys.exit(2)
