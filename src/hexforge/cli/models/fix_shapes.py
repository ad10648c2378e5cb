# SPDX-License-Identifier: Apache-2.0
"""`hexforge fix-shapes`: a copy of a model without dynamic dimensions."""

from __future__ import annotations

from hexforge.cli.arguments import Dims, Model, Out, Output, Pins, Shapes, constants_of, file_to_write, sizes
from hexforge.cli.say import say
from hexforge.cli.screen import spinner
from hexforge.formats.files import require_another_file


def fix_shapes(
    model: Model, out: Out = None, dim: Dims = None, shape: Shapes = None, pin: Pins = None, output: Output = None
) -> None:
    """Write a copy of a model with dynamic dimensions fixed, by their name or by whole input shapes."""
    from hexforge.model.declarations import fix_shapes as write
    from hexforge.model.reader import read

    target = file_to_write(out, output)
    require_another_file(target, model)
    names, whole = sizes(model, dim, shape)
    with spinner(f"fixing shapes of {model.name}"):
        read(model, shapes=whole, dims=names, fold=False, constants=constants_of(pin)).require_static()
        write(model, target, whole, names, constants_of(pin))
        inputs = read(target, fold=False).inputs
    for value in inputs:
        say(f"{value.name}: {value.type} [{', '.join(map(str, value.shape or ()))}]")
