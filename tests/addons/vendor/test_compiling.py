# SPDX-License-Identifier: Apache-2.0
"""Contexts made by the package: files that load again, all or none of them, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hexforge.addons.vendor import process as process_module
from hexforge.addons.vendor.compiling import CompileOptions, compile_contexts
from hexforge.addons.vendor.process import VendorProcess
from hexforge.addons.vendor.session import VendorOptions, VendorSession
from hexforge.errors import CallError, ModelError, PackageError
from tests.addons.vendor import HERE, needs_package, write_worker
from tests.addons.vendor.models import sample, saved, small_chain
from tests.cli.test_cli import run

CHIP = VendorOptions("SM8650")


def test_options_of_a_chip() -> None:
    assert VendorOptions("Galaxy S24", {"vtcm_mb": "8"}).options() == {"vtcm_mb": "8", "soc_model": "57"}
    assert VendorOptions().options() == {}
    with pytest.raises(CallError, match="not a known chip"):
        VendorOptions("SM1").options()


def test_entries_of_a_context(tmp_path: Path) -> None:
    entries = CompileOptions(CHIP, embed=True, node_name_prefix="first_").entries(tmp_path / "c.onnx")
    assert entries == {
        "ep.context_enable": "1",
        "ep.context_file_path": str(tmp_path / "c.onnx"),
        "ep.context_embed_mode": "1",
        "ep.context_node_name_prefix": "first_",
    }


def test_nothing_is_left_where_the_package_dies_while_it_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (
        "def answer(job):\n    open(job['with']['entries']['ep.context_file_path'], 'w').write('half')\n    os._exit(9)"
    )
    monkeypatch.setattr(process_module, "WORKER", write_worker(tmp_path, body))
    (tmp_path / "out").mkdir()
    with VendorProcess(HERE) as process, pytest.raises(PackageError, match="exit code 9"):
        compile_contexts([saved(small_chain(), tmp_path)], tmp_path / "out", CompileOptions(CHIP), process)
    assert list((tmp_path / "out").iterdir()) == []


def test_sharing_shares_the_session_and_ends_with_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = """
def answer(job):
    given = job['with']
    if job['do'] == 'open':
        entries = given['entries']
        told = [entries.get(f'ep.{key}share_ep_contexts') for key in ('', 'stop_')] + [given['provider_options']]
        open(entries['ep.context_file_path'], 'w').write(json.dumps(told))
    return {'nodes': {'QNNExecutionProvider': [['Conv', 'c']]}, 'seconds': 0, 'inputs': [], 'outputs': []}
"""
    monkeypatch.setattr(process_module, "WORKER", write_worker(tmp_path, body))
    (tmp_path / "out").mkdir()
    models = [saved(small_chain(), tmp_path, name) for name in ("a.onnx", "b.onnx")]
    with VendorProcess(HERE) as process:
        made = compile_contexts(models, tmp_path / "out", CompileOptions(CHIP, share_weights=True), process)
        told = [json.loads(c.context_model.read_text()) for c in made.contexts]
        provider = {"soc_model": "57", "enable_htp_weight_sharing": "1"}
        assert told == [["1", None, provider], ["1", "1", provider]]
        old = CompileOptions(VendorOptions("SM8350"), share_weights=True)
        with pytest.raises(CallError, match="SM8350: shares no weights"):
            compile_contexts(models, tmp_path / "out", old, process)
        with pytest.raises(CallError, match="two of the models"):
            compile_contexts([models[0]] * 2, tmp_path / "out", CompileOptions(CHIP), process)


class TestInstalled:
    pytestmark = needs_package

    def test_a_context_loads_again_and_computes_the_same(self, tmp_path: Path) -> None:
        model = saved(small_chain(), tmp_path)
        (tmp_path / "out").mkdir()
        with VendorProcess() as process:
            made = compile_contexts([model], tmp_path / "out", CompileOptions(CHIP), process)
            assert [path.name for path in made.files] == ["model_ctx.onnx", "model_ctx_qnn.bin"]
            assert {op for op, _ in made.contexts[0].placement.left} == {"QuantizeLinear", "DequantizeLinear"}
            assert sum(op == "Conv" for op, _ in made.contexts[0].placement.taken) == 2
            loaded = VendorSession(process, made.contexts[0].context_model, CHIP)
            assert [op for op, _ in loaded.placement.taken] == ["EPContext"]
            fresh = VendorSession(process, model, CHIP)
            assert np.array_equal(loaded.run(sample())["pool1_r"], fresh.run(sample())["pool1_r"])
            with pytest.raises(CallError, match="the input 'x' is missing"):
                fresh.run({})

    def test_the_command_and_what_is_refused(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        model = saved(small_chain(), tmp_path)
        out = tmp_path / "contexts"
        given = ("--soc", "SM8750", "--embed", "-o", str(out), "--json")
        assert run("vendor", str(model), *given) == 0
        assert list(json.loads(capsys.readouterr().out)["files"]) == ["model_ctx.onnx"]
        assert run("vendor", str(model), "-o", str(out), "--option", "vtcm=3") != 0
        assert "vtcm_mb" in capsys.readouterr().err
        (tmp_path / "bad.onnx").write_bytes(b"\x00no model")
        with (
            VendorProcess() as process,
            pytest.raises(ModelError, match=r"bad\.onnx: onnxruntime-qnn 2\.7\.\d refuses"),
        ):
            VendorSession(process, tmp_path / "bad.onnx", CHIP)
