# SPDX-License-Identifier: Apache-2.0
"""Flags as the vendor's tools take them: `--perf_profile` is `--perf-profile`, `--flag value` is `--flag=value`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hexforge.cli.arguments import print_notice
from hexforge.cli.lazy_group import exit_on_interrupt
from hexforge.cli.say import say
from hexforge.errors import CallError
from hexforge.formats.json_text import typographic_mark
from hexforge.options import did_you_mean
from hexforge.request_fields import FlagsAsNamed


def _version(context: typer.Context, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(f"{context.info_name} of hexforge {version('hexforge')}")
        raise typer.Exit


Version = Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")]


SHORT_FLAGS = {"-i": "--input_network", "-o": "--output_path", "-d": "--input_dim"}
"""Short flags of the converter, which alone has some."""
PAIRS = ("__input_dim",)
"""Flags that take a name and a value."""


class ToolCommand(TyperCommand):
    """A command whose flags are taken in every spelling of the vendor's tools."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments with each flag spelled as the command spells it."""
        return super().parse_args(ctx, normalized_flags(args, self))

    def invoke(self, ctx: Any) -> Any:
        """Run the tool; Ctrl-C ends it with a message."""
        with exit_on_interrupt(ctx.info_name):
            return super().invoke(ctx)


def normalized_flags(arguments: Sequence[str], command: Any) -> list[str]:
    """The arguments with every flag spelled as the command spells it; CallError for one that it does not have."""
    known = {name: name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    known |= {name.replace("-", "_"): spelled for name, spelled in known.items()} | {"--help": "--help"}
    same = {name.replace("-", "_"): spelled for name, spelled in known.items()}
    made: list[str] = []
    for argument in _with_joined_pairs([SHORT_FLAGS.get(argument, argument) for argument in arguments]):
        if argument[:1] in "\u2013\u2014\u2212" and (mark := typographic_mark(argument)) is not None:
            raise CallError(f"argument {argument!r}: {mark}")
        flag, equals, value = argument.partition("=")
        if not flag.startswith("--") or flag == "--":
            made.append(argument)
            continue
        if (mark := typographic_mark(flag)) is not None:
            raise CallError(f"argument {argument!r}: {mark}")
        spelled = same.get(flag.replace("-", "_"))
        if spelled is None:
            listed = sorted({name for name in known.values() if name.startswith("--")})
            hint = did_you_mean(flag, listed) or f"; it has {', '.join(listed)}"
            raise CallError(f"no flag {flag}{hint}")
        made += [spelled, value] if equals else [spelled]
    return made


def _with_joined_pairs(arguments: Sequence[str]) -> list[str]:
    """The arguments with the two values of a flag that takes a name and a value as one."""
    joined = list(arguments)
    for at in reversed(range(len(joined) - 2)):
        if joined[at].replace("-", "_") in PAIRS and not joined[at + 2].startswith("-") and " " not in joined[at + 1]:
            joined[at + 1 : at + 3] = [f"{joined[at + 1]} {joined[at + 2]}"]
    return joined


NOTHING = "Changes nothing: "
"""How the help of a flag begins that is taken and does nothing here; the reason follows, and is logged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFlags(FlagsAsNamed):
    """The flags of a tool: a field each."""

    def print_silent(self, tool: str) -> None:
        """Name the flags that were given and change nothing, each with the reason."""
        for field in dataclasses.fields(self):
            sentence = field.metadata["spelling"].sentence
            if sentence.startswith(NOTHING) and getattr(self, field.name) != field.default:
                reason = sentence.removeprefix(NOTHING).rstrip(".")
                print_notice(tool, f"--{field.name} changes nothing: {reason}")
