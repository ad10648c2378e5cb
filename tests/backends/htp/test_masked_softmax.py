# SPDX-License-Identifier: Apache-2.0
"""Softmax with its mask as one op: which structures are, their numbers by exact integers, and why others are not."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from tests.cli.test_cli import run
from tests.models.attention import SPAN, masked_attention

pytestmark = pytest.mark.feature("MaskedSoftmax", guide="3343-3371")
PATTERNS = [(pattern, bits) for pattern in "ABC" for bits in (8, 16)]


def program(model: bytes) -> Any:
    return hexforge.compile(model, None, "SM8650").program()


def ops(model: bytes) -> list[str]:
    return [node.op.name for node in program(model).graph]


def feeds(made: Any, seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Random scores and a random mask; of the first rows one keeps nothing, one all, one a single entry."""
    random = np.random.default_rng(seed)
    types = {value.name: value.type for value in made.graph.inputs}
    x = random.integers(0, types["x"].dtype.range[1] + 1, types["x"].shape)
    nonzero = random.integers(0, 2, types["mask"].shape)
    nonzero[0, 0, 0], nonzero[0, 0, 1], nonzero[0, 0, 2] = 0, 1, np.arange(nonzero.shape[-1]) == 5
    mask = nonzero * random.integers(1, types["mask"].dtype.range[1] + 1, nonzero.shape)
    given = {"x": x.astype(types["x"].dtype.numpy), "mask": mask.astype(types["mask"].dtype.numpy)}
    return given, nonzero


def by_integers(row: list[int], kept: list[bool], bits: int) -> list[int]:
    """docs/numerics.md: e(d) = rint(exp(-d * sx) * 2^31), their exact sum, and the nearest integer of e / (sy * S)."""
    scale = float(np.float32(SPAN / ((1 << bits) - 1)))
    most = max((q for q, keep in zip(row, kept, strict=True) if keep), default=0)
    with localcontext() as context:
        context.prec = 60
        terms = [
            int((Decimal(-(most - q)) * Decimal(scale)).exp().__mul__(2**31).to_integral_value(ROUND_HALF_EVEN))
            if keep
            else 0
            for q, keep in zip(row, kept, strict=True)
        ]
    total = sum(terms)
    return [min(round(Fraction(t << bits, total)), (1 << bits) - 1) if total else 0 for t in terms]


@pytest.mark.parametrize(("pattern", "bits"), PATTERNS)
def test_the_three_structures_are_one_op_with_exact_numbers(pattern: str, bits: int) -> None:
    made = program(masked_attention(pattern, bits))
    assert [node.op.name for node in made.graph] == ["MaskedSoftmax"]
    assert not made.facts.references, "it has a native step"
    given, nonzero = feeds(made)
    kept = np.broadcast_to((nonzero == 0) if pattern == "A" else (nonzero != 0), given["x"].shape)
    y = made.run(given)["y"]
    rows = zip(given["x"].reshape(-1, 40).tolist(), kept.reshape(-1, 40).tolist(), strict=True)
    assert y.reshape(-1, 40).tolist() == [by_integers(row, keep, bits) for row, keep in rows]
    assert (y[~kept] == 0).all()
    assert y[kept].any()


@pytest.mark.parametrize("pattern", ["A", "B", "C"])
def test_it_is_more_exact_than_its_parts(pattern: str) -> None:
    """With B = -19.9 the parts run one after the other, and Where's wider encoding costs bits."""
    errors = []
    for b in (-20.0, -19.9):
        made = program(masked_attention(pattern, 8, b))
        given, nonzero = feeds(made)
        nonzero[0, 0, [0, 1]] = [[1], [0]] if pattern == "A" else [[0], [1]]
        kept = np.broadcast_to((nonzero == 0) if pattern == "A" else (nonzero != 0), given["x"].shape)[:, :, 3:]
        y = made.run(given)["y"][:, :, 3:] / 256
        e = np.where(kept, np.exp(given["x"][:, :, 3:] * (SPAN / 255)), 0)
        errors.append(float(np.abs(y - e / e.sum(-1, keepdims=True)).max()))
    assert errors[0] <= 0.5 / 256 + 1e-6
    assert errors[1] > 4 * errors[0]


def test_masks_are_bool_uint8_or_uint16_of_any_encoding() -> None:
    assert ops(masked_attention("A", 16, mask_bits=8)) == ["MaskedSoftmax"]
    assert ops(masked_attention("B", 8, mask_bits=16)) == ["MaskedSoftmax"]
    assert ops(masked_attention("C", 16, b=-30.0)) == ["MaskedSoftmax"]


NOT_FUSED = {
    "B": (masked_attention(b=-19.9), "B is -19.9; it must be -20 or less"),
    "compared": (masked_attention("B", compared=7), "its mask 'mask' is not compared with 0"),
    "lowest": (masked_attention(lowest="ReduceMax"), "is not the least score of each row"),
    "added": (masked_attention("added", rows=40), "its mask 'mask' is added; write Where"),
}
"""Attentions whose Softmax is not fused with its mask, and why."""


@pytest.mark.parametrize(("model", "why"), NOT_FUSED.values(), ids=NOT_FUSED)
def test_check_says_why_a_softmax_is_not_fused(model: bytes, why: str, tmp_path: Path) -> None:
    assert "MaskedSoftmax" not in ops(model)
    path = tmp_path / "attention.onnx"
    path.write_bytes(model)
    (said,) = {remark for row in hexforge.check(path, "SM8650").nodes for remark in row.remarks}
    assert why in said


def test_check_prints_and_lists_remarks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "attention.onnx"
    path.write_bytes(masked_attention(b=-19.9))
    assert run("check", str(path)) == 0
    assert "B is -19.9" in capsys.readouterr().out
    assert run("check", str(path), "--json") == 0
    remarks = [row["remarks"] for row in json.loads(capsys.readouterr().out)["nodes"] if row["op"] == "Softmax"]
    assert len(remarks[0]) == 1


@pytest.mark.parametrize("pattern", ["A", "B", "C"])
def test_the_estimate_gains(pattern: str) -> None:
    fused, apart = (
        hexforge.estimate(masked_attention(pattern, 16, b, 128, 1024), "SM8650").timeline for b in (-20.0, -19.9)
    )
    assert [row.op for row in fused.rows] == ["MaskedSoftmax"]
    assert fused.accelerator_us < 0.75 * apart.accelerator_us


def test_a_context_keeps_it(tmp_path: Path) -> None:
    model = masked_attention("B")
    hexforge.compile(model, tmp_path / "c.bin", "SM8650")
    loaded = hexforge.Context(tmp_path / "c.bin").program("model_0")
    given, _ = feeds(loaded)
    assert np.array_equal(loaded.run(given)["y"], program(model).run(given)["y"])
    assert [node.op.name for node in loaded.graph] == ["MaskedSoftmax"]
