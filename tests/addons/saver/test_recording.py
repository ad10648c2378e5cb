# SPDX-License-Identifier: Apache-2.0
"""Recorded sessions: replayed bit for bit, read with suspicion, and made smaller until one node is left."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.capi.library import include_path, lib_path
from hexforge.addons.saver.minimise import Tolerance, minimise
from hexforge.addons.saver.recorded_graphs import RecordedSession, read_session
from hexforge.addons.saver.recording import PARAMS, SCRIPT, Recorder, Recording
from hexforge.addons.saver.replay import replay
from hexforge.backend import Program
from hexforge.backends.cpu import CpuBackend
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.ir import Array, Graph
from hexforge.runtime import registry
from tests import ROOT
from tests.cli.test_cli import run

MODEL = ROOT / "tests" / "digits" / "digits.onnx"
PICTURES = np.load(MODEL.with_name("digits_heldout.npz"))["pictures"].astype(np.float32)[:2]


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a session on htp that ran twice."""
    monkeypatch.chdir(tmp_path)
    options = {"backend_type": "htp", "soc_model": "57", "qnn_saver_path": "/sdk/lib/libQnnSaver.so"}
    session = hexforge.InferenceSession(str(MODEL), providers=[("QNNExecutionProvider", options)])
    plain = hexforge.InferenceSession(
        str(MODEL), providers=[("QNNExecutionProvider", {"backend_type": "htp", "soc_model": "57"})]
    )
    for picture in PICTURES:
        ours = session.run(None, {"image": picture[None]})[0]
        assert ours.tobytes() == plain.run(None, {"image": picture[None]})[0].tobytes()
    return tmp_path / "saver_output"


def read(folder: Path) -> RecordedSession:
    return read_session(Recording(folder))


def test_a_replay_is_bit_equal(recording: Path) -> None:
    session = read(recording)
    assert session.backend == "htp"
    rows = list(replay(session, registry.backend("htp", session.settings)))
    assert len(rows) == 2
    assert all(row.equal for row in rows)


def test_on_another_backend_it_is_near(recording: Path) -> None:
    rows = list(replay(read(recording), registry.backend("cpu")))
    assert all(row.sqnr_db > 40 for row in rows)


def test_saver_alone_records_the_default_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = {"backend_path": "libQnnSaver.so", "soc_model": "57"}
    session = hexforge.InferenceSession(str(MODEL), providers=[("QNNExecutionProvider", options)])
    session.run(None, {"image": PICTURES[:1]})
    assert read(tmp_path / "saver_output").backend == "htp"
    hexforge.InferenceSession(str(MODEL), providers=[("QNNExecutionProvider", options)])
    assert (tmp_path / "saver_output_1").is_dir()  # an earlier recording is kept


def test_the_path_must_name_a_saver() -> None:
    options = {"backend_type": "htp", "qnn_saver_path": "libQnnHtp.so"}
    with pytest.raises(ValueError, match=r"expected libQnnSaver\.so"):
        hexforge.ProviderOptions.parse(options)


