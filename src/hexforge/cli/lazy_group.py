# SPDX-License-Identifier: Apache-2.0
"""A typer group whose commands are imported when they are called; its help reads a table instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from hexforge.addon import Command, import_target
from hexforge.cli.command_table import commands
from hexforge.cli.request_options import CommandGroup
from hexforge.cli.say import say
from hexforge.errors import CallError

ROWS = commands()


class LazyGroup(TyperGroup):
    """The commands of the table, in its order; only names and lines until one is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {row.name: TyperCommand(row.name, help=row.help) for row in ROWS.values()}
        self._writes_help = False
        self._imported: set[str] = set()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command itself; while the help is written, only its name and line."""
        if cmd_name in ROWS and cmd_name not in self._imported and not self._writes_help:
            self.commands[cmd_name] = _import(ROWS[cmd_name])
            self._imported.add(cmd_name)
        return self.commands.get(cmd_name)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; Ctrl-C ends it with a message."""
        with exit_on_interrupt("hexforge"):
            return super().invoke(ctx)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help of the group, without importing any command."""
        self._writes_help = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._writes_help = False


@contextmanager
def exit_on_interrupt(program: str) -> Iterator[None]:
    """Ctrl-C ends a program with one line and exit code 130: files are written whole or not at all."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"{program}: stopped; files that were written are whole", colour="red", err=True)
        raise SystemExit(130) from None


def _import(row: Command) -> Any:
    target = import_target(row.target)
    if isinstance(target, typer.Typer):
        command: Any = typer.main.get_group(target)
        command.name, command.epilog = row.name, _epilog(row)
        return command
    alone = CommandGroup(add_completion=False)
    settings = {"allow_interspersed_args": not row.is_program}
    alone.command(row.name, cls=_KnownCommand, epilog=_epilog(row), context_settings=settings)(target)
    return typer.main.get_command(alone)


class _KnownCommand(TyperCommand):
    """A command; one that is about chips says so where a backend is asked for."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the arguments of the command."""
        asked = any(a == "--backend" or a.startswith("--backend=") for a in args)
        if asked and ROWS[str(self.name)].is_about_chips:
            raise CallError(
                f"{self.name} is about the NPU of a chip and takes no --backend; check, run, bench, compile, compare "
                "do, and `hexforge profile MODEL --measure gpu` times each kernel of the gpu backend"
            )
        if ROWS[str(self.name)].takes_numbers:
            args = [f" {a}" if re.fullmatch(r"-(?:0[xX][0-9a-fA-F]+|[0-9]+)", a) else a for a in args]
        return super().parse_args(ctx, args)


def _epilog(row: Command) -> str:
    """The examples, which the help shows last; each is a paragraph, or it would be joined to the one before."""
    return "\n\n".join(["Examples:", *row.examples])
