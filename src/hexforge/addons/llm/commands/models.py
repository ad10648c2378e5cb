# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm models`: the shapes that are known by name."""

from __future__ import annotations

import dataclasses

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, table

COLUMNS = ("model", "parameters", "layers", "hidden", "heads", "keys", "head", "ffn", "vocabulary", "tied")


def models(as_json: Json = False) -> None:
    """List the public language models whose shapes are known by name (published)."""
    from hexforge.addons.llm.shape import named_shapes

    shapes = named_shapes().values()
    if as_json:
        print_json([dataclasses.asdict(s) | {"parameters": s.parameters} for s in shapes])
        return
    cells = [
        (
            s.name, f"{s.parameters / 1e9:.2f} B", str(s.layers), str(s.hidden), str(s.heads), str(s.kv_heads),
            str(s.head_dim), str(s.ffn), f"{s.vocab:,}", "yes" if s.tied else "no",
        )
        for s in shapes
    ]  # fmt: skip
    console().print(table(f"{len(cells)} models, as their config.json files say (published)", COLUMNS, cells))
