# SPDX-License-Identifier: Apache-2.0
"""The commands as a user runs them: what they print, exit codes, errors without tracebacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from hexforge.cli import main
from hexforge.ir import text
from tests.digits import MODEL, held_out


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit:
        main(list(arguments))
    code = exit.value.code
    return int(code or 0)


def model(path: Path, nodes: list[onnx.NodeProto], batch: int | str = 1) -> Path:
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 4])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def refused(tmp_path: Path) -> Path:
    """A model with a node that QNN has no op for."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"], "first"),
        helper.make_node("Hardmax", ["r"], ["h"], "odd"),
        helper.make_node("Sigmoid", ["h"], ["y"], "last"),
    ]
    return model(tmp_path / "refused.onnx", nodes)


@pytest.fixture
def dynamic(tmp_path: Path) -> Path:
    return model(tmp_path / "dynamic.onnx", [helper.make_node("Relu", ["x"], ["y"], "relu")], "batch")


def test_check_places_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(MODEL), "--backend", "cpu", "--strict") == 0
    out = capsys.readouterr().out
    assert "Conv2d" in out
    assert "8 on QNN, 0 on the CPU" in out


def test_check_json(refused: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(refused), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    nodes = {row["node"]: row for row in found["nodes"]}
    assert nodes["first"]["qnn_ops"] == ["Relu"]
    assert nodes["odd"]["runs_on"] == "CPUExecutionProvider"
    assert "Hardmax" in nodes["odd"]["reason"]
    assert found["totals"]["refused"] == 1
    assert found["totals"]["placed"] == 2


def test_check_says_which_nodes_are_slow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"], "first"), helper.make_node("Bernoulli", ["r"], ["y"], "random")]
    path = str(model(tmp_path / "slow.onnx", nodes))
    assert run("check", path, "--soc", "SM8650", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    slow = {row["node"]: row["slow_ops"] for row in found["nodes"]}
    assert found["backend"] == {"backend_type": "htp", "soc_model": "SM8650"}
    assert slow["first"] == []
    assert "RandomUniformLike" in slow["random"]
    assert set(found["totals"]["slow_ops"]) == set(slow["random"])
    assert run("check", path) == 0
    out = capsys.readouterr().out
    assert "slow path" in out
    assert "without a native kernel" in " ".join(out.split())
    assert run("check", path, "--backend", "cpu") == 0
    assert "slow" not in capsys.readouterr().out.replace("slow.onnx", "")


def test_check_of_a_chip(refused: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(refused), "--soc", "QCS6490") == 0
    assert "has no float math; quantize" in capsys.readouterr().out
    assert run("check", str(refused), "--soc", "SM8751") == 2
    assert "did you mean SM8750?" in capsys.readouterr().err
    for spoken in ("Galaxy S24", "8 gen 3", "57"):
        assert run("check", str(refused), "--soc", spoken, "--json") == 0
        assert json.loads(capsys.readouterr().out)["backend"]["soc_model"] == "SM8650"


def test_check_strict_fails_with_the_table(refused: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(refused), "--strict") == 1
    out = capsys.readouterr().out
    assert out.index("odd") < out.index("first")  # refused first
    assert "1 on the CPU" in out


def test_check_fixes_dimensions(dynamic: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(dynamic)) == 0
    assert "dynamic.onnx: batch is 1; --dim or --shape say otherwise" in capsys.readouterr().err
    assert run("check", str(model(dynamic, [helper.make_node("Relu", ["x"], ["y"], "relu")], "length"))) == 2
    err = capsys.readouterr().err
    assert "--dim length=" in err
    model(dynamic, [helper.make_node("Relu", ["x"], ["y"], "relu")], "batch")
    assert run("check", str(dynamic), "--dim", "batch=2") == 0
    assert run("check", str(dynamic), "--shape", "x=3,4") == 0


def test_check_of_a_backend_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(MODEL), "--backend", "npu") == 2
    assert "expected one of" in capsys.readouterr().err


def test_check_reports_every_bad_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(MODEL), "--option", "vtcm_mbb=8", "--option", "htp_arch=1") == 2
    err = capsys.readouterr().err
    assert "did you mean 'vtcm_mb'" in err
    assert "htp_arch" in err


def test_damaged_file_is_one_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(MODEL.read_bytes()[:1000])
    assert run("check", str(broken)) == 2
    err = capsys.readouterr().err
    assert err.startswith("hexforge: broken.onnx")
    assert "Traceback" not in err


def test_show_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", str(MODEL), "--weights") == 0
    graph = text.loads(capsys.readouterr().out)
    assert [v.name for v in graph.inputs] == ["image"]
    assert {"Conv2d", "PoolMax2d", "FullyConnected"} <= {node.op.name for node in graph}


def test_show_without_passes_has_the_transposes(capsys: pytest.CaptureFixture[str]) -> None:
    run("show", str(MODEL))
    after = capsys.readouterr().out.count(" Transpose(")
    run("show", str(MODEL), "--no-passes")
    assert capsys.readouterr().out.count(" Transpose(") == 8 > after


