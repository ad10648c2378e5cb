# SPDX-License-Identifier: Apache-2.0
"""What the core finds of a model, seen by searches and advice: parts of an output, and masks that are not fused."""

from __future__ import annotations

from pathlib import Path

import pytest

import hexforge
from hexforge.model.save import to_bytes
from hexforge.quant.decide.quant_units import quant_units
from tests.backends.htp.test_masked_softmax import NOT_FUSED
from tests.quant.decide.test_mixed_heads import head, node_of


def test_a_search_keeps_the_parts_apart_in_every_mix(tmp_path: Path) -> None:
    net, model = head("plain")
    path = tmp_path / "model.onnx"
    path.write_bytes(to_bytes(model))
    found = hexforge.search(path, net.samples(2), space=hexforge.SearchSpace(groups=2, budget=4))
    concat = node_of(model, "Concat")
    assert list(found.mixed_heads) == [concat.outputs[0].name] == list(found.to_json()["mixed_heads"])
    assert all(concat.name not in group.nodes for group in found.groups)
    assert min(point.quality for point in found.mixes.points.values()) > 30
    assert len(quant_units(model.graph)) > sum(len(group.nodes) for group in found.groups)


@pytest.mark.parametrize(("model", "why"), NOT_FUSED.values(), ids=NOT_FUSED)
def test_advice_says_why_a_softmax_is_not_fused(model: bytes, why: str, tmp_path: Path) -> None:
    path = tmp_path / "attention.onnx"
    path.write_bytes(model)
    (advice,) = [a for a in hexforge.advise(path, "SM8650", cpu_part=False) if a.rule == "masked-softmax"]
    assert why in advice.places[0]
    assert advice.gain_us > 0
