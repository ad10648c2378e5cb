# SPDX-License-Identifier: Apache-2.0
"""Perplexity of quantized bundles beside the float model's, and which layer is to blame."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hexforge.addons.llm import ExportRequest, LanguageModel, export
from hexforge.addons.llm.checkpoints.checkpoint import Checkpoint
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.addons.llm.exporting.evaluate import evaluate_bundle
from hexforge.errors import CallError
from hexforge.ir import Array
from tests.addons.llm import REFERENCE, SMALL

HELD_OUT = (SMALL / "held_out.txt").read_text()


@pytest.mark.parametrize(("precision", "most"), [("float", 0.001), ("w8a16", 0.01), ("w4a16", 0.04)])
def test_perplexity_stays_near_the_float_models(
    precision: str, most: float, loaded: Callable[..., LanguageModel]
) -> None:
    result = evaluate_bundle(loaded(precision), SMALL, HELD_OUT, rows=8)
    assert result.tokens == 8 * 255
    assert abs(result.perplexity / result.float_perplexity - 1) <= most
    assert result.same_first > {"float": 0.99, "w8a16": 0.96, "w4a16": 0.8}[precision]
    assert (result.divergence < 1e-4) == (precision == "float")


def test_the_float_perplexity_is_torchs(loaded: Callable[..., LanguageModel]) -> None:
    from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder
    from hexforge.addons.llm.exporting.evaluate import log_shares

    tokens = loaded("w8a16").text.encode(HELD_OUT)
    rows = [tokens[i * 256 : (i + 1) * 256] for i in range((len(tokens) - 1) // 256)]
    given = FloatDecoder(open_checkpoint(SMALL)).logits([row[:-1] for row in rows])
    lost = [-log_shares(x)[np.arange(255), row[1:]].mean() for x, row in zip(given, rows, strict=True)]
    assert np.exp(np.mean(lost)) == pytest.approx(REFERENCE["perplexity"]["value"], rel=1e-5)


class Spoilt(Checkpoint):
    """The small Llama, layer 1 of which has few large weights, so that rounding costs most there."""

    def __init__(self) -> None:
        self._source = open_checkpoint(SMALL)
        super().__init__(self._source.architecture, self._source.config, self._source.folder)

    def _stored(self, name: str, layer: int | None) -> Array:
        weight = self._source.weight(name, layer)
        if layer == 1 and weight.ndim == 2:
            weight[:, 0] *= 40
        return weight


def test_a_layer_is_blamed(tmp_path: Path) -> None:
    checkpoint = Spoilt()
    export(checkpoint, tmp_path / "b", ExportRequest(context=64, tokens=(1,), precision="w4a16_channel"))
    result = evaluate_bundle(tmp_path / "b", checkpoint, HELD_OUT, length=48, rows=2, blame=True)
    assert set(result.blame) == {"layer 0", "layer 1", "layer 2", "head"}
    assert max(result.blame, key=lambda name: result.blame[name]) == "layer 1"


def test_texts_that_are_too_short_are_refused(loaded: Callable[..., LanguageModel]) -> None:
    with pytest.raises(CallError, match="a row has 256; give a longer one"):
        evaluate_bundle(loaded("w8a16"), SMALL, "short")
