# SPDX-License-Identifier: Apache-2.0
"""Deployed folders: whole or not at all, with or without the package, proven and proven again."""

from __future__ import annotations

import errno
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from hexforge.addons.vendor import deploy as deploying
from hexforge.addons.vendor import process as process_module
from hexforge.addons.vendor.deploy import DeployRequest, deploy, verify
from hexforge.addons.vendor.folder import changed_files, read_manifest, read_samples, whole_folder
from hexforge.addons.vendor.package import find_package
from hexforge.errors import CallError, ExistingFileError, FormatError, ModelError, PackageError
from hexforge.model.reader import read
from hexforge.qnn_api import releases
from tests import ROOT
from tests.addons.vendor import HERE, needs_package, write_worker
from tests.addons.vendor.models import gated, sample, saved, small_chain
from tests.cli.test_cli import run

KOTLIN = "android/app/src/main/java/com/example/npu/NpuModel.kt"
REQUEST = DeployRequest(["SM8650", "Galaxy S25"], [sample(), sample(1)])


@pytest.fixture
def no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deploying, "find_package", lambda: None)


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".onnx" and path.name != "worker.py")


def test_without_the_package_all_but_the_contexts(no_package: None, tmp_path: Path) -> None:
    result = deploy(saved(small_chain(), tmp_path), tmp_path / "out", REQUEST)
    assert (result.package, result.contexts, result.proofs) == (None, {}, {})
    assert left_in(tmp_path) == ["out"]
    manifest = read_manifest(tmp_path / "out")
    assert manifest.make_contexts == "python make_contexts.py"
    assert (manifest.versions or {})["onnxruntime-qnn"] is None
    assert [chip.context_model for chip in manifest.chips.values()] == [None, None]
    assert list(manifest.chips) == ["SM8650", "SM8750"]
    assert {"run.py", "cpp/main.cpp", KOTLIN, "model.onnx", "samples.npz"} <= set(manifest.files)
    assert changed_files(tmp_path / "out", manifest) == []
    kept = read_samples(tmp_path / "out", read(tmp_path / "out" / "model.onnx").inputs)
    assert [np.array_equal(a["x"], b["x"]) for a, b in zip(kept, REQUEST.samples, strict=True)] == [True, True]
    assert onnx.load(tmp_path / "out" / "model.onnx").graph.output[0].name == "pool1_r"
    for name in ("run.py", "make_contexts.py"):
        compile((tmp_path / "out" / name).read_text(), name, "exec")
    assert '"soc_model" to "57",' in (tmp_path / "out" / KOTLIN).read_text()
    assert "@" not in (tmp_path / "out" / "cpp" / "main.cpp").read_text()
    assert manifest.doctor == ()
    assert (manifest.versions or {})["android"]["qairt"] == "2.51.0"


def test_the_android_project_is_one_that_the_doctor_passes(no_package: None, tmp_path: Path) -> None:
    deploy(saved(small_chain(), tmp_path), tmp_path / "out", REQUEST)
    project = tmp_path / "out" / "android"
    assert run("doctor", str(project), "--soc", "SM8650") == 0
    build = (project / "app" / "build.gradle.kts").read_text()
    pins = re.findall(r'implementation\("([\w.-]+:[\w.-]+):([\w.]+)"\)', build)
    assert [releases.qairt_of(name, version) for name, version in pins] == ["", "2.51.0"]
    plugin = releases.release_of(*pins[1])
    assert plugin is not None
    assert plugin.onnxruntime == pins[0][1]
    for path in project.rglob("*.kt*"):
        text = path.read_text()
        assert "@" not in re.sub(r"@\w+\(", "", text), path
        assert all(text.count(start) == text.count(end) for start, end in ("{}", "()", "[]")), path
    assert 'Os.setenv("ADSP_LIBRARY_PATH", libraries, true)' in (tmp_path / "out" / KOTLIN).read_text()
    (project / "app" / "build.gradle.kts").write_text(build.replace("2.7.0", "2.4.0").replace("= true", "= false"))
    (project / "app" / "src" / "main" / "AndroidManifest.xml").write_text("<manifest><application/></manifest>")
    assert run("doctor", str(project), "--soc", "SM8650") == 1


