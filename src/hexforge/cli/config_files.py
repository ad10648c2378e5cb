# SPDX-License-Identifier: Apache-2.0
"""Config files of QNN's tools, read for a command: what will do nothing there is said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hexforge.cli.say import say
from hexforge.formats.backend_extensions import Config, load
from hexforge.runtime.tool_config import unmatched_graphs


def read_config(path: Path | None, tool: str) -> Config:
    """The config file of a tool; what it does not read there, and what will do nothing, is logged."""
    if path is None:
        return Config()
    config = load(path)
    for warning in config.warnings:
        print_notice(tool, f"{config.where}: {warning}")
    for key, _, readers in config.set_keys():
        if tool not in readers:
            print_notice(tool, f"{config.where}: {key} is not read by {tool}, but by {' and '.join(readers)}")
    return config


def print_unmatched_graphs(config: Config, tool: str, graphs: Sequence[str]) -> None:
    """Say which sections of a config file are for no graph that the tool has."""
    for note in unmatched_graphs(config, graphs):
        print_notice(tool, f"{config.where}: {note}")


def print_notice(tool: str, message: str) -> None:
    """A line on standard error that the user should see."""
    say(f"{tool}: {message}", colour="yellow", err=True)
