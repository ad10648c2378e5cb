# SPDX-License-Identifier: Apache-2.0
"""The vendor's tools on the demo's model: their files, their flags, and what is wrong with bad ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.profiler import log
from hexforge.addons.tools import tool_command
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType, text
from tests import ROOT
from tests.models import showcase

MODEL = ROOT / "tests" / "digits" / "digits.onnx"
PICTURES = np.load(MODEL.with_name("digits_heldout.npz"))["pictures"].astype(np.float32)[:4]


def tool(name: str, *arguments: str) -> None:
    tool_command(name).main(list(arguments), standalone_mode=False)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with raw inputs, a list of them, and config files; the tools run in it."""
    monkeypatch.chdir(tmp_path)
    for i, picture in enumerate(PICTURES):
        picture[None].tofile(tmp_path / f"in{i}.raw")
    (tmp_path / "list.txt").write_text("".join(f"in{i}.raw\n" for i in range(len(PICTURES))))
    (tmp_path / "tool.json").write_text(
        '{"backend_extensions": {"shared_library_path": "libQnnHtpNetRunExtensions.so", // the library\n'
        '"config_file_path": "htp.json"}}'
    )
    (tmp_path / "htp.json").write_text('{"graphs": [{"vtcm_mb": 8, "O": 3}], "devices": [{"soc_model": 57}]}')
    return tmp_path


def expected() -> list[np.ndarray]:
    session = hexforge.InferenceSession(
        str(MODEL), providers=[("QNNExecutionProvider", {"backend_type": "htp", "soc_model": "57"})]
    )
    return [session.run(None, {"image": picture[None]})[0] for picture in PICTURES]


def results(path: Path, name: str = "logits.raw") -> list[np.ndarray]:
    return [np.fromfile(path / f"Result_{i}" / name, np.float32) for i in range(len(PICTURES))]


NET_RUN = ("--model", str(MODEL), "--backend", "/sdk/lib/libQnnHtp.so", "--input_list", "list.txt")


@pytest.mark.feature("qnn-net-run", guide="1194-1200, 1800, 2433-2449")
def test_raw_outputs_are_the_sessions_bytes(folder: Path) -> None:
    tool("qnn-net-run", *NET_RUN, "--config_file", "tool.json", "--output_data_type", "float_and_native")
    for ours, theirs in zip(results(folder / "output"), expected(), strict=True):
        assert ours.tobytes() == theirs.tobytes()
    for ours, theirs in zip(results(folder / "output", "logits_native.raw"), expected(), strict=True):
        assert ours.tobytes() == theirs.tobytes()