@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no cmake")
def test_the_presets_are_read_by_cmake_and_want_an_onnxruntime(no_package: None, tmp_path: Path) -> None:
    deploy(saved(small_chain(), tmp_path), tmp_path / "out", REQUEST)
    listed = subprocess.run(
        ["cmake", "--list-presets"], cwd=tmp_path / "out" / "cpp", capture_output=True, text=True, check=False
    )
    assert listed.returncode == 0, listed.stderr
    presets = json.loads((tmp_path / "out" / "cpp" / "CMakePresets.json").read_text())["configurePresets"]
    assert [preset["name"] for preset in presets] == ["android-arm64", "windows-arm64", "linux"]
    made = subprocess.run(
        ["cmake", "--preset", "linux"], cwd=tmp_path / "out" / "cpp", capture_output=True, text=True, check=False
    )
    assert made.returncode != 0
    assert "has no folder 'include'" in " ".join(made.stderr.split())


HEADERS = ROOT / ".venv-vendor" / "include" / "onnxruntime"


@pytest.mark.skipif(not HEADERS.is_dir() or shutil.which("c++") is None, reason="onnxruntime's headers: make vendor")
def test_the_program_in_cpp_is_taken_by_a_compiler(no_package: None, tmp_path: Path) -> None:
    deploy(saved(small_chain(), tmp_path), tmp_path / "out", REQUEST)
    source = tmp_path / "out" / "cpp" / "main.cpp"
    command = [
        "c++",
        "-std=c++17",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-isystem",
        str(HEADERS),
        str(source),
    ]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr


