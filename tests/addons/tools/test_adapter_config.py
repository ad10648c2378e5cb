# SPDX-License-Identifier: Apache-2.0
"""qnn-context-binary-generator --adapter_weight_config: adapters made with a context, by a YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexforge.addons.tools.adapter_config import read_adapter_config
from hexforge.errors import CallError, FormatError
from hexforge.runtime.contexts.context import Context
from tests.addons.adapters.lora_models import adapted_weights, factors, inputs, transformer
from tests.addons.tools.test_tools import tool

RANK = 4


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("block.onnx").write_bytes(transformer())
    arrays: dict[str, dict[str, Any]] = {"math.npz": dict(factors("q", "v")), "code.npz": dict(factors("o", seed=9))}
    for name, given in arrays.items():
        np.savez(name, **given)
    return tmp_path


@pytest.mark.feature("Apply binary section (LoRA)", guide="197, 217")
def test_adapters_are_made_with_the_context(folder: Path) -> None:
    Path("adapters.yaml").write_text(
        "use_case:\n- {name: math, graph: block, weights: math.npz}\n- {name: code, weights: code.npz}\n"
    )
    tool(
        "qnn-context-binary-generator", "--model", "block.onnx", "--backend", "/sdk/lib/libQnnHtp.so",
        "--binary_file", "block", "--output_dir", "out", "--adapter_weight_config", "adapters.yaml",
    )  # fmt: skip
    assert {path.name for path in Path("out").iterdir()} == {"block.bin", "math.bin", "code.bin"}
    from hexforge.runtime.contexts.compile import compile
    from hexforge.runtime.contexts.request import ContextRequest

    for file, names, seed in (("math", "qv", 2), ("code", "o", 9)):
        context = Context(Path("out/block.bin"))
        context.apply(Path(f"out/{file}.bin"))
        changed = {name: adapted_weights(name, factors(*names, seed=seed), RANK) for name in names}
        fresh = compile(transformer(changed), None, "htp", ContextRequest(graph_names=("block",)))
        ours, theirs = (made.program("block").run(inputs())["out"] for made in (context, fresh))
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("use_case: []", "use_case is .*: expected a list of at least 1"),
        ("a: [", "is no YAML"),
        ("use_case:\n- {name: a}", r"use_case\[0\].weights: is missing"),
        ("use_case:\n- {name: a, weight: math.npz}", "did you mean 'weights'"),
        ("use_case:\n- {name: a, weights: none.npz}", "there is no such file"),
        ("use_case:\n- {name: ../a, weights: math.npz}", "is no plain file name"),
        ("use_case:\n- {name: a, weights: math.npz, graph: blok}", "did you mean 'block'"),
        ("use_case:\n- {name: a, weights: math.npz}\n- {name: a, weights: code.npz}", r"two use cases write a\.bin"),
        ("use_case:\n- {name: 7, weights: math.npz}", "name is 7: expected a text"),
    ],
)
def test_files_that_are_wrong(folder: Path, text: str, words: str) -> None:
    Path("adapters.yaml").write_text(text)
    with pytest.raises((CallError, FormatError), match=words):
        read_adapter_config(Path("adapters.yaml"), ["block"])


def test_of_several_graphs_one_is_named(folder: Path) -> None:
    Path("adapters.yaml").write_text("use_case:\n- {name: a, weights: math.npz, encodings: e.json}")
    with pytest.raises(CallError, match="say which graph it is for: block, other"):
        read_adapter_config(Path("adapters.yaml"), ["block", "other"])
    assert "encodings" in read_adapter_config(Path("adapters.yaml"), ["block"]).notices[0]
