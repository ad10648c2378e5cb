# SPDX-License-Identifier: Apache-2.0
"""`hexforge options`: every key the runtime knows, what it does, or why it does nothing here."""

from __future__ import annotations

from rich.text import Text

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, table
from hexforge.options import Option


def options(as_json: Json = False) -> None:
    """List provider options, session keys, run options and dynamic options."""
    from hexforge.ort.options.parsing import OPTION_TABLES
    from hexforge.runtime import registry

    rows = [(title, option) for title, kind in OPTION_TABLES.items() for option in kind.table()]
    for name in registry.backend_options():
        more = (option for option in registry.config_class(name).table() if not option.provider)
        rows += [(f"{name} backend, beside the provider's", option) for option in more]
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
                    "spellings": o.spellings(),
                    "no_effect_because": o.effect,
                }
                for title, o in rows
            ]
        )
        return
    screen = console()
    for title in dict.fromkeys(title for title, _ in rows):
        cells = [
            (o.key, "" if o.default is None else o.write(o.default), o.expects, o.doc, _effect(o))
            for its_title, o in rows
            if its_title == title
        ]
        columns = ("key", "default", "expects", "what it does", "effect here")
        screen.print(table(title, columns, cells, optional=("effect here", "expects", "default"), whole=True))


def _effect(option: Option) -> Text:
    """Who uses an option, or where else it can be said, or why it does nothing."""
    if option.effect is not None:
        return Text(option.effect, "yellow")
    elsewhere = ", ".join(f"{face} {word}" for face, word in option.spellings().items())
    return Text(f"used by {option.backend}" if option.backend else elsewhere or "used", "green")
