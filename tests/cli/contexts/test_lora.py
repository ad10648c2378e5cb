# SPDX-License-Identifier: Apache-2.0
"""`hexforge lora` and `hexforge compile --updatable`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hexforge.cli import main
from hexforge.runtime.contexts.context import Context
from tests.runtime.contexts.lora_models import factors, inputs, transformer, weights


def said(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    with pytest.raises(SystemExit) as caught:
        main([str(a) for a in arguments])
    out, err = capsys.readouterr()
    assert caught.value.code == 0, err
    return out


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("cli")
    (found / "block.onnx").write_bytes(transformer())
    (found / "adapted.onnx").write_bytes(transformer({"q": weights(3)["q"]}))
    np.savez(found / "adapter.npz", **factors("q", "k"))
    with pytest.raises(SystemExit) as caught:
        main(["compile", str(found / "block.onnx"), "-o", str(found / "block.bin"), "--updatable", "block.[qk].*"])
    assert caught.value.code == 0
    return found


def test_from_two_models(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, adapted, out = folder / "block.onnx", folder / "adapted.onnx", folder / "a.bin"
    text = said(capsys, "lora", "make", folder / "block.bin", "--base", base, "--adapted", adapted, "-o", out)
    assert "block.q.weight_quantized" in text.replace("\n", "")
    found = json.loads(said(capsys, "lora", "info", out, "--json"))
    assert found["graphs"][0]["tensors"] == ["block.q.weight_quantized"]
    assert found["graphs"][0]["base"] == Context(folder / "block.bin").identity("block")
    assert 0 < found["new_bytes"] < found["bytes"]
    assert "checksums verified" in said(capsys, "lora", "info", out).replace("\n", " ")


def test_from_weights(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = folder / "w.bin"
    base, given = folder / "block.onnx", folder / "adapter.npz"
    context = folder / "block.bin"
    said(capsys, "lora", "make", context, "--base", base, "--weights", given, "--alpha", 2, "-o", out, "--json")
    opened = Context(context)
    program = opened.program("block")
    before = program.run(inputs())["out"]
    opened.apply(out)
    assert (program.run(inputs())["out"] != before).any()
    restore = folder / "restore.bin"
    assert "restores the base" in said(capsys, "lora", "make", context, "-o", restore).replace("\n", " ")
    opened.apply(restore)
    np.testing.assert_array_equal(program.run(inputs())["out"], before)


def test_faults_are_one_message(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    context, out = str(folder / "block.bin"), str(folder / "never.bin")
    base, adapted = str(folder / "block.onnx"), str(folder / "adapted.onnx")
    for arguments, message in (
        (["make", context, "--base", base, "-o", out], "either the adapted model or weights"),
        (["make", context, "--base", adapted, "--adapted", base, "-o", out], "was not compiled from the base model"),
        (["make", context, "--base", base, "--adapted", adapted, "--alpha", "1", "-o", out], "are for --weights"),
        (["info", context], "is no adapter, but a context"),
        (["info", base], "is not a hexforge context"),
    ):
        with pytest.raises(SystemExit) as caught:
            main(["lora", *arguments])
        assert caught.value.code == 2
        assert message in capsys.readouterr().err
    assert not (folder / "never.bin").exists()
