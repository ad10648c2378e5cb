# SPDX-License-Identifier: Apache-2.0
"""Layer sensitivity: a model with only one layer quantized, or all but one, to see what each layer costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hexforge.analysis.mapped_tasks import map_tasks
from hexforge.analysis.quality.comparison import ComparisonSettings, LayerError
from hexforge.analysis.quality.runners import backend_for, runner
from hexforge.errors import ModelError
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.model.save import to_bytes
from hexforge.quant import compare as tensors
from hexforge.quant import sensitivity as layered
from hexforge.quant.compare import ErrorSums
from hexforge.quant.data.feeds import Feeds

Progress = Callable[[int, int], None]


def layer_errors(
    exact: Any, coarse: Any, samples: list[Feeds], settings: ComparisonSettings, progress: Progress | None
) -> tuple[LayerError, ...]:
    """What each layer's quantization costs, the dearest first; both models are onnx-ir models and stay as they are."""
    mode = settings.sensitivity
    coarse = coarse.clone()
    layered.restore_clips(coarse, exact)
    layers = layered.layers(coarse)
    if not layers:
        raise ModelError("the quantized model has no QuantizeLinear: there is no layer to be sensitive")
    run = runner(to_bytes(exact), "ort", name="the float model")
    references = [run(feeds) for feeds in samples]
    numbers = layered.float_weights(coarse, tensors.float_constants(exact))
    every = frozenset(name for layer in layers for name in layer.quantizers)
    variants = [layer.quantizers if mode == "one" else every - layer.quantizers for layer in layers]
    arguments = (to_bytes(coarse), numbers, samples, references, settings)
    figures = []
    for figure in map_tasks(_Variant, arguments, [every, *variants], settings.workers):
        figures.append(figure)
        if progress is not None:
            progress(len(figures), len(variants) + 1)
    whole, *layer_figures = figures
    rows = [
        LayerError(layer.name, layer.op_type, figure, figure - whole if mode == "all-but-one" else 0.0)
        for layer, figure in zip(layers, layer_figures, strict=True)
    ]
    return tuple(sorted(rows, key=lambda r: (r.sqnr_db if mode == "one" else -r.sqnr_db, r.name)))


class _Variant:
    """Gives, in each process, the lowest SQNR of the outputs with only some quantizers left."""

    def __init__(
        self, model: bytes, numbers: Mapping[str, Array], samples: list[Feeds], references: list[dict[str, Array]],
        settings: ComparisonSettings,
    ) -> None:  # fmt: skip
        self.model, self.numbers = read(model).ir, numbers
        self.samples, self.references = samples, references
        self.settings, self.threads = settings, 1 if settings.workers.several else 0

    def __call__(self, quantizers: frozenset[str]) -> float:
        edited = layered.quantized_only(self.model, quantizers, self.numbers)
        backend = backend_for(self.settings.backend, self.settings.soc, self.threads)
        run = runner(to_bytes(edited), backend, threads=self.threads, name="the edited model")
        sums: dict[str, ErrorSums] = {}
        for feeds, reference in zip(self.samples, self.references, strict=True):
            for name, array in run(feeds).items():
                if name in reference:
                    sums.setdefault(name, ErrorSums()).update(reference[name], array)
        return min(error.sqnr_db for error in sums.values())
