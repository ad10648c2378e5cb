# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a call is said by QNN's code, whatever it is; nothing is lost by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.device import (
    Binary,
    CreationConfig,
    Device,
    DeviceError,
    GraphSpec,
    GroupRegistration,
    ListConfig,
    MemDescriptor,
    Qnn,
    SharedBuffer,
)
from hexforge.addons.device.contexts.handles import DeviceContext
from hexforge.errors import CallError
from tests.addons.device import tiny

X = {"x": np.ones((1, 8), np.float32)}
ONE = (1, 8)


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Binary:
    return tiny.binaries(tmp_path_factory.mktemp("contexts"))["dense"]


Call = Callable[[Qnn, DeviceContext, Any, Binary], Any]
WRONG: dict[str, tuple[Call, int]] = {
    "no graph": (lambda q, c, g, b: q.QnnGraph_execute(None, X), 6001),  # type: ignore[arg-type]
    "a text for a tensor": (lambda q, c, g, b: q.QnnGraph_execute(g, {"x": "abc"}), 6004),  # type: ignore[dict-item]
    "nothing for a tensor": (lambda q, c, g, b: q.QnnGraph_execute(g, {"x": None}), 6004),  # type: ignore[dict-item]
    "a batch of none": (lambda q, c, g, b: q.QnnGraph_execute(g, {"x": np.zeros((0, 8), np.float32)}), 6004),
    "a batch below 1": (lambda q, c, g, b: q.QnnGraph_execute(g, X, batch=-1), 6000),
    "another data type": (lambda q, c, g, b: q.QnnGraph_execute(g, {"x": np.ones(ONE)}), 6004),
    "no priority": (lambda q, c, g, b: q.QnnContext_setConfig(c, priority="high"), 5000),  # type: ignore[arg-type]
    "a strange group": (
        lambda q, c, g, b: q.QnnContext_createFromBinary(
            b,
            CreationConfig(register_multi_contexts=GroupRegistration("x", 5)),  # type: ignore[arg-type]
        ),
        5002,
    ),
    "a config of another kind": (lambda q, c, g, b: q.QnnContext_createFromBinary(b, {}), 5000),  # type: ignore[arg-type]
    "a path": (lambda q, c, g, b: q.QnnContext_createFromBinary("x.bin"), 5000),  # type: ignore[arg-type]
    "no graphs": (lambda q, c, g, b: q.QnnContext_createFromBinary(b, CreationConfig(enable_graphs=())), 5010),
    "a graph twice": (
        lambda q, c, g, b: q.QnnContext_createFromBinary(b, CreationConfig(graph_retention_order=("a", "a"))),
        5010,
    ),
    "an empty list": (lambda q, c, g, b: q.QnnContext_createFromBinaryListAsync([], ListConfig(), print), 5000),
    "no buffer": (lambda q, c, g, b: q.QnnMem_register(c, [MemDescriptor(None, "x", ONE, "float32")]), 8005),  # type: ignore[arg-type]
    "an odd type": (lambda q, c, g, b: q.QnnMem_register(c, [MemDescriptor(SharedBuffer(64), "x", ONE, "foo")]), 8000),
    "no handle": (lambda q, c, g, b: q.QnnMem_deRegister([None]), 8001),  # type: ignore[list-item]
    "no power config": (lambda q, c, g, b: q.setPowerConfig(q.createPowerConfigId(), [None]), 13001),  # type: ignore[list-item]
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_said_and_nothing_is_lost(what: str, binary: Binary) -> None:
    device = Device(tiny.SOC)
    q = Qnn(device.process("app"))
    context = q.QnnContext_createFromBinary(binary)
    graph = next(iter(context.graphs.values()))
    right = q.QnnGraph_execute(graph, X).outputs["y"]
    used = device.log.memory_bytes
    call, code = WRONG[what]
    with pytest.raises(DeviceError) as error:
        call(q, context, graph, binary)
    assert error.value.code == code
    assert device.log.memory_bytes == used
    assert np.array_equal(q.QnnGraph_execute(graph, X).outputs["y"], right)


def test_handles_are_of_one_process(binary: Binary, tmp_path: Path) -> None:
    device = Device(tiny.SOC)
    mine, other = Qnn(device.process("mine")), Qnn(device.process("other"))
    context = mine.QnnContext_createFromBinary(binary)
    graph = next(iter(context.graphs.values()))
    for call in (
        lambda: other.QnnContext_free(context),
        lambda: other.QnnGraph_execute(graph, X),
        lambda: other.QnnGraph_setConfig(graph, num_hvx_threads=1),
        lambda: other.QnnMem_register(context, []),
    ):
        with pytest.raises(DeviceError, match="of other"):
            call()
    assert mine.QnnGraph_execute(graph, X).outputs


def test_profiles_go_by_their_names() -> None:
    q = Qnn(Device("SM8650").process("app"))
    q.use_profile("burst")
    assert q.client.votes.profile is not None
    assert q.client.votes.profile.name == "burst"
    with pytest.raises(hexforge.CallError, match="did you mean 'burst'"):
        q.use_profile("brst")


@pytest.mark.feature("Device info extension", guide="531-557")
def test_the_device_says_what_it_is() -> None:
    info = Qnn(Device("SM8650").process("app")).QnnDevice_getPlatformInfo()
    assert (info["deviceType"], info["socModel"], info["arch"], info["vtcmSize"]) == ("ON_CHIP", 57, 75, 8)
    assert (info["numNsp"], info["signedPdSupport"], info["dlbcSupport"]) == (1, True, True)
    assert Qnn(Device("SM8450").process("app")).QnnDevice_create()["socModel"] == 36


@pytest.mark.feature("num_cores", guide="1248-1250")
@pytest.mark.parametrize(("chip", "has"), [("SM8650", 1), ("SA8775P", 2), ("SA8797", 4)])
def test_a_device_has_no_more_cores_than_its_chip(chip: str, has: int) -> None:
    assert Qnn(Device(chip, cores=has).process("app")).QnnDevice_getPlatformInfo()["numNsp"] == has
    for cores in (has + 1, 9):
        with pytest.raises(CallError, match=rf"cores {cores}: {chip} has {has} NSP core"):
            Device(chip, cores=cores)


@pytest.mark.feature("Signed PD", guide="79-81, 110-119")
def test_a_signed_process_domain_needs_a_signed_image_on_the_device() -> None:
    made = Binary("m", (GraphSpec("g", 1 << 20),))
    plain = Device("SM8650")
    q = Qnn(plain.process("signed", signed=True))
    with pytest.raises(DeviceError, match="signed DSP image") as error:
        q.QnnContext_createFromBinary(made)
    assert error.value.name == "QNN_COMMON_ERROR_LOADING_BINARIES"
    assert plain.log.memory_bytes == 0
    assert plain.log.of("session_open") == []
    Qnn(plain.process("unsigned")).QnnContext_createFromBinary(made)
    pushed = Device("SM8650", signed_image=True)
    Qnn(pushed.process("signed", signed=True)).QnnContext_createFromBinary(made)
    assert [e["domain"] for e in pushed.log.of("session_open")] == ["signed"]


@pytest.mark.feature("Variable batch at execute", guide="43-45")
@pytest.mark.parametrize("batch", [0, -1, 1.5, "2", True, None])
def test_a_batch_that_is_no_count_is_refused(batch: Any, binary: Binary) -> None:
    for made in (Binary("m", (GraphSpec("g", 1 << 20),)), binary):
        q = Qnn(Device(tiny.SOC).process("app"))
        (graph,) = q.QnnContext_createFromBinary(made).graphs.values()
        with pytest.raises(DeviceError, match="a batch of") as error:
            q.QnnGraph_execute(graph, X if made.source else None, batch=batch)
        assert error.value.name == "QNN_GRAPH_ERROR_INVALID_ARGUMENT"


@pytest.mark.feature("Variable batch at execute", guide="43-45")
def test_a_batch_is_that_of_the_inputs(binary: Binary) -> None:
    q = Qnn(Device(tiny.SOC).process("app"))
    (graph,) = q.QnnContext_createFromBinary(binary).graphs.values()
    three = {"x": np.ones((3, 8), np.float32)}
    assert q.QnnGraph_execute(graph, three, batch=3).batch == q.QnnGraph_execute(graph, three).batch == 3
    with pytest.raises(DeviceError, match="a batch of 2 is asked for, and the inputs have 3 times") as error:
        q.QnnGraph_execute(graph, three, batch=2)
    assert error.value.name == "QNN_GRAPH_ERROR_INVALID_TENSOR"
