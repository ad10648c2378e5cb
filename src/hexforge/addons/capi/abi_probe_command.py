# SPDX-License-Identifier: Apache-2.0
"""`hexforge abi-probe`: how an SDK's headers lay out QNN's structures, and what of it differs from hexforge's."""

from __future__ import annotations

from pathlib import Path

from hexforge.cli.arguments import Json
from hexforge.cli.say import say
from hexforge.cli.screen import console, print_json, table
from hexforge.request_fields import option


def abi_probe(
    include: Path | None = option(None, "The folder include/QNN of an SDK: compile and run the program against it."),
    passport: Path | None = option(None, "A passport that was made before: say what differs from hexforge's headers."),
    compiler: str = option("cc", "The C compiler."),
    output: Path | None = option(None, "Where the program or the passport goes; else it is printed.", "--output", "-o"),
    as_json: Json = False,
) -> None:
    """Print the program in C that learns the layout of an SDK's headers, run it, or compare what it said."""
    from hexforge.addons.capi.abi_probe import differences, own_passport, probe, program, read_passport

    if passport is None:
        text = program() if include is None else probe(include, compiler)
        if output is None:
            print(text, end="")
            return
        from hexforge.formats.files import require_writable, write_atomically

        require_writable(output)
        write_atomically(output, text.encode("ascii"))
        say(f"{output}: {'compile it with the headers of an SDK' if include is None else f'the passport of {include}'}")
        return
    rows = list(differences(own_passport(compiler), read_passport(passport)))
    if as_json:
        print_json([{"name": row.name, "hexforge": row.ours, "passport": row.theirs} for row in rows])
        return
    if not rows:
        say(f"{passport}: every number and place is that of hexforge's headers")
        return
    cells = [(row.name, row.ours, row.theirs) for row in rows]
    console().print(table(f"{len(rows)} differences", ("name", "hexforge", "passport"), cells))
