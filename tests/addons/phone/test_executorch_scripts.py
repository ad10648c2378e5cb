# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's own SimpleADB and debugger, unchanged, from a lowered model to what comes back from virtual phones."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge.addons.executorch
from hexforge.addons.executorch.running.pte_dump_comparison import compare_pte_with_dump
from hexforge.addons.phone.phones import add_phone, list_phones, unplug
from hexforge.addons.phone.script_folders import EXECUTORCH_BUILD, adb_folder, sdk_root

torch = pytest.importorskip("torch")
pytest.importorskip("executorch")
pytestmark = [pytest.mark.executorch, pytest.mark.filterwarnings("ignore")]

from tests.addons.executorch.test_lowering import Net, lowered, qdq, spec  # noqa: E402

WORKSPACE = "/data/local/tmp/executorch/net"


@pytest.fixture
def ready(phones: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment that `hexforge phone env` sets, with two phones."""
    hexforge.addons.executorch.enable()
    monkeypatch.setenv("PATH", f"{adb_folder()}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("QNN_SDK_ROOT", str(sdk_root()))
    monkeypatch.setenv("ANDROID_NDK_ROOT", str(sdk_root()))
    monkeypatch.chdir(tmp_path)
    add_phone("one", "SM8650")
    add_phone("two", "SM8750")
    return tmp_path


@pytest.fixture(scope="module")
def inputs() -> list[tuple[Any, ...]]:
    torch.manual_seed(0)
    return [(torch.randn(1, 3, 16, 16),)]


def adb(path: Path, device: str = "one", chip: str = "SM8650", **more: Any) -> Any:
    from executorch.backends.qualcomm.export_utils import QnnConfig, SimpleADB

    build = str(sdk_root() / EXECUTORCH_BUILD)
    return SimpleADB(QnnConfig(chip, build, device=device, **more), str(path), WORKSPACE)


def written(path: Path, inputs: Any, **options: Any) -> Path:
    model = qdq(Net().eval(), inputs[0])
    path.write_bytes(lowered(model, inputs[0], spec(**options)).buffer)
    return path


def test_a_dump_off_a_phone_is_compared(ready: Path, inputs: Any) -> None:
    path = written(ready / "net.pte", inputs, dump_intermediate_outputs=True)
    phone = adb(path, dump_intermediate_outputs=True)
    phone.push(inputs=inputs)
    phone.execute()
    (ready / "dump").mkdir()
    phone.pull_debug_output(str(ready / "dump"), str(ready / "dump"))
    inputs[0][0].numpy().tofile(ready / "dump/input_0_0.raw")
    result = compare_pte_with_dump(path, ready / "dump")
    assert (result.first, result.compared) == (None, result.ops)
    numbers = bytearray((ready / "dump/debug_output.bin").read_bytes())
    from executorch.devtools import Inspector

    Inspector(etdump_path="dump/etdump.etdp", debug_buffer_path="dump/debug_output.bin")
    from hexforge.addons.executorch.formats.etdump import read_tensors

    logged = read_tensors((ready / "dump/etdump.etdp").read_bytes(), "etdump")[-1]
    relu = next(tensor for tensor in logged if tensor.name.startswith("aten_relu_default_1"))
    numbers[relu.offset : relu.offset + 4096 : 2] = bytes(len(numbers[relu.offset : relu.offset + 4096 : 2]))
    (ready / "dump/debug_output.bin").write_bytes(numbers)
    departed = compare_pte_with_dump(path, ready / "dump").first
    assert departed is not None
    assert departed.node == "aten_relu_default_1"


@pytest.mark.parametrize("online", [False, True])
def test_the_debuggers_optrace(ready: Path, inputs: Any, online: bool) -> None:
    """`generate_optrace` is QnnTool: the generator where there is a .dlc, qnn-net-run on the phone, the viewer."""
    from executorch.backends.qualcomm.debugger.utils import generate_optrace
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset

    path = written(ready / "net.pte", inputs, profile_level=3, online_prepare=online)
    phone = adb(path)
    traces = generate_optrace(str(ready), QcomChipset.SM8650, phone, str(path), inputs)
    ((file, (optrace, summary)),) = traces.items()
    assert file.endswith("forward_0.dlc" if online else "forward_0.bin")
    events = json.loads(Path(optrace).read_text())
    assert "aten_convolution_default" in json.dumps(events)
    assert json.loads(Path(summary).read_text())


def test_a_phone_that_is_unplugged(ready: Path, inputs: Any, capfd: pytest.CaptureFixture[str]) -> None:
    """SimpleADB ends with its own error, adb says what happened, and the other phone goes on."""
    path = written(ready / "net.pte", inputs)
    first, second = adb(path), adb(path, "two")
    many = [inputs[0]] * 3
    for phone in (first, second):
        phone.push(inputs=many)
    cut = threading.Timer(3.0, unplug, [next(phone for phone in list_phones() if phone.serial == "one")])
    cut.start()
    with pytest.raises(RuntimeError, match="adb command failed"):
        first.execute(iteration=100_000)
    cut.join()
    second.execute()
    second.pull(str(ready))
    assert len(list((ready / "outputs").glob("output_*_0.raw"))) == 3
    with pytest.raises(RuntimeError, match="adb command failed"):
        first.pull(str(ready))
    assert "device 'one' not found" in capfd.readouterr().err
    assert np.fromfile(ready / "outputs/output_0_0.raw", np.float32).size == 10