def test_the_command_without_the_package(no_package: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved(small_chain(), tmp_path)
    given = ("deploy", str(model), "--soc", "SM8650", "-o", str(tmp_path / "out"))
    assert run(*given) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "everything but the contexts" in said
    assert "python make_contexts.py" in said
    assert "<html" in (tmp_path / "out" / "report.html").read_text()
    assert run(*given) != 0
    assert "is there already" in capsys.readouterr().err
    assert run(*given, "--overwrite", "--json") == 0
    assert json.loads(capsys.readouterr().out)["make"] == "python make_contexts.py"
    assert left_in(tmp_path) == ["out"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("def answer(job): os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
        ("def answer(job): time.sleep(600)", "gave no answer within 0.5 s"),
    ],
)
def test_a_package_that_dies_or_hangs_leaves_no_folder(
    body: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_module, "WORKER", write_worker(tmp_path, body))
    monkeypatch.setattr(deploying, "find_package", lambda: HERE)
    monkeypatch.setattr(deploying, "require_package", lambda: HERE)
    request = DeployRequest(["SM8650"], [sample()], limits=process_module.ProcessLimits(0.5))
    with pytest.raises(PackageError, match=words):
        deploy(saved(small_chain(), tmp_path), tmp_path / "out", request)
    assert left_in(tmp_path) == []


def test_a_model_that_is_refused_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "def answer(job): return {'error': 'QNN says no', 'kind': 'Fail'}"
    monkeypatch.setattr(process_module, "WORKER", write_worker(tmp_path, body))
    monkeypatch.setattr(deploying, "find_package", lambda: HERE)
    monkeypatch.setattr(deploying, "require_package", lambda: HERE)
    with pytest.raises(ModelError, match="refuses it: QNN says no"):
        deploy(saved(small_chain(), tmp_path), tmp_path / "out", REQUEST)
    assert left_in(tmp_path) == []


@pytest.mark.parametrize("stop", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_an_interrupt_leaves_what_was_there(
    stop: BaseException, no_package: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(small_chain(), tmp_path)
    deploy(model, tmp_path / "out", REQUEST)
    before = {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()}

    def fail(*given: Any) -> None:
        raise stop

    monkeypatch.setattr(deploying, "write_manifest", fail)
    again = DeployRequest(["SM8550"], [sample()], overwrite=True)
    expected = CallError if isinstance(stop, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        deploy(model, tmp_path / "out", again)
    with pytest.raises(expected):
        deploy(model, tmp_path / "new", again)
    assert {p: p.read_bytes() for p in (tmp_path / "out").rglob("*") if p.is_file()} == before
    assert left_in(tmp_path) == ["out"]


def test_a_folder_that_is_named_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's process works in a folder of its own, so every path that it is given is absolute."""
    monkeypatch.chdir(tmp_path)
    with whole_folder(Path("out")) as staging:
        assert staging.is_absolute()
    assert (tmp_path / "out").is_dir()


def test_folders_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(ExistingFileError, match="is there already"), whole_folder(tmp_path / "mine"):
        pass
    with pytest.raises(CallError, match="is no folder that hexforge deployed"), whole_folder(tmp_path / "mine", True):
        pass
    assert (tmp_path / "mine" / "letter.txt").read_text() == "dear"


def test_chips_and_nodes_are_checked_first(no_package: None, tmp_path: Path) -> None:
    model = saved(small_chain(), tmp_path)
    with pytest.raises(CallError, match="or one twice"):
        deploy(model, tmp_path / "out", DeployRequest(["SM8650", "Galaxy S24"], [sample()]))
    text = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> m (float[2] x) => (float[2] y) {y = Erf(x)}'
    )
    with pytest.raises(ModelError, match="takes no node"):
        deploy(saved(text, tmp_path, "erf.onnx"), tmp_path / "out", DeployRequest(["SM8650"], [{"x": np.ones(2)}]))
    assert left_in(tmp_path) == []


def test_what_was_changed_is_named(no_package: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    deploy(saved(small_chain(), tmp_path), out, REQUEST)
    (out / "run.py").write_text("print()")
    (out / "requirements.txt").unlink()
    (out / "numpy.py").write_text("print()")
    result = verify(out)
    assert set(result.changed) == {
        "run.py is not what was deployed", "requirements.txt is missing", "numpy.py was added",
    }  # fmt: skip
    assert result.missing == ("SM8650", "SM8750")
    assert run("verify", str(out)) == 1
    assert "run.py is not what was deployed" in capsys.readouterr().out


def test_without_the_package_the_checksums_are_said_first(
    no_package: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    deploy(saved(small_chain(), tmp_path), out, REQUEST)
    monkeypatch.setattr("hexforge.addons.vendor.package.find_package", lambda: None)
    assert run("verify", str(out)) == 2
    assert "files are as deployed; the rest is not proven: onnxruntime-qnn: is not installed" in capsys.readouterr().err


def test_every_chip_leaves_out_those_that_take_nothing(no_package: None, tmp_path: Path) -> None:
    text = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 17]> m (float[2] x) => (float[2] y) {y = Relu(x)}'
    )
    out = tmp_path / "out"
    assert run("deploy", str(saved(text, tmp_path, "relu.onnx")), "--soc", "all", "-o", str(out)) == 0
    chips = read_manifest(out).chips
    assert "SM8650" in chips
    assert "SM7350" not in chips  # which has no float math
    request = DeployRequest(["SM8650", "SM7350"], [{"x": np.ones(2, np.float32)}], only_possible=True)
    result = deploy(tmp_path / "relu.onnx", tmp_path / "two", request)
    assert list(result.left_out) == ["SM7350"]
    assert "takes no node of it on SM7350" in result.left_out["SM7350"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '{"format": 1, "model": "../m", "chips": {}, "files": {}}', '{"format": 9}']
)
def test_manifests_are_not_trusted(text: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="has no manifest"):
        verify(tmp_path)
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(FormatError, match="damaged one"):
        verify(tmp_path)


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m.update(chips=[]),
        lambda m: m.update(chips={}),
        lambda m: m["chips"].update(SM8650=3),
        lambda m: m["chips"]["SM8650"].update(context_model=[1]),
        lambda m: m["chips"]["SM8650"].update(context_model="/etc/passwd"),
        lambda m: m["chips"]["SM8650"].pop("context_model"),
        lambda m: m["chips"]["SM8650"].update(provider_options={"soc_model": 57}),
        lambda m: m["chips"].update({"C:\\x": m["chips"]["SM8650"]}),
        lambda m: m.update(files=[]),
        lambda m: m["files"].update({"run.py": 3}),
        lambda m: m["files"]["run.py"].pop("sha256"),
        lambda m: m["files"]["run.py"].update(bytes="9"),
        lambda m: m["files"].update({"../run.py": m["files"]["run.py"]}),
        lambda m: m["files"].update({"a\0b": m["files"]["run.py"]}),
        lambda m: m.update(more=1),
    ],
)
def test_a_manifest_that_was_edited_badly_is_a_damaged_one(edit: Any, no_package: None, tmp_path: Path) -> None:
    out = tmp_path / "out"
    deploy(saved(small_chain(), tmp_path), out, DeployRequest(["SM8650"], [sample()]))
    manifest = json.loads((out / "manifest.json").read_text())
    edit(manifest)
    (out / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(FormatError, match="is no manifest, or a damaged one"):
        verify(out)


def test_what_has_no_checksum_is_named(no_package: None, tmp_path: Path) -> None:
    out = tmp_path / "out"
    deploy(saved(small_chain(), tmp_path), out, DeployRequest(["SM8650"], [sample()]))
    manifest = json.loads((out / "manifest.json").read_text())
    long = "x" * 5000
    manifest["files"] = {long: {"bytes": 1, "sha256": ""}}
    (out / "manifest.json").write_text(json.dumps(manifest))
    unknown = [f"{name} has no checksum in manifest.json" for name in ("model.onnx", "samples.npz")]
    changed = verify(out).changed
    assert changed[:3] == (*unknown, f"{long} is missing")
    assert all(fault.endswith(" was added") for fault in changed[3:])


@pytest.mark.parametrize(
    ("arrays", "fault"),
    [
        ({"0/x": np.zeros((20_000, 1_000), np.float32)}, "must be"),
        ({"0/y": np.zeros(4, np.float32)}, "has no place here"),
        ({"7/x": None}, "does not hold the model's inputs"),
        ({"0/x": None, "x": np.zeros(4, np.float32)}, "has no place here"),
        ({"0/x": np.array([None])}, "must be"),
    ],
)
def test_samples_of_a_folder_are_of_its_model(arrays: dict[str, Any], fault: str, tmp_path: Path) -> None:
    inputs = read(saved(small_chain(), tmp_path)).inputs
    (name,) = sample()
    arrays = {key.replace("x", name): sample()[name] if value is None else value for key, value in arrays.items()}
    np.savez_compressed(tmp_path / "samples.npz", **arrays)
    with pytest.raises(FormatError, match=fault):
        read_samples(tmp_path, inputs)
    whole = (tmp_path / "samples.npz").read_bytes()
    (tmp_path / "samples.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match=r"samples\.npz"):
        read_samples(tmp_path, inputs)


class TestInstalled:
    pytestmark = needs_package

    def test_a_folder_that_is_proven_runs_and_is_proven_again(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out"
        given = ("deploy", str(saved(small_chain(), tmp_path)), "--soc", "SM8650", "-o", str(out), "--no-groups")
        assert run(*given, "--json") == 0
        said = json.loads(capsys.readouterr().out)
        proof = said["proofs"]["SM8650"]
        assert (said["holds"], proof["context_loads"], proof["placement"]["alike"]) == (True, True, True)
        assert proof["tensors_that_agree"] == proof["tensors_compared"] == 5
        assert {"SM8650/model_ctx.onnx", "SM8650/model_ctx_qnn.bin"} <= set(read_manifest(out).files)
        assert verify(out).holds
        package = find_package()
        assert package is not None
        done = subprocess.run([package.python, out / "run.py"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "model_ctx.onnx on SM8650" in done.stdout
        assert "pool1_r: float32 [1, 8, 5, 5]" in done.stdout

    def test_contexts_made_elsewhere_are_proven(self, no_package: None, tmp_path: Path) -> None:
        out = tmp_path / "out"
        deploy(saved(small_chain(), tmp_path), out, DeployRequest(["SM8650"], [sample()]))
        assert not verify(out).holds
        package = find_package()
        assert package is not None
        done = subprocess.run([package.python, out / "make_contexts.py"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        result = verify(out)
        assert result.holds
        assert result.proofs["SM8650"].context_loads

    def test_a_group_that_differs_is_written_down(self, tmp_path: Path) -> None:
        out = tmp_path / "out"
        result = deploy(saved(gated(), tmp_path), out, DeployRequest(["SM8650"], [sample()]))
        groups = result.proofs["SM8650"].groups
        assert groups is not None
        assert [group.title for group in groups] == ["Conv + Sigmoid + Mul"]
        assert groups[0].judged.verdict == "hexforge is nearer to onnxruntime"
        assert groups[0].judged.hexforge_onnxruntime.agree
        path = next((out / "SM8650" / "disagreements").glob("*_Conv_Sigmoid_Mul.onnx"))
        kinds = [n.op_type for n in onnx.load(path).graph.node if not n.op_type.endswith("Linear")]
        assert kinds == ["Conv", "Sigmoid", "Mul"]
        with np.load(path.with_suffix(".npz")) as file:
            assert file.files == ["x_q"]