@pytest.mark.feature("qnn-context-binary-utility", guide="257, 299")
@pytest.mark.feature("qnn-context-binary-generator", guide="2411-2429, 3276-3285")
def test_a_prepared_context_gives_the_same_bytes(folder: Path) -> None:
    backend = ("--backend", "libQnnHtp.so", "--config_file", "tool.json")
    tool("qnn-context-binary-generator", "--model", str(MODEL), *backend, "--binary_file", "ctx", "--output_dir", "bin")
    tool("qnn-context-binary-utility", "--context_binary", "bin/ctx.bin", "--json_file", "ctx.json")
    assert json.loads((folder / "ctx.json").read_text())["info"]["socModel"] == 57
    retrieved = ("--retrieve-context", "bin/ctx.bin", "--input_list=list.txt", "--output_dir", "out")
    tool("qnn-net-run", *retrieved, *backend, "--perf-profile", "burst")
    for ours, theirs in zip(results(folder / "out"), expected(), strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_a_graph_text_takes_floats_and_integers(folder: Path) -> None:
    graph = Graph("doubled")
    type = TensorType(DType.UINT8, (1, 4), ScaleOffset(0.5, -2))
    read = graph.value("x", type, Role.APP_WRITE)
    written = graph.value("y", type, Role.APP_READ)
    graph.node("ElementWiseAdd", [read, read], [written])
    (folder / "doubled.txt").write_text(text.dumps(graph))
    np.array([0.5, 1, -1, 300], np.float32).tofile(folder / "float.raw")
    np.array([3, 4, 0, 255], np.uint8).tofile(folder / "native.raw")
    for kind in ("float", "native"):
        (folder / "list.txt").write_text(f"{kind}.raw\n")
        given = ("--model", "doubled.txt", "--backend", "libQnnHtp.so", "--input_list", "list.txt")
        types = ("--input_data_type", kind, "--output_data_type", "float_and_native")
        tool("qnn-net-run", *given, *types, "--output_dir", kind)
        native = np.fromfile(folder / kind / "Result_0" / "y_native.raw", np.uint8)
        real = np.fromfile(folder / kind / "Result_0" / "y.raw", np.float32)
        assert native.tolist() == [4, 6, 0, 255]
        assert real.tolist() == [1.0, 2.0, -1.0, 126.5]


@pytest.mark.feature("Variable batch at execute", guide="43-45")
def test_a_file_of_several_batches_runs_as_often(folder: Path) -> None:
    PICTURES.tofile(folder / "all.raw")
    (folder / "list.txt").write_text("image:=all.raw\n")
    tool("qnn-net-run", *NET_RUN, "--config_file", "tool.json", "--batch_multiplier", str(len(PICTURES)))
    whole = np.fromfile(folder / "output" / "Result_0" / "logits.raw", np.float32)
    assert whole.tobytes() == b"".join(one.tobytes() for one in expected())


def test_counts_and_kept_outputs(folder: Path) -> None:
    tool("qnn-net-run", *NET_RUN, "--num_inferences", "9", "--keep_num_outputs", "2")
    assert sorted(path.name for path in (folder / "output").iterdir()) == ["Result_0", "Result_1"]


@pytest.mark.feature("Batch and threads", guide="2949-2967")
@pytest.mark.feature("qnn-throughput-net-run", guide="1341-1377")
def test_throughput_of_two_threads(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = {"modelName": "digits", "modelPath": str(MODEL), "inputPath": "list.txt", "saveOutput": "FLOAT_LAST"}
    thread = {"backend": "htp", "model": "digits", "loop": 5}
    plan = {
        "backends": [{"backendName": "htp", "backendPath": "QnnHtp.dll", "perfProfile": "BURST"}],
        "models": [model],
        "testCase": {"threads": [{"threadName": name, **thread} for name in ("one", "two")]},
    }
    (folder / "plan.json").write_text(json.dumps(plan))
    tool("qnn-throughput-net-run", "--config", "plan.json", "--output", "done.json")
    done = json.loads((folder / "done.json").read_text())
    assert [row["inferences"] for row in done["threads"]] == [5, 5]
    kept = np.fromfile(folder / "output" / "two" / "Result_4" / "logits.raw", np.float32)
    assert kept.tobytes() == expected()[0].tobytes()
    plan["testCase"]["threads"][0]["model"] = "digit"  # type: ignore[index]
    (folder / "plan.json").write_text(json.dumps(plan))
    with pytest.raises(CallError, match="no model 'digit' is defined"):
        tool("qnn-throughput-net-run", "--config", "plan.json")


@pytest.mark.feature("Graph priority", guide="3178-3240")
def test_priorities_of_a_throughput_test_act_on_the_simulated_chip(folder: Path) -> None:
    (folder / "large.onnx").write_bytes(showcase.sub(64)[0])
    plan: dict[str, Any] = {
        "backends": [{"backendName": "htp", "backendPath": "libQnnHtp.so"}],
        "models": [{"modelName": "large", "modelPath": "large.onnx"}],
        "testCase": {
            "threads": [
                {"threadName": name, "backend": "htp", "model": "large", "context": name, "useRandomData": True}
                for name in ("one", "two")
            ]
        },
    }
    means = []
    for first, second in (("high", "low"), ("low", "high"), ("normal", "normal")):
        plan["contexts"] = [{"contextName": n, "priority": p} for n, p in (("one", first), ("two", second))]
        (folder / "plan.json").write_text(json.dumps(plan))
        tool("qnn-throughput-net-run", "--config", "plan.json", "--output", "done.json")
        rows = json.loads((folder / "done.json").read_text())["on_chips"]
        assert [row["priority"] for row in rows] == [first, second]
        means.append([row["mean_ms"] for row in rows])
    (high, low), (low_first, high_second), (one, two) = means
    assert high < low
    assert high_second < low_first
    assert one == pytest.approx(two, rel=0.3)
    del plan["contexts"], plan["testCase"]["threads"][0]["context"], plan["testCase"]["threads"][1]["context"]
    (folder / "plan.json").write_text(json.dumps(plan))
    tool("qnn-throughput-net-run", "--config", "plan.json", "--output", "done.json")
    assert "on_chips" not in json.loads((folder / "done.json").read_text())


def test_a_context_in_the_place_of_a_dlc(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What ExecuTorch hands over under online_prepare: the commands of its QnnTool, one after the other."""
    made = ("--backend", "libQnnHtp.so", "--binary_file")
    tool("qnn-context-binary-generator", "--model", str(MODEL), *made, "ctx", "--output_dir", ".")
    (folder / "ctx.bin").rename(folder / "digits_0.dlc")
    traced = ("--profiling_level", "detailed", "--profiling_option", "optrace")
    dlc = ("--model", "libQnnModelDlc.so", "--dlc_path", "digits_0.dlc")
    tool("qnn-context-binary-generator", *dlc, *made, "digits.serialized", "--output_dir", ".", *traced)
    assert "is prepared already" in capfd.readouterr().err
    assert (folder / "digits.serialized.bin").read_bytes() == (folder / "digits_0.dlc").read_bytes()
    where = ("--retrieve_context", "digits.serialized.bin", "--input_list", "list.txt")
    tool("qnn-net-run", "--backend", "libQnnHtp.so", *where, *traced)
    reader = ("--reader", "libQnnHtpOptraceProfilingReader.so", "--schematic", "digits_schematic.bin")
    seen = ("--input_log", "output/qnn-profiling-data_0.log", "--output", "optrace_0.json")
    (folder / "features.json").write_text('{"features": {"qhas_json": true}}')
    tool("qnn-profile-viewer", "--config", "features.json", *reader, *seen)
    assert json.loads((folder / "optrace_0.json").read_text())
    assert json.loads((folder / "optrace_0_qnn_htp_analysis_summary.json").read_text())
    with pytest.raises(CallError, match="is taken alone"):
        tool("qnn-context-binary-generator", "--dlc_path", "digits_0.dlc,digits_0.dlc", *made, "two")


@pytest.mark.feature("Basic profile", guide="1660-1668")
@pytest.mark.feature("Detailed profile", guide="1747")
def test_profiles_are_logs_that_read_back(folder: Path) -> None:
    (folder / "htp.json").write_text('{"devices": [{"soc_model": 57, "profiling_level": "linting"}]}')
    config = ("--config_file", "tool.json")
    tool("qnn-net-run", *NET_RUN, *config, "--profiling_level", "backend")
    found = log.read(folder / "output" / "qnn-profiling-data_0.log")
    assert found.level == "linting"
    assert [len(graph.runs) for graph in found.graphs] == [len(PICTURES)]
    traced = ("--profiling_level", "detailed", "--profiling_option", "optrace")
    tool("qnn-net-run", *NET_RUN, *config, *traced)
    assert log.read(folder / "output" / "qnn-profiling-data.log").level == "optrace"
    made = ("--model", str(MODEL), "--backend", "libQnnHtp.so", "--binary_file", "ctx")
    tool("qnn-context-binary-generator", *made, *config, *traced)
    assert not log.read(folder / "digits_schematic.bin").graphs[0].runs
    assert log.read(folder / "output" / "qnn-profiling-data_0.log").level == "optrace"
    with pytest.raises(CallError, match="did you mean 'detailed'"):
        tool("qnn-net-run", *NET_RUN, "--profiling_level", "detaild")
    with pytest.raises(CallError, match="needs --profiling_level"):
        tool("qnn-net-run", *NET_RUN, "--profiling_option", "optrace")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("–-model", "x"), "typographic"),
        (("--modle", "x"), "did you mean '--model'"),
        (("--model", "absent.onnx"), "no such file"),
        (("--model", "libmodel.so"), "compiled with the vendor's SDK"),
        (("--model", "model.dlc"), "DLC of Qualcomm's converter"),
        (("--model", str(MODEL), "--retrieve_context", "x.bin"), "give one of"),
        (("--backend", "libQnnHtpp.so"), "did you mean 'libQnnHtp.so'"),
        (("--input_list", "absent.txt"), "cannot be read"),
        (("--input_list", "short.txt"), "has 100 bytes"),
        (("--input_list", "many.txt"), "give one for each"),
        (("--input_list", "empty.txt"), "names no files"),
        (("--input_list", "list.txt,list.txt"), "has 2 lists"),
        (("--set_output_tensors", "digits:logit"), "no tensor 'logit'"),
        (("--config_file", "absent.json"), "there is no such file"),
    ],
)
def test_bad_calls_are_said_and_write_nothing(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    for name in ("libmodel.so", "model.dlc", "x.bin", "empty.txt"):
        (folder / name).touch()
    (folder / "model.dlc").write_bytes(b"PK\3\4")  # the vendor's are archives
    (folder / "short.raw").write_bytes(bytes(100))
    (folder / "short.txt").write_text("short.raw\n")
    (folder / "many.txt").write_text("in0.raw in1.raw\n")
    given = dict(zip(NET_RUN[::2], NET_RUN[1::2], strict=True)) | dict(
        zip(arguments[::2], arguments[1::2], strict=True)
    )
    with pytest.raises(HexforgeError, match=words):
        tool("qnn-net-run", *(word for pair in given.items() for word in pair))
    assert not (folder / "output").exists()


def test_a_vendors_binary_is_refused_with_words(folder: Path) -> None:
    (folder / "vendor.bin").write_bytes(bytes(range(256)) * 64)
    backend = ("--backend", "libQnnHtp.so")
    with pytest.raises(FormatError, match="no context of hexforge"):
        tool("qnn-net-run", "--retrieve_context", "vendor.bin", *backend, "--input_list", "list.txt")
    with pytest.raises(FormatError, match="no context of hexforge"):
        tool("qnn-context-binary-utility", "--context_binary", "vendor.bin", "--json_file", "x.json")


def test_flags_that_change_nothing_say_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tool("qnn-net-run", *NET_RUN, "--synchronous")
    assert "--synchronous changes nothing" in capsys.readouterr().err


def test_keys_of_another_tool_are_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "htp.json").write_text('{"context": {"weight_sharing_enabled": true}}')
    tool("qnn-net-run", *NET_RUN, "--config_file", "tool.json")
    assert "is not read by qnn-net-run, but by qnn-context-binary-generator" in capsys.readouterr().err
