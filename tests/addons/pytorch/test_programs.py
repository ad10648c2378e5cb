# SPDX-License-Identifier: Apache-2.0
"""Exported programs of torch: commands take them as they take the ONNX model that torch writes of the module."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

import hexforge
from hexforge.cli import app
from hexforge.errors import CallError, CapacityError, FormatError, HexforgeError, UnsupportedError

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

from hexforge.addons.pytorch.export import compare, onnx_model, onnx_of_file  # noqa: E402
from tests.addons.pytorch.programs import PROGRAMS, Convolutional, Counting  # noqa: E402


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder, paths = tmp_path_factory.mktemp("programs"), {}
    for name, make in PROGRAMS.items():
        torch.manual_seed(0)
        module, inputs, keywords, shapes = make()
        program = torch.export.export(module.eval(), inputs, keywords, dynamic_shapes=shapes)
        torch.export.save(program, folder / f"{name}.pt2")
        paths[name] = folder / f"{name}.pt2"
    return paths


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_are_those_of_torch(name: str, saved: dict[str, Path]) -> None:
    data = saved[name].read_bytes()
    made = onnx_of_file(data, name).SerializeToString()
    assert compare(data, name, "", made, 1e-5).startswith("both were run")


def fixed(model: onnx.ModelProto) -> dict[str, int]:
    """The sizes that a model leaves open, each as 1."""
    sizes = (size.dim_param for value in model.graph.input for size in value.type.tensor_type.shape.dim)
    return {size: 1 for size in sizes if size}


@pytest.mark.parametrize("name", PROGRAMS)
def test_placement_is_that_of_the_module_exported_to_onnx(name: str, saved: dict[str, Path], tmp_path: Path) -> None:
    torch.manual_seed(0)
    module, inputs, keywords, shapes = PROGRAMS[name]()
    torch.onnx.export(module.eval(), inputs, tmp_path / "m.onnx", kwargs=keywords, dynamic_shapes=shapes, verbose=False)
    of_program = hexforge.check(saved[name], dims=fixed(onnx_of_file(saved[name].read_bytes(), name)))
    of_onnx = hexforge.check(tmp_path / "m.onnx", dims=fixed(onnx.load(tmp_path / "m.onnx")))
    assert [(n.op, n.runs_on) for n in of_program.nodes] == [(n.op, n.runs_on) for n in of_onnx.nodes]


def test_nodes_are_named_by_their_modules(saved: dict[str, Path]) -> None:
    names = [node.name for node in onnx_of_file(saved["attention"].read_bytes(), "a").graph.node]
    assert len(set(names)) == len(names)
    assert any(name.startswith("encoder.layers.1.self_attn/") for name in names)


def test_an_open_size_is_given_by_its_name(saved: dict[str, Path]) -> None:
    (size,) = fixed(onnx_of_file(saved["open_batch"].read_bytes(), "open"))
    done = CliRunner().invoke(app, ["estimate", str(saved["open_batch"]), "--dim", f"{size}=1", "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["latency_ms"] > 0


def test_commands_take_a_program(saved: dict[str, Path], tmp_path: Path) -> None:
    path, out = str(saved["convolutional"]), tmp_path / "m.onnx"
    for arguments in (["check", path], ["show", path], ["convert", path, "-o", str(out)]):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
    assert "both were run" in done.output
    onnx.checker.check_model(out)
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 32, 32), np.float32))
    done = CliRunner().invoke(app, ["run", path, "-i", f"picture={tmp_path / 'x.npy'}"])
    assert done.exit_code == 0, done.output


def test_programs_and_modules_in_python() -> None:
    torch.manual_seed(0)
    module, picture = Convolutional().eval(), torch.randn(1, 3, 32, 32)
    made = onnx_model(module, (picture,))
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (got,) = session.run(None, {"picture": picture.numpy()})
    np.testing.assert_allclose(got, module(picture).detach().numpy(), rtol=1e-4, atol=1e-5)
    program = torch.export.export(module, (picture,))
    whole = hexforge.check(program)
    assert whole.nodes == hexforge.check(made).nodes
    assert {node.runs_on for node in whole.nodes} == {"QNNExecutionProvider"}
    assert hexforge.check(module, (picture,)).nodes == whole.nodes
    assert hexforge.check((module, (picture,)), "SM8650").nodes == whole.nodes
    assert hexforge.estimate((module, (picture,)), "SM8650").latency_ms > 0
    with pytest.raises(CallError, match=r"give \(module, example_inputs\)"):
        hexforge.check(module)


def test_a_module_keeps_its_mode() -> None:
    module = Convolutional().train()
    onnx_model(module, (torch.randn(1, 3, 32, 32),))
    assert module.training


def test_what_runs_change_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="changes count while it runs"):
        onnx_model(Counting(), (torch.randn(4),))


def test_what_torch_cannot_export_is_its_own_word() -> None:
    class Branching(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x: Any) -> Any:
            return x if bool((x > 0).any()) else -x

    with pytest.raises(UnsupportedError, match="Branching: torch cannot export it"):
        onnx_model(Branching(), (torch.randn(4),))


# -- files that nobody vouches for -------------------------------------------------------------------------------


def rewritten(path: Path, change: Any, members: dict[str, bytes] | None = None) -> bytes:
    """An archive with its graph changed, and with more members."""
    out = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for member in old.infolist():
            data = old.read(member)
            if member.filename.endswith("models/model.json"):
                data = json.dumps(change(json.loads(data))).encode()
            new.writestr(member.filename, data)
        for name, data in (members or {}).items():
            new.writestr(name, data)
    return out.getvalue()


def with_formula(formula: str) -> Any:
    """A change of a graph that puts a formula wherever there is one."""

    def change(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: formula if name == "expr_str" else change(inner) for name, inner in value.items()}
        return [change(inner) for inner in value] if isinstance(value, list) else value

    return change


@pytest.mark.parametrize(
    "formula", ["__import__('os')", "9**9**9**9", "Pow(9, Pow(9, 9))", "LShift(1, 10**9)", "s0." * 9]
)
def test_no_formula_is_evaluated_that_is_more_than_arithmetic(formula: str, saved: dict[str, Path]) -> None:
    with pytest.raises(FormatError, match="more than arithmetic"):
        onnx_of_file(rewritten(saved["open_batch"], with_formula(formula)), "m.pt2")


def test_a_formula_runs_nothing(saved: dict[str, Path], tmp_path: Path) -> None:
    proof = tmp_path / "ran"
    code = f"__import__('pathlib').Path({str(proof)!r}).touch()"
    with pytest.raises(FormatError, match="more than arithmetic"):
        onnx_of_file(rewritten(saved["open_batch"], with_formula(code)), "m.pt2")
    assert not proof.exists()


def test_nothing_is_unpickled_but_tensors(saved: dict[str, Path], tmp_path: Path) -> None:
    proof = tmp_path / "ran"

    class Bomb:
        def __reduce__(self) -> Any:
            return Path.touch, (proof,)

    buffer = io.BytesIO()
    torch.save(Bomb(), buffer)
    out = io.BytesIO()
    with zipfile.ZipFile(saved["convolutional"]) as old, zipfile.ZipFile(out, "w") as new:
        for member in old.infolist():
            inputs = member.filename.endswith("sample_inputs/model.pt")
            new.writestr(member.filename, buffer.getvalue() if inputs else old.read(member))
    with pytest.raises(HexforgeError):
        onnx_of_file(out.getvalue(), "m.pt2")
    assert not proof.exists()


def test_compiled_code_enumerations_and_strange_targets_are_refused(saved: dict[str, Path]) -> None:
    path = saved["convolutional"]
    with pytest.raises(UnsupportedError, match="compiled code"):
        onnx_of_file(rewritten(path, lambda graph: graph, {"net/data/aotinductor/model/m.so": b"\x7fELF"}), "m.pt2")
    with pytest.raises(UnsupportedError, match="enumeration"):
        onnx_of_file(rewritten(path, lambda graph: {**graph, "x": {"__enum__": True, "fqn": "os:environ"}}), "m.pt2")

    def change(graph: Any) -> Any:
        graph["graph_module"]["graph"]["nodes"][0]["target"] = "torch.hub.load"
        return graph

    with pytest.raises(UnsupportedError, match=r"calls 'torch\.hub\.load'"):
        onnx_of_file(rewritten(path, change), "m.pt2")


def test_operators_that_reach_further_are_refused(saved: dict[str, Path]) -> None:
    def calling(target: str) -> Any:
        def change(graph: Any) -> Any:
            graph["graph_module"]["graph"]["nodes"][0]["target"] = target
            return graph

        return change

    for target in ("_operator.attrgetter", "_operator.methodcaller", "torch.ops.aten.from_file.default",
                   "torch.ops.higher_order.call_torchbind", "torch.ops.image.read_file"):  # fmt: skip
        with pytest.raises(UnsupportedError, match="is no op that a program"):
            onnx_of_file(rewritten(saved["several"], calling(target)), "m.pt2")


def test_objects_bombs_and_doubles_are_refused(saved: dict[str, Path]) -> None:
    path = saved["several"]
    with pytest.raises(UnsupportedError, match="custom_obj_0"):
        onnx_of_file(rewritten(path, lambda graph: graph, {"several/data/constants/custom_obj_0": b"x"}), "m.pt2")
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as bomb:
        bomb.writestr("m/archive_format", "pt2")
        bomb.writestr("m/models/model.json", b" " * (64 << 20))
    with pytest.raises(CapacityError, match="far more than its size"):
        onnx_of_file(out.getvalue(), "m.pt2")
    with zipfile.ZipFile(path) as old:
        name = next(name for name in old.namelist() if name.endswith("models/model.json"))
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = rewritten(path, lambda graph: graph, {name: b"{}"})
    with pytest.raises(FormatError, match="twice"):
        onnx_of_file(twice, "m.pt2")


def test_damaged_archives_are_refused(saved: dict[str, Path]) -> None:
    data, random = saved["several"].read_bytes(), np.random.default_rng(0)
    refused = 0
    for _ in range(200):
        damaged = bytearray(data[: random.integers(1, len(data))] if random.random() < 0.3 else data)
        for _ in range(random.integers(1, 8)):
            damaged[random.integers(0, len(damaged))] = random.integers(0, 256)
        try:
            onnx_of_file(bytes(damaged), "m.pt2")
        except HexforgeError:
            refused += 1
    assert refused > 20
