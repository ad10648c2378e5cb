# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm models`: the shapes that are known by name."""

from __future__ import annotations

from dataclasses import asdict

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, result_table
from hexforge.results import Column

COLUMNS = (
    Column("model", of="name"),
    Column("parameters", of=lambda shape: f"{shape.parameters / 1e9:.2f} B"),
    *(Column(name) for name in ("layers", "hidden", "heads")),
    Column("keys", of="kv_heads"),
    Column("head", of="head_dim"),
    Column("ffn"),
    Column("vocabulary", "number", 0, of="vocab"),
    Column("tied", of=lambda shape: "yes" if shape.tied else "no"),
)


def models(as_json: Json = False) -> None:
    """List the public language models whose shapes are known by name (published)."""
    from hexforge.addons.llm.shape import named_shapes

    shapes = named_shapes().values()
    if as_json:
        print_json([asdict(shape) | {"parameters": shape.parameters} for shape in shapes])
        return
    title = f"{len(shapes)} models, as their config.json files say (published)"
    console().print(result_table(title, COLUMNS, shapes))
