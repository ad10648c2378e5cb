# SPDX-License-Identifier: Apache-2.0
"""Arguments that many benchmarks have: names of what is to be measured."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence


def add_names(
    parser: argparse.ArgumentParser, what: str, known: Collection[str], default: Sequence[str] | None = None
) -> None:
    """A positional argument `what`s: any of the known names; the default ones, or all, where none is given."""

    def known_name(name: str) -> str:
        if name not in known:
            raise argparse.ArgumentTypeError(f"no {what} {name!r}; there are {', '.join(known)}")
        return name

    usual = "all" if default is None else ", ".join(default)
    parser.add_argument(
        f"{what}s",
        nargs="*",
        metavar=what.upper(),
        type=known_name,
        default=list(known) if default is None else list(default),
        help=f"of {', '.join(known)}; {usual} by default",
    )
