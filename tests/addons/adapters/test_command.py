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
from tests.addons.adapters.lora_models import factors, inputs, transformer, weights


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
    np.savez(found / "adapter.npz", **factors("q", "k"))  # type: ignore[arg-type]
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
    assert "checksums verified" in " ".join(said(capsys, "lora", "info", out).split())


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


@pytest.mark.parametrize("named", [False, True])
def test_qnn_net_run_applies_an_adapter(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    """--binary_updates, with the adapter's file alone or with its graph's name before it."""
    monkeypatch.chdir(folder)
    said(capsys, "lora", "make", "block.bin", "--base", "block.onnx", "--weights", "adapter.npz", "-o", "u.bin")
    feeds = inputs()
    for name, array in feeds.items():
        array.tofile(f"{name}.raw")
    Path("list.txt").write_text(" ".join(f"{name}:={name}.raw" for name in feeds) + "\n")
    common = ["tool", "qnn-net-run", "--retrieve_context", "block.bin", "--backend", "libQnnHtp.so", "--input_list",
              "list.txt", "--input_data_type", "native", "--output_data_type", "native_only"]  # fmt: skip
    said(capsys, *common, "--output_dir", "plain")
    said(capsys, *common, "--output_dir", "updated", "--binary_updates", "block:u.bin" if named else "u.bin")
    opened = Context(folder / "block.bin")
    program = opened.program("block")
    plain = program.run(feeds)["out"]
    opened.apply(folder / "u.bin")
    for made, want in (("plain", plain), ("updated", program.run(feeds)["out"])):
        assert Path(made, "Result_0", "out_native.raw").read_bytes() == want.tobytes()
    assert Path("plain/Result_0/out_native.raw").read_bytes() != Path("updated/Result_0/out_native.raw").read_bytes()
