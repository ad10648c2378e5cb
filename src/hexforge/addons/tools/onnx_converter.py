# SPDX-License-Identifier: Apache-2.0
"""`qnn-onnx-converter`: an ONNX model as the tools here take it, quantized where inputs for that are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.tools.flags import NOTHING, ToolFlags, Version
from hexforge.cli.say import say
from hexforge.cli.screen import bars
from hexforge.errors import CallError, UnsupportedError
from hexforge.formats.files import require_writable, write_atomically
from hexforge.options import did_you_mean
from hexforge.request_fields import option

TOOL = "qnn-onnx-converter"
CALIBRATIONS = {
    "min-max": "minmax",
    "moving-average": "moving_average",
    "percentile": "percentile",
    "entropy": "entropy",
    "mse": "mse",
    "sqnr": "mse",
}
"""--act_quantizer_calibration by what finds ranges here; the error that mse makes least is sqnr's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConverterFlags(ToolFlags):
    """What qnn-onnx-converter is called with."""

    input_network: Path | None = option(None, "The ONNX file.")
    output_path: Path | None = option(None, "The file to write; else <model>.dlc beside the model.")
    input_dim: list[str] | None = option(None, "Name and size of an input: --input_dim x 1,3,224,224; again for more.")
    input_list: Path | None = option(None, "Raw inputs to quantize by, one inference a line.")
    act_bitwidth: int = option(8, "Bits of activations: 8 or 16.")
    weights_bitwidth: int = option(8, "Bits of weights: 4, 8 or 16.")
    bias_bitwidth: int = option(32, "Bits of biases: 32, which they always have here.")
    use_per_channel_quantization: bool = option(False, "A weight scale for every output channel.")
    act_quantizer_calibration: str = option(
        "min-max", "Ranges of activations: min-max, percentile, entropy, mse or sqnr."
    )
    percentile_calibration_value: float = option(99.99, "Of percentile: from 90 to 100.")
    restrict_quantization_steps: str = option("", 'Integers that weights may have: "-0x8000 0x7F7F" for 16 bits.')
    quantization_overrides: Path | None = option(None, "AIMET encodings that stand as they are.")
    export_format: str = option("dlc", "dlc: one file that the tools here read as --dlc_path or --model.")
    enable_framework_trace: bool = option(False, NOTHING + "ops always know the nodes that they come from.")
    float_bitwidth: int = option(32, NOTHING + "the chip computes floats in float16.")
    debug: bool = option(False, NOTHING + "errors say what is wrong anyway.")


def run(flags: ConverterFlags, version: Version = False) -> None:
    """Write a model for the tools here: with sizes fixed, and quantized where --input_list says what it is run on."""
    flags.print_silent(TOOL)
    if flags.input_network is None:
        raise CallError("--input_network is missing; see --help")
    if not flags.input_network.is_file():
        raise CallError(f"--input_network {flags.input_network}: there is no such file")
    if flags.export_format != "dlc":
        raise UnsupportedError(
            f"--export_format {flags.export_format}: a model library is compiled with the vendor's SDK; dlc is written "
            "here, for the tools of hexforge"
        )
    output = flags.output_path or flags.input_network.with_suffix(".dlc")
    require_writable(output)
    shapes = _shapes(flags.input_dim or ())
    if flags.input_list is None:
        _refuse_without_inputs(flags)
        from hexforge.model.reader import read
        from hexforge.model.save import to_bytes

        model = read(flags.input_network, shapes=shapes)
        model.require_static()
        data = to_bytes(model.ir)
    else:
        data = _quantized(flags, flags.input_network, flags.input_list, shapes)
    write_atomically(output, data)
    how = "not quantized here" if flags.input_list is None else f"w{flags.weights_bitwidth}a{flags.act_bitwidth}"
    say(f"{output}: {len(data):,} bytes, {how}; for qnn-context-binary-generator and qnn-net-run of hexforge")


def _refuse_without_inputs(flags: ConverterFlags) -> None:
    """CallError for flags of a quantization that has no inputs to find ranges by."""
    fresh = ConverterFlags()
    for name in (
        "act_bitwidth", "weights_bitwidth", "use_per_channel_quantization", "act_quantizer_calibration",
        "restrict_quantization_steps", "quantization_overrides",
    ):  # fmt: skip
        if getattr(flags, name) != getattr(fresh, name):
            raise CallError(f"--{name} is of a quantized model; give --input_list, the inputs to quantize by")


def _shapes(texts: Sequence[str]) -> dict[str, list[int]]:
    """Sizes of inputs; each is a name and numbers with commas between them."""
    shapes: dict[str, list[int]] = {}
    for text in texts:
        name, _, sizes = text.strip().rpartition(" ")
        numbers = sizes.split(",")
        if not name or not all(number.isascii() and number.isdigit() for number in numbers):
            raise CallError(f"--input_dim {text!r}: expected a name and sizes, such as x 1,3,224,224")
        shapes[name] = [int(number) for number in numbers]
    return shapes


def _quantized(flags: ConverterFlags, model: Path, inputs: Path, shapes: dict[str, list[int]]) -> bytes:
    """The model quantized as the flags say."""
    from hexforge.analysis.quality.quantize import quantize
    from hexforge.quant.decide.recipe_reading import recipe, restricted

    if flags.bias_bitwidth != 32:
        raise UnsupportedError(f"--bias_bitwidth {flags.bias_bitwidth}: biases have 32 bits here; leave it out")
    method = CALIBRATIONS.get(flags.act_quantizer_calibration)
    if method is None:
        near = did_you_mean(flags.act_quantizer_calibration, CALIBRATIONS)
        raise CallError(
            f"--act_quantizer_calibration {flags.act_quantizer_calibration!r}: one of {', '.join(CALIBRATIONS)}{near}"
        )
    tail = "_channel" if flags.use_per_channel_quantization else "_tensor"
    chosen = recipe(f"w{flags.weights_bitwidth}a{flags.act_bitwidth}{tail}")
    if flags.restrict_quantization_steps:
        chosen = restricted(chosen, flags.restrict_quantization_steps)
    if method == "percentile":
        method = f"percentile={flags.percentile_calibration_value:g}"
    with bars() as progress:
        done = quantize(
            model, inputs, chosen, method=method, encodings=flags.quantization_overrides, shapes=shapes,
            progress=progress,
        )  # fmt: skip
    assert done.model is not None
    return done.model