def test_show_units(refused: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", str(refused), "--onnx-units") == 0
    assert "CPUExecutionProvider:  Hardmax 'odd'" in capsys.readouterr().out


def test_fix_shapes(dynamic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "fixed.onnx"
    assert run("fix-shapes", str(dynamic), str(target), "--dim", "batch=5") == 0
    assert "[5, 4]" in capsys.readouterr().out
    assert onnx.load(target).graph.input[0].type.tensor_type.shape.dim[0].dim_value == 5
    assert run("fix-shapes", str(dynamic), str(target), "--dim", "bach=5") == 2
    assert "did you mean 'batch'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--dim", "batch"], "--dim 'batch': expected KEY=VALUE"),
        (["--dim", "batch=two"], "'two' is not a size"),
        (["--dim", "batch=²"], "'²' is not a size"),
        (["--dim", f"batch={2**64}"], "from 0 to 4294967295"),
        (["--dim", "batch=1", "--dim", "batch=2"], "--dim batch is given twice, as '1' and as '2'"),
        (["--shape", "x=1,5,1"], "has rank 2, the shape given has rank 3"),
    ],
)
def test_fix_shapes_writes_nothing_where_it_fails(
    flags: list[str], words: str, dynamic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fix-shapes", str(dynamic), str(tmp_path / "fixed.onnx"), *flags) == 2
    assert words in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == [dynamic.name]


def test_fix_shapes_of_a_model_without_its_external_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = onnx.load(MODEL)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    (tmp_path / "m.bin").unlink()
    assert run("fix-shapes", str(tmp_path / "m.onnx"), str(tmp_path / "fixed.onnx")) == 2
    assert "m.onnx: external data of" in capsys.readouterr().err
    assert not (tmp_path / "fixed.onnx").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (
            ["--backend", "htp", "--option", "backend_path=libQnnCpu.so"],
            "Only one of 'backend_type' and 'backend_path'",
        ),
        (["--backend", "htp", "--option", "backend_type=cpu"], "--option backend_type=cpu contradict"),
        (["--soc", "SM8650", "--option", "soc_model=60"], "--soc SM8650 and --option soc_model=60 contradict"),
    ],
)
def test_flags_that_contradict_options(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(MODEL), *flags) == 2
    assert words in capsys.readouterr().err


def test_backend_by_path_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", str(MODEL), "--option", "backend_path=libQnnCpu.so", "--json") == 0
    assert json.loads(capsys.readouterr().out)["backend"] == {"backend_path": "libQnnCpu.so"}


def test_run_writes_outputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pictures, labels = held_out()
    np.save(tmp_path / "in.npy", pictures[0])
    assert run("run", str(MODEL), "-i", f"image={tmp_path / 'in.npy'}", "--output", str(tmp_path / "out")) == 0
    assert np.load(tmp_path / "out" / "logits.npy").argmax() == labels[0]
    assert "logits" in capsys.readouterr().out


def test_run_refuses_a_file_that_is_no_array(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.npy").write_bytes(b"nothing")
    assert run("run", str(MODEL), "-i", f"image={tmp_path / 'in.npy'}") == 2
    assert "not a .npy file" in capsys.readouterr().err


@pytest.mark.feature("Supported-ops list with columns HTP and HTP_FP16", guide="35-41")
def test_ops_lists_every_translator(capsys: pytest.CaptureFixture[str]) -> None:
    from hexforge.frontends.onnx.translate.builder import TRANSLATORS

    assert run("ops", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["onnx"]) == set(TRANSLATORS)
    assert "Conv2d" in found["onnx"]["Conv"]
    assert found["onnx"]["Add"] == ["ElementWiseAdd"]
    assert found["qnn"]["Conv2d"]["work"] == ["matrix MACs"]
    in_columns = {name: (row["htp"], row["htp_fp16"]) for name, row in found["qnn"].items()}
    assert (in_columns["Conv2d"], in_columns["ReduceProd"]) == ((True, True), (False, False))
    assert (in_columns["IsNan"], in_columns["MaskedSoftmax"]) == ((False, True), (True, False))


def test_options_say_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("options", "--json") == 0
    found = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert found["backend_type"]["no_effect_because"] is None
    assert {"session.disable_cpu_ep_fallback", "qnn.htp_perf_mode", "ep.dynamic.workload_type"} <= set(found)
    assert all(row["does"] for row in found.values())


@pytest.mark.parametrize(
    ("typed", "offered"), [("hexforge est", "estimate"), ("hexforge estimate --prec", "--precision")]
)
def test_shells_complete_commands_and_options(typed: str, offered: str) -> None:
    asked = {"_HEXFORGE_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        [sys.executable, "-m", "hexforge"], env=os.environ | asked, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == [offered]


def test_program_and_version() -> None:
    command = [sys.executable, "-c", "from hexforge.cli import main; main()"]
    done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("hexforge ")
    missing = subprocess.run([*command, "check", "missing.onnx"], capture_output=True, text=True)
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr


@pytest.mark.parametrize("command", ["fix-shapes", "convert-opset"])
def test_the_file_to_write_is_an_argument_or_an_option(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = model(tmp_path / "m.onnx", [helper.make_node("Relu", ["x"], ["y"], "relu")])
    assert run(command, str(source), "-o", str(tmp_path / "a.onnx")) == 0
    assert run(command, str(source), str(tmp_path / "b.onnx")) == 0
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert run(command, str(source), str(tmp_path / "c.onnx"), "-o", str(tmp_path / "d.onnx")) == 2
    assert "two files to write" in capsys.readouterr().err
    assert run(command, str(source)) == 2
    assert "missing" in capsys.readouterr().err
