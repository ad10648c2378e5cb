# SPDX-License-Identifier: Apache-2.0
"""Features of Qualcomm's guide, each shown by a program in C that compiles without a warning and runs on the device."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.adapters.making import make_adapter
from hexforge.addons.device import Device
from hexforge.addons.device.shared.address import DeviceAddress
from hexforge.backend import Backend
from hexforge.runtime.registry import backend
from tests.addons.capi.conftest import Compile, environment
from tests.addons.device import tiny
from tests.addons.device.test_shared import Served
from tests.ort.models import FLOAT, model, node

SOC = "SM8650"
Log = list[dict[str, Any]]


@pytest.fixture(scope="module")
def program(compile_c: Compile) -> Path:
    return compile_c(Path(__file__).parent / "features.c")


def deep(width: int = 1024, layers: int = 6) -> bytes:
    """Products one behind the other: many tasks, and weights of some megabytes."""
    random = np.random.default_rng(5)
    weights = {f"w{i}": random.standard_normal((width, width)).astype(np.float32) / 32 for i in range(layers)}
    names = ["x", *(f"h{i}" for i in range(layers - 1)), "y"]
    nodes = [node("MatMul", [names[i], f"w{i}"], [names[i + 1]], name=f"layer{i}") for i in range(layers)]
    return model(nodes, {"x": (FLOAT, [1, width])}, {"y": (FLOAT, [1, width])}, weights)


def spilling() -> bytes:
    """Needs all that is before a Softmax at once."""
    nodes = [
        node("Relu", ["x"], ["a"], name="relu"),
        node("Softmax", ["a"], ["m"], name="softmax", axis=1),
        node("Mul", ["a", "m"], ["y"], name="scale"),
    ]
    return model(nodes, {"x": (FLOAT, [1, 32, 256, 256])}, {"y": (FLOAT, [1, 32, 256, 256])})


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory, libraries: Path) -> Path:
    folder = tmp_path_factory.mktemp("contexts")
    request = hexforge.ContextRequest

    def made(name: str, models: list[bytes], names: str, soc: str | Backend = SOC, **more: Any) -> Path:
        path = folder / f"{name}.bin"
        hexforge.compile(models, path, soc, request(graph_names=tuple(names.split()), **more))
        return path

    made("dense", [tiny.dense(1)], "dense")
    made("pair", [tiny.dense(1, 40), tiny.dense(2, 40)], "a b", weight_sharing=True)
    made("v73", [tiny.dense(1)], "dense", "SM8550")
    made("v79", [tiny.dense(1)], "dense", "SM8750")
    made("v81", [tiny.dense(1)], "dense", "SM8850")
    made("spills", [spilling()], "g", settings={"vtcm_mb": 1})
    made("big", [deep(2048, 4)], "big")
    made("deep", [deep()], "deep")
    other = {"w": np.random.default_rng(9).standard_normal((8, 8)).astype(np.float32)}
    for name, adapter, shared in (("updatable", "adapter", "0"), ("lora", "lora_adapter", "1")):
        path = made(name, [tiny.dense(1)], "a", backend("htp", {"soc_model": SOC, "lora_weight_sharing": shared}),
                    updatable=("w",))  # fmt: skip
        make_adapter(path, tiny.dense(1), weights=other, output=folder / f"{adapter}.bin")
    for library in ("libQnnHtp.so", "libhexforge_qnn.so"):
        shutil.copy(libraries / library, folder / library)
    return folder


@contextmanager
def device(folder: Path, soc: str = SOC, **more: Any) -> Iterator[Served]:
    served = Served(Device(soc, **more), DeviceAddress(path=folder / "d.sock"))
    try:
        yield served
    finally:
        served.stop()


@pytest.fixture
def shown(program: Path, libraries: Path, contexts: Path, tmp_path: Path) -> Callable[..., Log]:
    def run(case: str, soc: str = SOC, privileged: bool = False, on_device: bool = True) -> Log:
        variables = dict(environment(HEXFORGE_PROCESS="app", HEXFORGE_PRIVILEGED=str(int(privileged))))
        with device(tmp_path, soc) as served:
            if on_device:
                variables["HEXFORGE_DEVICE"] = str(served.address)
            ran = subprocess.run([program, libraries, contexts, case], capture_output=True, text=True, check=False,
                                 env=variables)  # fmt: skip
            assert ran.returncode == 0, ran.stderr
            served.stop()
            return list(served.device.log.entries)

    return run


Shown = Callable[..., Log]


def creations(log: Log) -> list[float]:
    """How long the creation of each context took."""
    begun = {entry["context"]: entry["at_us"] for entry in log if entry["event"] == "create"}
    return [entry["at_us"] - begun[entry["context"]] for entry in log if entry["event"] == "created"]


@pytest.mark.feature("API version", guide="9-13")
def test_the_version_of_the_api(shown: Shown) -> None:
    shown("api_version")


@pytest.mark.feature("C API and HTP headers", guide="7, 47-51")
@pytest.mark.feature("Graph building", guide="17")
def test_a_graph_is_built_with_the_headers(shown: Shown) -> None:
    log = shown("graph_building")
    assert [entry["context"] for entry in log if entry["event"] == "created"] == ["g#1", "g#2"]


@pytest.mark.feature("Context of another arch", guide="33")
@pytest.mark.feature("Context binary management", guide="3001-3057")
def test_a_context_of_another_architecture(shown: Shown) -> None:
    shown("other_arch")


@pytest.mark.feature("Variable batch at execute", guide="43-45")
def test_a_batch(shown: Shown) -> None:
    shown("variable_batch")


@pytest.mark.feature("Device config SOC", guide="63-69, 83-97")
def test_a_chip_by_its_number(shown: Shown) -> None:
    shown("soc", on_device=False)


@pytest.mark.feature("Device config ARCH", guide="71-77, 99-108")
def test_an_architecture(shown: Shown) -> None:
    shown("arch", on_device=False)


@pytest.mark.feature("SOC wins over ARCH", guide="529")
def test_the_chip_wins(shown: Shown) -> None:
    shown("soc_over_arch", on_device=False)


@pytest.mark.feature("Signed PD", guide="79-81, 110-119")
def test_a_signed_domain_needs_an_image(shown: Shown) -> None:
    shown("signed_domain")


@pytest.mark.feature("Device info extension", guide="531-557")
def test_the_device_says_what_it_is(shown: Shown) -> None:
    shown("device_info")


@pytest.mark.feature("Weight sharing", guide="131-137, 227-247")
def test_weights_are_not_shared_over_different_vtcm(shown: Shown) -> None:
    shown("weight_sharing")


@pytest.mark.feature("Register multi contexts", guide="139-145, 249-289")
def test_a_group_of_contexts(shown: Shown) -> None:
    shown("multi_contexts")


@pytest.mark.feature("Spill-fill size in the binary's JSON", guide="253-259")
def test_the_hardware_info_has_the_spill_fill_size(shown: Shown) -> None:
    shown("spill_fill_size")


@pytest.mark.feature("File read memory budget", guide="147-153, 347-355")
def test_a_budget_for_reading(shown: Shown) -> None:
    reads = [entry for entry in shown("read_budget") if entry["event"] == "file_read"]
    assert [entry["chunks"] > 10 for entry in reads] == [True, False]
    assert reads[0]["peak_bytes"] <= 1 << 20


@pytest.mark.feature("I/O memory estimation", guide="155-161, 357-363")
def test_estimated_memory(shown: Shown) -> None:
    assert "I/O estimate" in [entry.get("what") for entry in shown("io_estimation")]


@pytest.mark.feature("DSP heap profiling", guide="163-169, 1670-1743")
def test_the_heap_in_profiles(shown: Shown) -> None:
    shown("heap_profiling")


@pytest.mark.feature("Share resources", guide="171-185, 365-410")
def test_shared_resources(shown: Shown) -> None:
    shown("share_resources")


@pytest.mark.feature("Init acceleration", guide="187-193, 412-418")
def test_accelerated_creation(shown: Shown) -> None:
    plain, quick = creations(shown("init_acceleration"))
    assert quick < plain


@pytest.mark.feature("Skip validation on binary section", guide="195-201, 420-426")
def test_a_damaged_section(shown: Shown) -> None:
    shown("skip_validation")


@pytest.mark.feature("Apply binary section (LoRA)", guide="197, 217")
def test_an_adapter_changes_the_numbers(shown: Shown) -> None:
    assert any(entry["event"] == "adapter" for entry in shown("apply_section"))


@pytest.mark.feature("Concurrent resource sharing", guide="203-209, 291-345")
def test_concurrent_sharing(shown: Shown) -> None:
    shown("concurrent", "SM8850")
    shown("not_concurrent")


@pytest.mark.feature("LoRA weight sharing", guide="211-217, 428-444")
@pytest.mark.parametrize("on_device", [True, False])
def test_an_adapter_comes_before_the_first_run(shown: Shown, on_device: bool) -> None:
    shown("lora", on_device=on_device)


@pytest.mark.feature("Prepare only", guide="219-225")
def test_what_is_only_prepared_does_not_run(shown: Shown) -> None:
    shown("prepare_only")


@pytest.mark.feature("Precision option", guide="464-470")
def test_the_precision_is_taken(shown: Shown) -> None:
    shown("precision")


@pytest.mark.feature("VTCM in MB", guide="472-481")
def test_vtcm_in_mb(shown: Shown) -> None:
    shown("vtcm_mb")


@pytest.mark.feature("VTCM in bytes", guide="2700-2723")
def test_vtcm_in_bytes(shown: Shown) -> None:
    shown("vtcm_bytes", "SM8850")


@pytest.mark.feature("HVX threads", guide="499-505, 1090-1129")
def test_hvx_threads(shown: Shown) -> None:
    shown("hvx_threads")


@pytest.mark.feature("Weights packing", guide="507-513")
def test_weights_are_packed(shown: Shown) -> None:
    shown("weights_packing")


@pytest.mark.feature("DLBC inputs and weights", guide="998-1088")
def test_dlbc(shown: Shown) -> None:
    shown("dlbc")


@pytest.mark.feature("SLC allocator", guide="1131-1188")
def test_the_system_level_cache_is_forced_off_after_a_run(shown: Shown) -> None:
    shown("slc", "SM8750")


@pytest.mark.feature("Power config ids", guide="609-760")
@pytest.mark.parametrize("on_device", [True, False])
def test_power_config_ids(shown: Shown, on_device: bool) -> None:
    shown("power_ids", on_device=on_device)


@pytest.mark.feature("DCVS v3 payload", guide="575-607")
def test_votes_act(shown: Shown) -> None:
    shown("dcvs_votes")


@pytest.mark.feature("Voltage corners", guide="1394")
def test_every_corner_is_as_quick_as_the_one_below(shown: Shown) -> None:
    shown("corners")


@pytest.mark.feature("RPC control latency", guide="565-567, 736-745")
def test_rpc_latency(shown: Shown) -> None:
    shown("rpc_latency")


@pytest.mark.feature("RPC polling", guide="747-760")
def test_rpc_polling(shown: Shown) -> None:
    shown("rpc_polling")


@pytest.mark.feature("Adaptive polling", guide="764-803")
def test_adaptive_polling(shown: Shown) -> None:
    shown("adaptive_polling")


@pytest.mark.feature("HMX votes", guide="832-962")
def test_hmx_votes(shown: Shown) -> None:
    shown("hmx_votes")
    shown("no_hmx_votes", "SM8550")


@pytest.mark.feature("Vote every inference / sustain by timer", guide="964-972")
def test_a_vote_for_each_inference(shown: Shown) -> None:
    shown("vote_each_inference")


@pytest.mark.feature("Basic profile", guide="1660-1668")
def test_a_basic_profile_has_the_guides_events(shown: Shown) -> None:
    shown("basic_profile")
    shown("basic_profile", on_device=False)


@pytest.mark.feature("Yielding and pre-emption", guide="2696-2698")
def test_a_high_priority_goes_before(shown: Shown) -> None:
    log = shown("preemption", privileged=True)
    assert any(entry["event"] == "yield" for entry in log)
    ends = [entry["graph"] for entry in log if entry["event"] == "executed"]
    assert [name.partition("#")[0] for name in ends] == ["dense", "deep"]


@pytest.mark.feature("Library rules", guide="2737-2773")
def test_a_second_copy_of_the_library(shown: Shown) -> None:
    shown("second_library")


@pytest.mark.feature("Graph switching", guide="2775-2847")
def test_graphs_are_switched(shown: Shown) -> None:
    loads = [entry["graph"] for entry in shown("switching") if entry["event"] == "graph_load"]
    assert any(name.endswith("/a") for name in loads)


@pytest.mark.feature("createFromBinaryListAsync", guide="3059-3093")
def test_a_list_of_contexts(shown: Shown) -> None:
    shown("list_async")


@pytest.mark.feature("Init cancellation", guide="3167-3176")
def test_a_creation_times_out(shown: Shown) -> None:
    shown("timeouts")


@pytest.mark.feature("Graph priority", guide="3178-3240")
def test_priorities_that_are_not_for_everybody(shown: Shown) -> None:
    shown("priorities")


@pytest.mark.feature("Error codes", guide="385, 914, 2763, 3019, 3481")
def test_codes(shown: Shown) -> None:
    shown("error_codes")
