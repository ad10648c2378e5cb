# SPDX-License-Identifier: Apache-2.0
"""hexforge.ort beside the real onnxruntime, and the façade that loads nothing before it is used."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import hexforge
import hexforge.ort as ort
from tests.ort.models import mixed

QNN = "QNNExecutionProvider"


def test_everything_else_is_onnxruntimes() -> None:
    assert ort.GraphOptimizationLevel is onnxruntime.GraphOptimizationLevel
    assert ort.OrtDevice is onnxruntime.OrtDevice
    assert ort.__version__ == onnxruntime.__version__
    assert set(dir(onnxruntime)) <= set(dir(ort))
    with pytest.raises(AttributeError, match="neither has onnxruntime"):
        _ = ort.no_such_thing


def test_what_qnn_concerns_is_hexforges() -> None:
    assert ort.InferenceSession is hexforge.InferenceSession
    assert ort.SessionOptions is hexforge.SessionOptions
    assert ort.RunOptions is hexforge.RunOptions
    assert ort.get_available_providers() == [QNN, *onnxruntime.get_available_providers()]


def test_submodules_are_the_real_ones() -> None:
    for name in ("quantization", "quantization.execution_providers.qnn", "capi.onnxruntime_pybind11_state"):
        alias, real = importlib.import_module(f"hexforge.ort.{name}"), importlib.import_module(f"onnxruntime.{name}")
        assert alias is real
        assert real.__spec__ is not None
        assert real.__spec__.name == f"onnxruntime.{name}"
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("hexforge.ort.no_such_thing")


def test_devices_and_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("hexforge.ort.provider_listing"), "_unregistered", False)
    ort.register_execution_provider_library(QNN, "onnxruntime_providers_qnn.dll")
    library = tmp_path / "libonnxruntime_providers_qnn.so"
    with pytest.raises(hexforge.CallError, match="the name libonnxruntime_providers_qnn"):
        ort.register_execution_provider_library("npu", str(library))
    library.touch()
    ort.register_execution_provider_library("npu", str(library))
    with pytest.raises(hexforge.CallError, match="'npu' is registered already"):
        ort.register_execution_provider_library("npu", str(library))
    with pytest.raises(hexforge.CallError, match="is no library of QNNExecutionProvider"):
        ort.register_execution_provider_library(QNN, "libQnnHtp.so")
    with pytest.raises(Exception, match=r"no_such_library|Failed"):
        ort.register_execution_provider_library("other", "no_such_library.so")
    devices = [device for device in ort.get_ep_devices() if device.ep_name == QNN]
    assert [device.device.type.name for device in devices][:1] == ["NPU"]
    assert {device.device.type.name for device in devices[1:]} <= {"GPU"}
    options = ort.SessionOptions()
    options.add_provider_for_devices(devices, {"backend_type": "cpu"})
    assert ort.InferenceSession(mixed(), options).get_providers() == [QNN, "CPUExecutionProvider"]
    with pytest.raises(hexforge.CallError, match="same execution provider"):
        options.add_provider_for_devices(ort.get_ep_devices(), {})
    ort.unregister_execution_provider_library(QNN)
    assert any(device.ep_name == QNN for device in ort.get_ep_devices())
    ort.unregister_execution_provider_library("npu")
    assert not any(device.ep_name == QNN for device in ort.get_ep_devices())


def test_the_default_severity_makes_sessions_tell(capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        "import sys, hexforge.ort as o\no.set_default_logger_severity(0)\n"
        "o.InferenceSession(sys.stdin.buffer.read(), providers=['QNNExecutionProvider'])"
    )
    done = subprocess.run([sys.executable, "-c", script], input=mixed(), capture_output=True, check=True)
    assert b"Node placements" in done.stderr


def test_values_in_shared_memory() -> None:
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    value = ort.OrtValue.ortvalue_from_numpy(x, "QnnHtpShared", 0)
    assert isinstance(value, ort.OrtValue)
    assert np.array_equal(value.numpy(), x)
    assert value.data_ptr() % 4096 == 0
    empty = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.int32, "QnnHtpShared")
    assert (empty.shape(), empty.numpy().sum()) == ([2, 3], 0)
    assert isinstance(ort.OrtValue.ortvalue_from_numpy(x), ort.OrtValue)


def test_selection_policy() -> None:
    options = ort.SessionOptions()
    options.set_provider_selection_policy(ort.OrtExecutionProviderDevicePolicy.PREFER_NPU)  # type: ignore[attr-defined]
    assert ort.InferenceSession(mixed(), options).get_providers()[0] == QNN


def test_io_binding_of_either_session() -> None:
    assert type(ort.IOBinding(ort.InferenceSession(mixed()))) is onnxruntime.IOBinding
    made = ort.InferenceSession(mixed(), providers=[(QNN, {"backend_type": "cpu"})])
    assert type(ort.IOBinding(made)) is ort.IOBinding


def test_the_facade_is_lazy() -> None:
    code = "import sys, hexforge; dir(hexforge); print([m for m in sys.modules if m.startswith(('onnx', 'numpy'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert set(hexforge.__all__) <= set(dir(hexforge))
    assert all(getattr(hexforge, name) is not None for name in hexforge.__all__)
    assert hexforge.__version__
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = hexforge.nothing  # type: ignore[attr-defined]
