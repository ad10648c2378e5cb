# SPDX-License-Identifier: Apache-2.0
"""Conversions: commands that make one file of another: `convert`, `convert-opset`, `fix-shapes`, `prune`, `wrap`."""

from __future__ import annotations

from pathlib import Path

from hexforge.cli.arguments import Dims, Model, Out, Output, Pins, Shapes, constants_of, file_to_write, sizes
from hexforge.cli.say import say
from hexforge.cli.screen import spinner
from hexforge.formats.files import require_another_file, require_writable
from hexforge.request_fields import argument, option, required


def convert(
    model: Model,
    out: Out = None,
    tolerance: float = option(1e-4, "How far numbers may be apart, in parts of the largest; integers one step."),
    output: Output = None,
) -> None:
    """Write the ONNX model of a .tflite or a .pt2, checked by running both where what runs them is installed."""
    from hexforge.addon import import_target
    from hexforge.errors import UnsupportedError
    from hexforge.formats.file_kinds import file_and_member, kind_of
    from hexforge.formats.files import write_atomically

    target = file_to_write(out, output)
    require_another_file(target, model)
    kind = kind_of(model)
    if not kind.as_onnx:
        raise UnsupportedError(f"{model}: is {kind.name}, and a .tflite or a .pt2 is converted; {kind.advice}")
    file, member = file_and_member(model)
    with spinner(f"converting {model.name}"):
        data = file.read_bytes()
        made = import_target(kind.as_onnx)(data, file.name, member).SerializeToString()
        compared = (
            import_target(kind.compare)(data, file.name, member, made, tolerance) if kind.compare else "not compared"
        )
    write_atomically(target, made)
    say(f"wrote {target}: {compared}")


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


def prune(
    context: Path = argument("The context.", exists=True, dir_okay=False, show_default=False),
    soc: str = required("The chip to keep, by name or number."),
    output: Path = required("The context to write.", "--output", "-o", dir_okay=False),
) -> None:
    """Keep one chip of a context that was made for several."""
    from hexforge.runtime.contexts.wrap import prune as pruned

    before = context.stat().st_size
    with spinner(f"pruning {context.name}"):
        kept = pruned(context, soc, output)
    say(f"{output}: {len(kept.container):,} bytes for {kept.info.targets[0].name}, {before:,} before")


def wrap(
    context: Path = argument("The context.", exists=True, dir_okay=False, show_default=False),
    output: Path | None = option(None, "Folder for the models; else beside the context.", "--output", "-o"),
    embed: bool = option(False, "Put the context into each model."),
    quantized_io: bool = option(False, "Keep quantized inputs and outputs; else float32, by Q and DQ nodes."),
) -> None:
    """Write one ONNX model around each graph of a context, which InferenceSession runs."""
    from hexforge.runtime.contexts.wrap import wrap as wrapped

    with spinner(f"wrapping {context.name}"):
        written = list(wrapped(context, output, embed=embed, quantized_io=quantized_io))
    for path in written:
        say(path)
