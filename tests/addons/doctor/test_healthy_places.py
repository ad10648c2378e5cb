# SPDX-License-Identifier: Apache-2.0
"""Folders, apps, logs and a virtual phone that are as they should be: the doctor finds no fault in any of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto
from typer.testing import CliRunner

from hexforge.addons.doctor import examination
from hexforge.addons.doctor.commands import doctor, versions
from hexforge.addons.doctor.examination import examine_log, examine_path
from hexforge.addons.phone.phones import VARIABLE, add_phone
from hexforge.chips.soc import SESSION_BYTES, find_chip
from hexforge.cli.request_options import CommandGroup
from tests.addons.doctor import made
from tests.addons.doctor.made import HEXAGON, PAGE_4, PAGE_16, library, qnn
from tests.addons.doctor.test_broken_places import LIBS, Files, whole, windows

FOLDERS: dict[str, tuple[Callable[[], Files], str]] = {
    "a folder to push": (whole, ""),
    "the same for the chip of its context": (whole, "Galaxy S24"),
    "libraries alone": (lambda: qnn(79), "SM8750"),
    "libraries of several chips": (lambda: {**qnn(75), **qnn(79), **made.contexts()}, ""),
    "a graph with Prepare": (lambda: qnn(75) | {"m.onnx": made.graph_model()}, "SM8650"),
    "bfloat16 on the chip that began it": (
        lambda: qnn(81) | {"m.onnx": made.graph_model(TensorProto.BFLOAT16)}, "X2 Elite",
    ),
    "floats on the 8 Gen 2": (lambda: qnn(73) | {"m.onnx": made.graph_model()}, "8 Gen 2"),
    "Windows on ARM": (windows, "X Elite"),
    "a model alone": (lambda: {"model.onnx": made.graph_model()}, ""),
    "no NPU at all": (lambda: {"README.md": b"hello", "main.py": b"print(1)\n"}, ""),
    "Python's pair": (lambda: {"requirements.txt": b"onnxruntime==1.29.0\nonnxruntime-qnn==2.7.0\nnumpy\n"}, ""),
    "settings within the chip": (
        lambda: {"c.json": made.settings(graphs=[{"vtcm_mb": 0}], devices=[{"soc_id": 57, "pd_session": "no"}])}, "",
    ),
    "one ADSP_LIBRARY_PATH": (
        lambda: whole() | {"run.sh": b'export ADSP_LIBRARY_PATH="/data/local/tmp/a;/vendor/dsp"\n',
                           "again.sh": b'export ADSP_LIBRARY_PATH="/data/local/tmp/a;/vendor/dsp"\n'}, "",
    ),
    "an older context": (
        lambda: {f"qairt/2.51.0/{n}": d for n, d in qnn(75).items()} | made.contexts(qairt="2.48.40"), "",
    ),
    "a project": (made.project, ""),
    "a project with its context": (lambda: made.project() | made.contexts("app/src/main/assets/SM8650", "2.51.0"), ""),
    "a project with the provider inside": (
        lambda: made.project("com.microsoft.onnxruntime:onnxruntime-android-qnn:1.24.3"), "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FOLDERS)
def test_a_healthy_folder(case: str, tmp_path: Path) -> None:
    files, chip = FOLDERS[case]
    assert examine_path(made.folder(tmp_path / "place", files()), find_chip(chip)).findings == ()


Build = Callable[[Path], Path]
APPS: dict[str, Build] = {
    "an app": lambda path: made.apk(path, qnn(75, LIBS)),
    "an app with a context": lambda path: made.apk(path, qnn(75, LIBS) | made.contexts("assets/SM8650")),
    "an app with aligned libraries": lambda path: made.apk(
        path,
        {f"{LIBS}/libonnxruntime.so": library()},
        manifest=made.manifest_binary(extract=False),
        stored=True,
        page=PAGE_16,
    ),
    "an app with 4 KB pages on the DSP only": lambda path: made.apk(
        path, qnn(75, LIBS, libQnnHtpV75Skel=library(HEXAGON, PAGE_4))
    ),
    "an app without an NPU": lambda path: made.apk(
        path, {f"{LIBS}/libgame.so": library()}, manifest=made.manifest_binary(native=None)
    ),
    "a bundle": lambda path: made.apk(
        path.with_suffix(".aab"),
        {
            "base/manifest/AndroidManifest.xml": made.manifest_proto(),
            **qnn(75, f"base/{LIBS}", libQnnHtpV75Skel=library(HEXAGON, PAGE_16)),
        },
        manifest=made.manifest_proto(),
    ),
}


@pytest.mark.parametrize("case", APPS)
def test_a_healthy_app(case: str, tmp_path: Path) -> None:
    assert examine_path(APPS[case](tmp_path / "app.apk")).findings == ()


def test_a_log_without_a_fault() -> None:
    assert examine_log("logcat.txt", "I onnxruntime: session created\nI QnnDsp  <I> QnnDevice_create done\n").healthy


def test_there_are_enough_of_them() -> None:
    assert len(FOLDERS) + len(APPS) + 1 >= 20


def test_what_is_only_advice_is_healthy(tmp_path: Path) -> None:
    path = made.apk(tmp_path / "app.apk", qnn(75, LIBS), manifest=made.manifest_binary(native=True))
    report = examine_path(path)
    assert [finding.id for finding in report.findings] == ["libcdsprpc-required"]
    assert report.healthy


def test_a_context_of_another_chip_is_advice_and_its_chip_is_what_the_provider_wrote(tmp_path: Path) -> None:
    model = onnx.ModelProto.FromString(made.context_model("v2.51.0.260929181845"))
    entry = model.metadata_props.add()
    entry.key, entry.value = "ep_compatibility_info.QNN", "v2:6:2.51.0:5.51.0:0:43:0:0"
    files = qnn(75) | {"model_ctx.onnx": model.SerializeToString(), "model_ctx.bin": bytes(8)}
    place = made.folder(tmp_path / "place", files)
    report = examine_path(place, find_chip("SM8650"))
    assert [symptom.id for symptom in report.findings] == ["context-other-chip"]
    assert report.findings[0].found == "model_ctx.onnx is for SM8550 (v73), and SM8650 is v75."
    assert report.healthy


def test_a_virtual_phone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "phones"))
    add_phone("emulated-1", "SM8650")
    done = CliRunner().invoke(app, ["--device", "-s", "emulated-1"], env={"COLUMNS": "240"})
    assert done.exit_code == 0, done.output
    assert "chip SM8650" in done.stdout
    other = made.folder(tmp_path / "place", qnn(79) | made.contexts("SM8750"))
    done = CliRunner().invoke(app, [str(other), "-s", "emulated-1"], env={"COLUMNS": "240"})
    assert done.exit_code == 1
    assert "is for SM8750 (v79), and SM8650 is v75" in done.stdout


def test_a_binary_that_no_session_can_map(tmp_path: Path) -> None:
    place = made.folder(tmp_path / "place", whole())
    with (place / "SM8650" / "model_ctx.bin").open("wb") as file:
        file.truncate(SESSION_BYTES + 1)
    assert [finding.id for finding in examine_path(place).faults] == ["dsp-memory"]


app = CommandGroup()
app.command()(doctor)


def test_the_command_tells_faults_and_ends_with_1(tmp_path: Path) -> None:
    place = made.folder(tmp_path / "place", whole(libQnnHtpV75Skel=None))
    done = CliRunner().invoke(app, [str(place)], env={"COLUMNS": "240"})
    assert done.exit_code == 1
    assert "fault stub-without-skel: libQnnHtpV75Stub is there" in done.stdout
    told = json.loads(CliRunner().invoke(app, [str(place), "--json"]).stdout)
    assert told["healthy"] is False
    assert told["findings"][0].keys() == {"level", "id", "found", "would_work", "evidence"}
    fine = CliRunner().invoke(app, [str(made.folder(tmp_path / "fine", whole())), "--machine"], env={"COLUMNS": "240"})
    assert "Nothing was found that would stop the session." in fine.stdout


def test_the_command_wants_something_to_examine(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, []).exit_code != 0
    assert CliRunner().invoke(app, [str(tmp_path / "nothing")]).exit_code != 0


def test_versions_are_listed() -> None:
    listed = CommandGroup()
    listed.command()(versions)
    text = CliRunner().invoke(listed, ["com.qualcomm"], env={"COLUMNS": "200"}).stdout
    assert "2.7.0" in text
    assert "2.51.0" in text
    rows = json.loads(CliRunner().invoke(listed, ["--json"]).stdout)
    assert all(row["source"].startswith(("https://", "none: ")) for row in rows)
    assert {row["context_blob"] for row in rows} == {"", "3.3 or older", "4.0"}
    assert CliRunner().invoke(listed, ["tensorflow"]).exit_code != 0


def test_what_a_deployment_keeps_of_it(tmp_path: Path) -> None:
    place = made.folder(tmp_path / "place", whole(libQnnSystem=None))
    assert [finding["id"] for finding in examination.findings_of_folder(place)] == ["no-system"]
