# SPDX-License-Identifier: Apache-2.0
"""`hexforge convert-opset`: a copy of a model in another version of ONNX's operators."""

from __future__ import annotations

from hexforge.cli.arguments import Model, Out, Output, file_to_write
from hexforge.cli.say import say
from hexforge.cli.screen import spinner
from hexforge.formats.files import require_another_file, require_writable
from hexforge.request_fields import option


def convert_opset(
    model: Model,
    out: Out = None,
    opset: int = option(21, "The opset to convert to; 21 has QDQ of 4 and 16 bits."),
    output: Output = None,
) -> None:
    """Write a copy of a model in another version of ONNX's operators."""
    from hexforge.model.opset_conversion import to_opset
    from hexforge.model.reader import read
    from hexforge.model.save import save

    target = file_to_write(out, output)
    require_another_file(target, model)
    require_writable(target)
    with spinner(f"converting {model.name}"):
        source = read(model, fold=False)
        files = save(to_opset(source.ir, opset, source.name), target)
    say(f"opset {source.opset} is now {opset}: wrote {', '.join(map(str, files))}")
