# SPDX-License-Identifier: Apache-2.0
"""The command line: one thin file per command, listed in `commands` and imported when it is called."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from typing import Annotated

import typer

from hexforge.cli.deferred_imports import defer_imports
from hexforge.cli.lazy_group import LazyGroup, exit_on_interrupt
from hexforge.cli.say import say
from hexforge.errors import HexforgeError

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    help="The Snapdragon NPU stack on any computer: a model placed, computed, timed, quantized, compiled.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"hexforge {version('hexforge')}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """Options before the command."""


@contextmanager
def exit_with_message(program: str) -> Iterator[None]:
    """An error of the model, the call or a file ends a program with one message and exit code 2."""
    try:
        with exit_on_interrupt(program):
            yield
        return
    except HexforgeError as error:
        said = str(error)
    except OSError as error:
        said = f"{f'{error.filename}: ' if error.filename else ''}{error.strerror or error}"
    say(f"{program}: {said}", colour="red", err=True)
    sys.exit(2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command."""
    gc.set_threshold(50_000, 20, 20)  # models are many objects and few of them garbage: a tenth of the time is saved
    with exit_with_message("hexforge"), defer_imports():
        given = None if arguments is None else list(arguments)
        copy_context().run(app, given, prog_name="hexforge")  # what a command sets is gone with it
