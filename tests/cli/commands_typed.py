# SPDX-License-Identifier: Apache-2.0
"""Commands as people type them, parsed as the command line would and not run."""

from __future__ import annotations

import shlex
from contextlib import chdir
from contextvars import copy_context
from pathlib import Path

import typer

from hexforge.cli import app


def parse(line: str, folder: Path) -> str:
    """Parses a line that begins with hexforge and gives the command's name; whatever is wrong with it is raised.

    Its files are made in `folder`, empty, so that they are there.
    """
    words = shlex.split(line)
    assert words[0] == "hexforge", line
    group = typer.main.get_command(app)
    context = group.make_context("hexforge", words[1:], resilient_parsing=False)
    rest = [*context._protected_args, *context.args]
    name, command, arguments = group.resolve_command(context, rest)  # type: ignore[attr-defined]
    while hasattr(command, "resolve_command"):
        inner = command.make_context(name, arguments, parent=context)
        _, command, arguments = command.resolve_command(inner, [*inner._protected_args, *inner.args])
    for word in arguments:  # files that an option or argument wants to be there
        path = folder / word
        if word.endswith("/") and path.parent == folder:
            path.mkdir(exist_ok=True)
        elif path.suffix and path.parent == folder and not word.startswith("-") and "=" not in word:
            path.touch()
    with chdir(folder):
        copy_context().run(command.make_context, name, list(arguments), parent=context)  # options may set variables
    return str(name)
