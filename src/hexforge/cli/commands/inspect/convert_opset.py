# SPDX-License-Identifier: Apache-2.0
"""`hexforge convert-opset`: a copy of a model in another version of ONNX's operators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hexforge.cli.arguments import Model
from hexforge.cli.screen import waiting
from hexforge.formats.files import require_another_file, require_writable


def convert_opset(
    model: Model,
    out: Annotated[Path, typer.Argument(help="The file to write.", dir_okay=False, show_default=False)],
    opset: Annotated[int, typer.Option("--opset", help="The opset to convert to; 21 has QDQ of 4 and 16 bits.")] = 21,
) -> None:
    """Write a copy of a model in another version of ONNX's operators."""
    from hexforge.model.reader import read
    from hexforge.model.save import save
    from hexforge.model.writing.opset import converted

    require_another_file(out, model)
    require_writable(out)
    with waiting(f"converting {model.name}"):
        source = read(model, fold=False)
        files = save(converted(source.ir, opset, source.name), out)
    typer.echo(f"opset {source.opset} is now {opset}: wrote {', '.join(map(str, files))}")
