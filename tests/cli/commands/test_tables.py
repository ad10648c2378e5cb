# SPDX-License-Identifier: Apache-2.0
"""The commands that print tables, each in a process of its own: none lives on what another one has imported."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.digits import MODEL

PROGRAM = [sys.executable, "-c", "from hexforge.cli import main; main()"]


def printed(*arguments: str) -> str:
    """What a command prints in a fresh process."""
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def facts(*arguments: str) -> Any:
    """What a command prints as JSON in a fresh process."""
    return json.loads(printed(*arguments, "--json"))


def test_ops_prints_every_translator_and_fusion() -> None:
    from hexforge.frontends.onnx import written_ops

    matrix = facts("ops")
    assert {op: tuple(names) for op, names in matrix["onnx"].items()} == written_ops.onnx_ops()
    assert {kind: tuple(names) for kind, names in matrix["fusions"].items()} == written_ops.fusions()
    assert len(matrix["onnx"]) > 130
    assert matrix["onnx"]["Conv"] == ["Conv2d", "Conv3d", "DepthWiseConv2d"]
    assert matrix["qnn"]["Conv2d"]["kind"] == "conv"
    assert matrix["qnn"]["Resize"]["work"] == ["vector lanes"]
    assert {name for names in matrix["onnx"].values() for name in names} <= set(matrix["qnn"])


def test_ops_prints_tables_that_are_not_empty() -> None:
    from hexforge.frontends.onnx import written_ops
    from hexforge.ir import table

    text = printed("ops")
    assert f"{len(written_ops.onnx_ops())} ONNX ops" in text
    assert f"{len(written_ops.fusions())} fusions" in text
    assert f"{len([*table()])} QNN ops" in text


def test_ops_prints_every_rule_with_its_evidence() -> None:
    from hexforge.addons.gpu import support as gpu
    from hexforge.addons.qnn_graphs import library_limits
    from hexforge.backends.htp import support as htp
    from hexforge.frontends.onnx import ep_limits

    rules = facts("ops")["rules"]
    counts = {name: sum(row["refused_by"] == name for row in rules) for name in ("ep", "htp", "gpu", "executorch")}
    assert counts == {
        "ep": len(ep_limits.LIMITS),
        "htp": len(htp.RULES),
        "gpu": len(gpu.RULES),
        "executorch": len(library_limits.LIMITS) + 1,
    }
    assert all(row["reason"] and row["evidence"] and row["refuser"] for row in rules)
    assert {row["refused_by"] for row in facts("ops", "--refused-by", "gpu")["rules"]} == {"gpu"}
    assert f"{len(rules)} rules" in printed("ops")


def test_ops_of_one_op() -> None:
    conv = facts("ops", "Conv")
    assert conv["onnx"] == {"Conv": ["Conv2d", "Conv3d", "DepthWiseConv2d"]}
    assert list(conv["qnn"]) == conv["onnx"]["Conv"]
    reasons = {(row["refused_by"], row["reason"].split(";")[0]) for row in conv["rules"]}
    assert ("ep", "dilations in three dimensions") in reasons
    assert ("htp", "int16 weights with a zero point") in reasons
    assert ("htp", "tensors of more than 5 dimensions") in reasons
    taken = {"Conv", *conv["qnn"]}
    assert all(not row["ops"] or taken & set(row["ops"]) for row in conv["rules"])
    asin = facts("ops", "ElementWiseAsin")
    assert list(asin["onnx"]) == ["Asin"]
    assert {row["refused_by"] for row in asin["rules"] if "ElementWiseAsin" in row["ops"]} == {"gpu", "executorch"}
    done = subprocess.run([*PROGRAM, "ops", "Konv"], capture_output=True, text=True)
    assert done.returncode != 0
    assert "did you mean" in done.stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("options",), ("backend_type", "htp_performance_mode", "session.disable_cpu_ep_fallback")),
        (("socs",), ("SM8650", "SM8750")),
        (("socs", "SM8650"), ("hvx_threads",)),
        (("check", str(MODEL)), ("Conv2d", "on QNN")),
        (("show", str(MODEL), "--backend", "cpu"), ("Conv2d",)),
        (("estimate", str(MODEL)), ("SM8650",)),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_a_command_by_itself(command: tuple[str, ...], words: tuple[str, ...]) -> None:
    text = printed(*command)
    for word in words:
        assert word in text, text
