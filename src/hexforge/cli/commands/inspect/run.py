"""`hexforge run`: one inference from .npy files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.text import Text

from hexforge.cli.arguments import BackendName, Dims, Model, Options, Shapes, Soc, dims, pairs, provider_options, shapes
from hexforge.cli.loading import loaded
from hexforge.cli.screen import console, table, waiting
from hexforge.errors import CallError, FormatError
from hexforge.ir import Array

if TYPE_CHECKING:
    from hexforge.runtime.stages import Stages


def run(
    model: Model,
    input: Annotated[
        list[str] | None, typer.Option("--input", "-i", metavar="NAME=FILE.npy", help="Data of an input.")
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for the outputs, one .npy each.", file_okay=False)] = None,
    backend: BackendName = "",
    soc: Soc = "",
    option: Options = None,
    dim: Dims = None,
    shape: Shapes = None,
) -> None:
    """Run a model once and print what came out; inputs not given are random, from a fixed seed."""
    from hexforge.frontends.onnx.context.model import read_context_model
    from hexforge.ort.prepare import backend_of
    from hexforge.ort.provider_options import ProviderOptions
    from hexforge.ort.signature import arguments, check_feed
    from hexforge.runtime.contexts.context_plan import ContextPlan
    from hexforge.runtime.nonfinite import first_nonfinite, has_nonfinite

    options = provider_options(backend, soc, option)
    plan: Stages
    compiled = read_context_model(model)
    if compiled is None:
        read = loaded(model, options, dims=dims(dim), shapes=shapes(shape), prepare=True)
        plan = read.plan
        inputs, names = arguments(read.model.inputs, read.model.ir.graph.inputs), read.parts.placed.outputs
    elif dim or shape:
        raise CallError(f"{model}: is compiled already, for its own sizes; leave --dim and --shape out")
    else:
        plan = ContextPlan(compiled, backend_of(ProviderOptions.parse(options)))
        inputs, names = arguments(compiled.inputs, ()), tuple(o.name for o in compiled.outputs)
    given = {name: _load(Path(file)) for name, file in pairs(input, "--input").items()}
    generator = np.random.default_rng(0)
    for value in inputs:
        if value.name not in given and value.dtype is not None:
            given[value.name] = _random(generator, value.dtype, tuple(int(d or 0) for d in value.shape))
    feeds = check_feed(given, inputs)
    with waiting(f"running {model.name}"):
        outputs = plan.run(feeds, names)
    rows = []
    for name, array in outputs.items():
        real = np.asarray(array, np.float64) if array.size else np.zeros(1)
        rows.append(
            (name, str(array.dtype), str(list(array.shape)), f"{real.min():g}", f"{real.mean():g}", f"{real.max():g}")
        )
        if output is not None:
            output.mkdir(parents=True, exist_ok=True)
            np.save(output / f"{name.replace('/', '_')}.npy", array)
    console().print(table("", ("output", "type", "shape", "min", "mean", "max"), rows))
    if has_nonfinite(outputs.values()):
        first = first_nonfinite(plan, backend_of(ProviderOptions.parse(options)), feeds)
        where = f"first {first}" if first is not None else "where they come from is not known"
        console().print(Text(f"not finite: {where}; `hexforge check` names what is unsafe in float16", "bold red"))


def _load(file: Path) -> Array:
    try:
        loaded = np.load(file, allow_pickle=False)
    except (ValueError, EOFError):
        raise FormatError(f"{file}: not a .npy file of numbers, or a damaged one; write it with numpy.save") from None
    if not isinstance(loaded, np.ndarray):
        raise FormatError(f"{file}: holds several arrays; give one .npy file for each input")
    return loaded


def _random(generator: np.random.Generator, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Normal numbers for floats, zeros and ones for the rest."""
    kind = np.issubdtype(dtype, np.integer) or dtype.kind in "bui"
    numbers = generator.integers(0, 2, shape) if kind else generator.standard_normal(shape)
    return np.asarray(numbers).astype(dtype)
