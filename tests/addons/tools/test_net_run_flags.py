# SPDX-License-Identifier: Apache-2.0
"""Flags of the vendor's scripts: tensors inside, several contexts, recordings, timeouts, throughput plans."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.tools import tool_command
from hexforge.errors import CallError, HexforgeError
from tests import ROOT
from tests.cli.test_cli import run

DIGITS = ROOT / "tests" / "digits"
PICTURES = np.load(DIGITS / "digits_heldout.npz")["pictures"].astype(np.float32)[:4]
HTP = ("--backend", r"C:\sdk\lib\QnnHtp.dll")


def tool(name: str, *arguments: str) -> None:
    tool_command(name).main(list(arguments), standalone_mode=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        shutil.copy(DIGITS / "digits.onnx", tmp_path / f"{name}.onnx")
    PICTURES[:1].tofile("one.raw")
    PICTURES.tofile("four.raw")
    Path("one.txt").write_text("image:=one.raw\n")
    Path("four.txt").write_text("%logits\r\nfour.raw\r\n")
    return tmp_path


def expected() -> np.ndarray:
    options = {"backend_type": "htp", "soc_model": "SM8650"}
    session = hexforge.InferenceSession(str(DIGITS / "digits.onnx"), providers=[("QNNExecutionProvider", options)])
    return np.concatenate([session.run(None, {"image": picture[None]})[0] for picture in PICTURES])


def test_tensors_inside_are_written_beside_the_outputs(folder: Path) -> None:
    tool("qnn-net-run", "--model=a.onnx", *HTP, "--input_list=one.txt", "--debug", "--output_dir", "every")
    every = {path.name for path in (folder / "every" / "Result_0").iterdir()}
    assert {"logits.raw", "flat.raw"} < every
    assert (folder / "every/Result_0/logits.raw").read_bytes() == expected()[:1].tobytes()
    tool(
        "qnn-net-run", "--model=a.onnx", *HTP, "--input_list=one.txt", "--set_output_tensors=flat", "--output_dir=some"
    )
    assert {path.name for path in (folder / "some" / "Result_0").iterdir()} == {"logits.raw", "flat.raw"}
    for name in ("flat.raw", "logits.raw"):
        paths = [folder / made / "Result_0" / name for made in ("every", "some")]
        assert paths[0].read_bytes() == paths[1].read_bytes()
    with pytest.raises(CallError, match="has no tensor 'flta'; did you mean 'flat'"):
        tool("qnn-net-run", "--model=a.onnx", *HTP, "--input_list=one.txt", "--set_output_tensors=a:flta")


def test_contexts_with_tensors_inside(folder: Path) -> None:
    tool(
        "qnn-context-binary-generator", "--model=a.onnx,b.onnx", *HTP, "--set_output_tensors=b:flat", "--binary_file=c"
    )
    outputs = {g.name: [name for name, _ in g.outputs] for g in hexforge.Context(folder / "output/c.bin").graphs}
    assert sorted(outputs["a"]) == ["logits"]
    assert sorted(outputs["b"]) == ["flat", "logits"]
    with pytest.raises(CallError, match="are finalized; give it to qnn-context-binary-generator"):
        tool("qnn-net-run", "--retrieve_context=output/c.bin", *HTP, "--input_list=one.txt,__", "--debug")


@pytest.mark.feature("Context binary management", guide="3001-3057")
def test_several_contexts_and_batches(folder: Path) -> None:
    for name in "ab":
        tool("qnn-context-binary-generator", f"--model={name}.onnx", *HTP, f"--binary_file={name}")
    both = ("--retrieve_context", "output/a.bin,output/b.bin", "--input_list", "one.txt,four.txt")
    tool("qnn-net-run", *both, *HTP, "--validate_binary", "--shared_buffer", "--perf_profile", "BURST")
    assert Path("output/a/Result_0/logits.raw").read_bytes() == expected()[:1].tobytes()
    assert Path("output/b/Result_0/logits.raw").read_bytes() == expected().tobytes()
    with pytest.raises(CallError, match="two contexts have a graph 'a'"):
        tool("qnn-net-run", "--retrieve_context", "output/a.bin,output/a.bin", "--input_list", "one.txt,one.txt", *HTP)


def test_a_recording_by_the_savers_library(folder: Path) -> None:
    tool("qnn-net-run", "--model=a.onnx", "--backend=libQnnSaver.so", "--input_list=one.txt")
    assert Path("output/Result_0/logits.raw").read_bytes() == expected()[:1].tobytes()
    assert run("replay", "saver_output") == 0
    tool("qnn-context-binary-generator", "--model=a.onnx", *HTP, "--binary_file=a")
    with pytest.raises(CallError, match="records how a model is made"):
        tool("qnn-net-run", "--retrieve_context=output/a.bin", "--backend=libQnnSaver.so", "--input_list=one.txt")


@pytest.mark.feature("Error codes", guide="385, 914, 2763, 3019-3024, 3481-3504")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--timeout", "1"], "QNN_GRAPH_ERROR_TIMED_OUT"),
        (["--perf_profile", "brst"], "--perf_profile 'brst': one of .*did you mean 'burst'"),
        (["--debug", "--set_output_tensors", "flat"], "leave --set_output_tensors out"),
        (["--use_native_input_files", "--native_input_tensor_names", "a:image"], "makes all inputs native"),
        (["--native_input_tensor_names", "a:imag"], "has no input 'imag'"),
        (["--log_level", "warning"], "--log_level 'warning': one of error, warn"),
        (["--validate_binary"], "is for --retrieve_context"),
        (["--op_packages", "absent.so:Interface"], "there is no file absent.so"),
        (["--binary_updates", "absent.bin"], "there is no file absent.bin"),
        (["--batch_multiplier", "3"], "the files hold 1 batches"),
    ],
)
def test_what_is_wrong_is_said(flags: list[str], words: str, folder: Path) -> None:
    with pytest.raises(HexforgeError, match=words):
        tool("qnn-net-run", "--model", "a.onnx", *HTP, "--input_list", "one.txt", *flags)
    assert not list(folder.rglob("*.raw.*")) + list((folder / "output").rglob("*.raw"))


@pytest.mark.parametrize("name", ["qnn-net-run", "qnn-context-binary-generator"])
def test_flags_are_spelled_as_the_vendor_spells_them(name: str) -> None:
    spelled = {flag for parameter in tool_command(name).params for flag in (*parameter.opts, *parameter.secondary_opts)}
    assert {"--output_dir", "--config_file", "--set_output_tensors", "--op_packages", "--profiling_level"} <= spelled
    assert not [flag for flag in spelled if "-" in flag.removeprefix("--")]


def throughput(folder: Path, thread: dict[str, Any], **model: Any) -> dict[str, Any]:
    plan = {
        "backends": [
            {"backendName": "h", "backendPath": "libQnnHtp.so", "perfProfile": "burst", "profilingLevel": "OFF"}
        ],
        "models": [{"modelName": "m", "modelPath": "a.onnx", **model}],
        "contexts": [{"contextName": "c"}],
        "testCase": {
            "iteration": 1,
            "threads": [{"threadName": "t", "backend": "h", "context": "c", "model": "m", **thread}],
        },
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    tool("qnn-throughput-net-run", "--config", "plan.json", "--output", "made.json")
    return dict(json.loads((folder / "made.json").read_text())["threads"][0])


def test_a_throughput_plan_of_random_data_with_a_config_of_its_thread(folder: Path) -> None:
    Path("htp.json").write_text('{"graphs": {"vtcm_mb": 8}, "devices": [{"dsp_arch": "v75"}]}')
    row = throughput(folder, {"useRandomData": True, "loop": 3, "backendConfig": "htp.json"})
    assert row["inferences"] == 3
    with pytest.raises(CallError, match="or let thread 't' have useRandomData"):
        throughput(folder, {"loop": 1})


def test_a_throughput_plan_saves_all_or_the_last(folder: Path) -> None:
    Path("list.txt").write_text("one.raw\nfour.raw\n")
    throughput(folder, {"loop": 3}, inputPath="list.txt", saveOutput="FLOAT_ALL", outputPath="all")
    assert sorted(path.name for path in Path("all/t").iterdir()) == ["Result_0", "Result_1"]
    assert Path("all/t/Result_1/logits.raw").read_bytes() == expected().tobytes()
    throughput(folder, {"loop": 3}, inputPath="list.txt", saveOutput="NATIVE_LAST", outputPath="last")
    assert Path("last/t/Result_2/logits_native.raw").read_bytes() == expected()[:1].tobytes()
