# SPDX-License-Identifier: Apache-2.0
"""`hexforge options`: every key the runtime knows, what it does, or why it does nothing here."""

from __future__ import annotations

from rich.text import Text

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, table


def options(as_json: Json = False) -> None:
    """List provider options, session keys, run options and dynamic options."""
    from hexforge.options import OptionTable
    from hexforge.ort.options.config import DynamicOptions, RunConfig, SessionConfig
    from hexforge.ort.options.provider_options import ProviderOptions

    tables: dict[str, type[OptionTable]] = {
        "provider options": ProviderOptions,
        "session config keys": SessionConfig,
        "run config keys": RunConfig,
        "dynamic options": DynamicOptions,
    }
    rows = [(title, option) for title, kind in tables.items() for option in kind.table()]
    if as_json:
        print_json(
            [
                {
                    "table": title,
                    "key": o.key,
                    "expects": o.expects,
                    "default": "" if o.default is None else o.write(o.default),
                    "does": o.doc,
                    "backend": o.backend,
                    "no_effect_because": o.effect,
                }
                for title, o in rows
            ]
        )
        return
    screen = console()
    for title in tables:
        cells = [
            (
                o.key,
                "" if o.default is None else o.write(o.default),
                o.expects,
                o.doc,
                Text(f"used by {o.backend}" if o.backend else "used", "green")
                if o.effect is None
                else Text(o.effect, "yellow"),
            )
            for its_title, o in rows
            if its_title == title
        ]
        columns = ("key", "default", "expects", "what it does", "effect here")
        screen.print(table(title, columns, cells, optional=("effect here", "expects", "default"), whole=True))
