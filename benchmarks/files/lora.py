# SPDX-License-Identifier: Apache-2.0
"""Adapters: switching one in a context against compiling the adapted model: `python -m benchmarks.files.lora`.

ResNet50 A8W8 (26 MB), every convolution's weights updatable. Two adapters: low-rank weights on the 1x1 convolutions of
the last stage (a part of the weights, as LoRA adapters are), and on all 1x1 convolutions. Peer: hexforge's own compiler
on the adapted model, what a switch would cost without adapters. Target: at least 20 times faster.
"""

from __future__ import annotations

import argparse
import functools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.models.quantized import file
from hexforge.addons.adapters.making import make_adapter, merge_weights
from hexforge.formats.adapter import Adapter
from hexforge.frontends.onnx.context_constants import Constants
from hexforge.runtime import registry
from hexforge.runtime.contexts.compile import compile, compiled_programs
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.request import ContextRequest

TARGET = 20.0


def milliseconds(work: Callable[[], object], rounds: int) -> float:
    """The median of some rounds."""
    times_ms = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times_ms.append(1e3 * (time.perf_counter() - start))
    return median(times_ms)


def factors(base: Constants, chosen: list[str], rank: int = 8) -> dict[str, np.ndarray]:
    """Low-rank weights for constants, a few steps of their scale large."""
    rng = np.random.default_rng(0)
    tensors = {}
    for name in chosen:
        outputs, inputs = base.array(name).shape[:2]
        size = float(np.abs(base.real(name)).max()) / 10
        tensors[f"{name}.lora_A"] = rng.normal(0, 1, (rank, inputs)).astype(np.float32)
        tensors[f"{name}.lora_B"] = rng.normal(0, size, (outputs, rank)).astype(np.float32)
    return tensors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    model = file("resnet50", "a8w8-int8")
    base = Constants(model)
    pointwise = [n for n in base.names if base.array(n).shape[2:] == (1, 1) and base.array(n).dtype == np.int8]
    least = TARGET
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "base.bin"
        compile(model, path, request=ContextRequest(updatable=tuple(pointwise), graph_names=("net",)))
        context = Context(path)
        program = context.program("net")
        feeds = {v.name: np.zeros(v.shape, v.dtype.numpy) for v in program.graph.inputs}
        (before,) = program.run(feeds).values()
        for what, chosen in (("last stage", pointwise[-8:]), ("all 1x1 convolutions", pointwise)):
            given = factors(base, chosen)
            adapter = Path(folder) / "adapter.bin"
            make_adapter(context, model, weights=given, output=adapter)
            adapted = base.replaced(merge_weights(base, given, None, {}))
            how = (registry.backend(context.info.backend, context.info.options), {})
            compiled = functools.partial(compiled_programs, adapted, "net", *how, quantized_io=False)
            fresh = milliseconds(compiled, 3)
            first = milliseconds(lambda: context.apply(adapter), rounds)  # noqa: B023 - called here
            unchecked = milliseconds(lambda: context.apply(Adapter(adapter, verify=False)), rounds)  # noqa: B023
            opened = Adapter(adapter)
            context.apply(opened)
            (under,) = program.run(feeds).values()
            (wanted,) = compiled()["net"].run(feeds).values()
            same = np.array_equal(under, wanted)
            again = milliseconds(lambda: (context.apply(opened), context.remove_adapters()), rounds) / 2  # noqa: B023
            (after,) = program.run(feeds).values()
            least = min(least, fresh / first)
            print(
                f"{what}: {len(chosen)} constants, {adapter.stat().st_size / 1e6:.1f} MB; bits of a fresh compilation "
                f"{same}, of the base afterwards: {np.array_equal(before, after)}"
            )
            print(f"  compile the adapted model {fresh:8.1f} ms")
            print(f"  apply it from its file    {first:8.2f} ms, {fresh / first:.0f} times faster than compiling")
            print(f"  without its checksum      {unchecked:8.2f} ms, {fresh / unchecked:.0f} times")
            print(f"  switch to an open one     {again:8.3f} ms, {fresh / again:.0f} times")
    print(f"target, {TARGET:.0f} times faster than compiling: {'met' if least >= TARGET else 'MISSED'}")


if __name__ == "__main__":
    main()
