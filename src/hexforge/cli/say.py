# SPDX-License-Identifier: Apache-2.0
"""Say: the one way in which commands print a line that is no table."""

from __future__ import annotations

import typer

from hexforge.terminal_text import visible


def say(message: object, *, err: bool = False, colour: str | None = None, nl: bool = True) -> None:
    """Print a line, on standard error with `err`; what a file says in it is not obeyed by the terminal."""
    typer.secho(visible(str(message)), fg=colour, err=err, nl=nl)