def test_the_command_says_what_is_equal(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("replay", str(recording)) == 0
    assert "2 of 2 outputs on htp are bit-equal" in capsys.readouterr().out


class Broken(CpuBackend):
    """A backend with one wrong kernel, and one that is wrong only where two ops are compiled together."""

    name = "broken"

    def __init__(self, op: str, after: str = "") -> None:
        super().__init__()
        self._op, self._after = op, after

    def compile(self, graph: Graph) -> Any:
        program = super().compile(graph)
        wrong = [
            node.outputs[0].name
            for node in graph
            if node.op.name == self._op
            and (not self._after or any(v is not None and v.producer is not None
                 and v.producer.op.name == self._after for v in node.inputs))
        ]  # fmt: skip
        return _Off(program, graph, wrong)


class _Off:
    def __init__(self, program: Program, graph: Graph, wrong: list[str]) -> None:
        self.graph, self._program, self._wrong = graph, program, wrong

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        outputs = dict(self._program.run(feeds))
        if not self._wrong:
            return outputs
        for value in self.graph.outputs:  # what is wrong reaches every output after it
            outputs[value.name] = np.asarray(outputs[value.name] + outputs[value.name].dtype.type(3))
        return outputs


def test_a_wrong_kernel_is_minimised_to_its_node(recording: Path) -> None:
    recorded = next(g for g in read(recording).graphs.values() if g.executions)
    kinds = {node.op.name for node in recorded.graph}
    assert "FullyConnected" in kinds or "Conv2d" in kinds
    planted = "Conv2d" if "Conv2d" in kinds else "FullyConnected"
    found = minimise(recorded, Broken(planted), CpuBackend())
    assert [node.op.name for node in found.graph] == [planted]
    assert "is off by 3" in found.fault


def test_what_fails_only_together_stays_together(recording: Path) -> None:
    recorded = next(g for g in read(recording).graphs.values() if g.executions)
    pair = next(
        (producer.op.name, node.op.name)
        for node in recorded.graph
        for value in node.inputs
        if value is not None and (producer := value.producer) is not None
    )
    found = minimise(recorded, Broken(pair[1], after=pair[0]), CpuBackend())
    assert len(found.graph) == 2
    assert [node.op.name for node in found.graph] == list(pair)


def test_what_is_right_cannot_be_minimised(recording: Path) -> None:
    recorded = next(g for g in read(recording).graphs.values() if g.executions)
    with pytest.raises(CallError, match="nothing to minimise"):
        minimise(recorded, CpuBackend(), CpuBackend(), Tolerance(steps=0, relative=0))


def test_a_recording_that_a_crash_cut_off_is_read_as_far_as_it_goes(recording: Path) -> None:
    script = recording / SCRIPT
    text = script.read_text()
    script.write_text(text[: text.rindex("// QnnGraph_execute") + 20])
    session = read(recording)
    assert sum(len(g.executions) for g in session.graphs.values()) == 1


def test_damaged_recordings_are_errors_with_a_line(recording: Path) -> None:
    script, params = (recording / SCRIPT).read_bytes(), (recording / PARAMS).read_bytes()
    chance = random.Random(1)
    for number in range(300):
        damaged = bytearray(script if number % 2 else params)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        (recording / SCRIPT).write_bytes(damaged if number % 2 else script)
        (recording / PARAMS).write_bytes(params if number % 2 else damaged[: chance.randrange(len(damaged))])
        try:
            session = read(recording)
            list(replay(session, registry.backend("cpu")))
        except HexforgeError:
            pass


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
@pytest.mark.parametrize("option", ["-xc -std=c99", "-xc++ -std=c++17"])
def test_the_recording_is_c_that_runs_on_the_htp_library(recording: Path, option: str) -> None:
    program = build(recording, *option.split())
    environment = {**os.environ, "HEXFORGE_PYTHON": sys.executable}
    done = subprocess.run(
        [program, lib_path() / "libQnnHtp.so"], cwd=recording, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr + done.stdout
    assert [line.rpartition(": ")[2] for line in done.stdout.splitlines()] == ["same", "same"]


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_the_program_says_what_differs(recording: Path) -> None:
    script = recording / SCRIPT
    text = script.read_text()
    script.write_text(text.replace("set_data(&in[0], loaded(", "set_data(&in[0], loaded(4 + "))  # other pictures
    environment = {**os.environ, "HEXFORGE_PYTHON": sys.executable}
    done = subprocess.run(
        [build(recording), lib_path() / "libQnnHtp.so"], cwd=recording, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 2, done.stderr
    assert "different" in done.stdout
    missing = subprocess.run(
        [build(recording), "libMissing.so"], cwd=recording, capture_output=True, text=True, check=False
    )
    assert missing.returncode == 1
    assert "libMissing.so cannot be loaded" in missing.stderr


def build(folder: Path, *options: str) -> Path:
    """The program of a recording, without a warning."""
    compiler = "c++" if "-xc++" in options else "cc"
    command = [
        compiler,
        *(options or ("-std=c99",)),
        "-Wall",
        "-Wextra",
        "-Werror",
        f"-I{include_path()}",
        SCRIPT,
        "-ldl",
        "-o",
        "replay",
    ]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder / "replay"


def test_texts_of_any_kind_come_back(tmp_path: Path) -> None:
    names = ['a "b" \\ c', "naïve ⟨x⟩ \U0001f642", "line\nend\t", "??/", ""]
    recorder = Recorder(tmp_path / "r")
    place = recorder.put(b"bytes")
    recorder.call("QnnContext_create", "context_0")
    for name in names:
        recorder.call("QnnTensor_createGraphTensor", "graph_0", name, "QNN_TENSOR_TYPE_STATIC", "uint8[5]", place)
        recorder.call("QnnGraph_addNode", "graph_0", name, "p", "Op", {name: [1, 0.5, True]}, [name, None], [])
    calls = list(Recording(tmp_path / "r").calls())
    assert [call.arguments[1] for call in calls[1::2]] == names
    assert [call.arguments[4:] for call in calls[2::2]] == [({n: [1, 0.5, True]}, [n, None], []) for n in names]
    assert {call.arguments[4] for call in calls[1::2]} == {place}


def test_what_is_no_recording(tmp_path: Path) -> None:
    with pytest.raises(CallError, match="there is no such file"):
        Recording(tmp_path)
    (tmp_path / SCRIPT).write_text("int main() {}\n")
    (tmp_path / PARAMS).touch()
    with pytest.raises(FormatError, match="is no recording of hexforge"):
        read(tmp_path)
