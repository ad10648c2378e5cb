# SPDX-License-Identifier: Apache-2.0
"""Flags as the vendor's tools take them: `--perf_profile` is `--perf-profile`, `--flag value` is `--flag=value`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hexforge.errors import CallError
from hexforge.formats.json_text import typographic
from hexforge.options import did_you_mean


def _version(context: typer.Context, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"{context.info_name} of hexforge {version('hexforge')}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


class ToolCommand(TyperCommand):
    """A command whose flags are taken in every spelling of the vendor's tools."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments with each flag spelled as the command spells it."""
        return super().parse_args(ctx, normalised(args, self))


def normalised(arguments: Sequence[str], command: Any) -> list[str]:
    """The arguments with every flag spelled as the command spells it; CallError for one that it does not have."""
    known = {name: name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    known |= {name.replace("-", "_"): spelled for name, spelled in known.items()} | {"--help": "--help"}
    same = {name.replace("-", "_"): spelled for name, spelled in known.items()}
    made: list[str] = []
    for argument in arguments:
        if argument[:1] in "\u2013\u2014\u2212" and (mark := typographic(argument)) is not None:
            raise CallError(f"argument {argument!r}: {mark}")
        flag, equals, value = argument.partition("=")
        if not flag.startswith("--") or flag == "--":
            made.append(argument)
            continue
        if (mark := typographic(flag)) is not None:
            raise CallError(f"argument {argument!r}: {mark}")
        spelled = same.get(flag.replace("-", "_"))
        if spelled is None:
            listed = sorted({name for name in known.values() if name.startswith("--")})
            hint = did_you_mean(flag, listed) or f"; it has {', '.join(listed)}"
            raise CallError(f"no flag {flag}{hint}")
        made += [spelled, value] if equals else [spelled]
    return made
