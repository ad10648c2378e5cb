# SPDX-License-Identifier: Apache-2.0
"""The first op that departs: dumps of other makers with one op's numbers changed on purpose, in twenty models."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from hexforge.addons.diagnosis.dump_comparison import compare_with_dump
from hexforge.addons.vendor.engine import VendorEngine
from hexforge.errors import CallError, FormatError
from hexforge.frontends.onnx.separate_units import shown_model
from hexforge.ir import Array
from hexforge.model.reader import read
from hexforge.runtime.opening import open_stages
from hexforge.runtime.prepare import prepare_model
from hexforge.runtime.registry import backend
from tests.addons.vendor import needs_package
from tests.addons.vendor.models import QdqWriter, sample, saved, small_chain
from tests.cli.test_cli import run

ON_CHIP = backend(settings={"soc_model": "57"})
KINDS = ("Relu", "Sigmoid", "Conv", "Add", "HardSwish", "Mul", "Tanh", "MaxPool")
Run = Callable[[bytes], dict[str, Array]]


def chain(seed: int) -> tuple[onnx.ModelProto, list[str]]:
    """A model of six ops that the seed chooses, and their names."""
    random, write = np.random.default_rng(seed), QdqWriter(8 if seed % 3 else 16, seed)
    tensor = write.conv(write.quantized("x", "x", -3, 3), "op0")
    names = ["op0"]
    for number in range(1, 6):
        kind, name = str(random.choice(KINDS)), f"op{number}"
        if kind == "Conv":
            tensor = write.conv(tensor, name)
        elif kind == "MaxPool":
            tensor = write.op(kind, [tensor], name, kernel_shape=[3, 3], pads=[1] * 4)
        else:
            tensor = write.op(kind, [tensor] * (2 if kind in ("Add", "Mul") else 1), name)
        names.append(name)
    return write.model(tensor), names


def changed(model: onnx.ModelProto, name: str) -> bytes:
    """The model with other numbers out of one op: what quantizes its result has a scale that is a third larger."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    (scale,) = (t for t in copy.graph.initializer if t.name == f"{name}_q_scale")
    scale.CopyFrom(numpy_helper.from_array(np.asarray(numpy_helper.to_array(scale) * np.float32(1.33)), scale.name))
    return copy.SerializeToString()


def shown(model: bytes) -> bytes:
    return shown_model(prepare_model(read(model), ON_CHIP).placed)


def by_hexforge(model: bytes) -> dict[str, Array]:
    plan, outputs = open_stages(shown(model), ON_CHIP)
    return {name: np.asarray(array) for name, array in plan.run(sample(), outputs).items()}


def by_package(model: bytes) -> dict[str, Array]:
    return VendorEngine().open_session(shown(model)).run_steadily(sample())[0]


def write_dump(tensors: Mapping[str, Array], folder: Path, kind: str) -> Path:
    """Tensors as one of the tools writes them."""
    folder = folder / "Result_0" if kind.startswith("raw") else folder
    folder.mkdir(parents=True)
    for name, array in tensors.items():
        if kind == "raw":  # integers, channels last
            last = np.moveaxis(array, 1, -1) if array.ndim == 4 else array
            np.ascontiguousarray(last).tofile(folder / f"{name}_native.raw")
        elif kind == "tensorproto":
            (folder / f"{name}.tensorproto").write_bytes(numpy_helper.from_array(array, name).SerializeToString())
        else:
            np.save(folder / f"{name}.npy", array)
    return folder.parent if kind.startswith("raw") else folder


def departs_at(seed: int, run_model: Run, folder: Path) -> tuple[str, str]:
    """The op that was changed, and the op that is named."""
    model, names = chain(seed)
    # only quantized ops with a scale of their own can be changed so; a model's last op is as good as any
    chosen = names[seed % len(names)]
    kind = ("raw", "tensorproto", "npy")[seed % 3]
    dump = write_dump(run_model(changed(model, chosen)), folder / "dump", kind)
    result = compare_with_dump(saved(model, folder), dump, ON_CHIP, sample())
    assert result.first is not None
    return chosen, result.first.node


@pytest.mark.parametrize("seed", range(20))
def test_the_op_that_was_changed_is_named(seed: int, tmp_path: Path) -> None:
    chosen, named = departs_at(seed, by_hexforge, tmp_path)
    assert named == chosen


def test_what_was_not_changed_does_not_depart(tmp_path: Path) -> None:
    model, names = chain(3)
    dump = write_dump(by_hexforge(model.SerializeToString()), tmp_path / "dump", "raw")
    result = compare_with_dump(saved(model, tmp_path), dump, ON_CHIP, sample())
    assert result.first is None
    assert result.compared >= len(names)


def test_qnn_net_runs_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model = small_chain()
    saved(model, tmp_path, "m.onnx")
    sample()["x"].tofile("x.raw")
    np.save("x.npy", sample()["x"])
    Path("list.txt").write_text("x:=x.raw\n")
    (weight,) = (t for t in model.graph.initializer if t.name == "conv2_w")
    weight.CopyFrom(numpy_helper.from_array(np.asarray(numpy_helper.to_array(weight)[::-1]), weight.name))
    saved(model, tmp_path, "other.onnx")
    for name in ("m", "other"):
        words = f"tool qnn-net-run --model {name}.onnx --backend libQnnHtp.so --input_list list.txt --debug"
        assert run(*words.split(), "--output_dir", name) == 0
    capsys.readouterr()
    assert run("compare", "m.onnx", "--dump", "m", "-i", "x=x.npy") == 0
    capsys.readouterr()
    assert run("compare", "m.onnx", "--dump", "other", "-i", "x=x.npy", "--write", "written", "--json") == 1
    assert json.loads(capsys.readouterr().out)["first"]["node"] == "conv2"
    alone = onnx.load("written/departure.onnx")
    assert "conv2" in [node.name for node in alone.graph.node]
    with np.load("written/departure.npz") as file:
        assert {"dumped", "hexforge"} < set(file.files)


def test_folders_without_anything_to_compare(tmp_path: Path) -> None:
    path = saved(chain(0)[0], tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FormatError, match="has no tensors"):
        compare_with_dump(path, tmp_path / "empty", ON_CHIP)
    np.save(tmp_path / "empty" / "other.npy", np.zeros(3))
    with pytest.raises(CallError, match="has no input 'x'"):
        compare_with_dump(path, tmp_path / "empty", ON_CHIP)
    with pytest.raises(CallError, match="has no tensor of"):
        compare_with_dump(path, tmp_path / "empty", ON_CHIP, sample())
    (tmp_path / "empty" / "op1_q.tensorproto").write_bytes(b"\xff\xff")
    with pytest.raises(FormatError, match="cannot be read"):
        compare_with_dump(path, tmp_path / "empty", ON_CHIP, sample())


class TestInstalled:
    pytestmark = needs_package

    @pytest.mark.parametrize("seed", range(20))
    def test_the_op_that_was_changed_on_the_emulator_is_named(self, seed: int, tmp_path: Path) -> None:
        # The package gives a 16-bit Tanh as if in steps of 1/32768, whatever its scale: it departs by itself.
        chosen, named = departs_at(seed, by_package, tmp_path)
        nodes = {node.name: node.op_type for node in chain(seed)[0].graph.node}
        before = [name for name in nodes if nodes[name] == "Tanh" and name < chosen] if seed % 3 == 0 else []
        assert named == [*before, chosen][0]
