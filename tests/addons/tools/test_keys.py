# SPDX-License-Identifier: Apache-2.0
"""Each of the 32 keys of the HTP's config file: it acts, or says why it does not and which tool reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.addons.device import Device
from hexforge.addons.device.extensions import creation_config, profile_of
from hexforge.addons.device.placed_contexts import on_device
from hexforge.addons.tools import tool_command
from hexforge.addons.tools.graphs import tool_backend
from hexforge.chips.htp_config import HtpConfig
from hexforge.errors import HexforgeError
from hexforge.formats.backend_extensions import Config, load_htp
from hexforge.formats.config_sections import GENERATOR, NET_RUN, GraphSection

SIZE = 64


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return convolutions(tmp_path_factory.mktemp("keys") / "m.onnx", SIZE)


def convolutions(path: Path, size: int) -> Path:
    """Three convolutions with Relu."""
    random = np.random.default_rng(0)
    nodes, constants, now = [], [], "x"
    for i in range(3):
        weight = random.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12
        constants.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("Conv", [now, f"w{i}"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], f"relu{i}"))
        now = f"r{i}"
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 16, size, size]) for n in ("x", now)]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def config(tmp_path: Path, **sections: Any) -> Config:
    path = tmp_path / "htp.json"
    sections.setdefault("devices", [{"soc_model": 57}])
    path.write_text(json.dumps(sections))
    return load_htp(path)


def prepared(model: Path, tmp_path: Path, **sections: Any) -> hexforge.Context:
    """The context that the generator makes."""
    config(tmp_path, **sections)
    (tmp_path / "tool.json").write_text('{"backend_extensions": {"config_file_path": "htp.json"}}')
    arguments = ["--model", str(model), "--backend", "libQnnHtp.so", "--config_file", str(tmp_path / "tool.json"),
                 "--output_dir", str(tmp_path), "--binary_file", "m"]  # fmt: skip
    tool_command("qnn-context-binary-generator").main(arguments, standalone_mode=False)
    return hexforge.Context(tmp_path / "m.bin")


def latency_us(model: Path, tmp_path: Path, **core: Any) -> float:
    """Of the second of two runs on the simulated device, as a core is driven."""
    return second_us(model, config(tmp_path, devices=[{"soc_model": 57, "cores": [core]}]))


def second_us(model: Path, given: Config, tool: str = NET_RUN, chip: str = "SM8650") -> float:
    """The latency of the second of two runs on the simulated device."""
    compiled = hexforge.compile(model, None, tool_backend("libQnnHtp.so", given, tool))
    program = on_device([compiled.to_bytes()], chip, given)["m"]
    for _ in range(2):
        program.run({"x": np.zeros((1, 16, SIZE, SIZE), np.float32)})
    return program.results[-1].latency_us


def on_a_device(model: Path, tmp_path: Path, **sections: Any) -> None:
    given = config(tmp_path, **sections)
    context = prepared(model, tmp_path)
    assert set(on_device([tmp_path / "m.bin"], "SM8650", given)) == {g.name for g in context.graphs}


GRAPH_SETTINGS: dict[str, tuple[Any, str, int]] = {
    "vtcm_mb": (2, "vtcm_mb", 2),
    "hvx_threads": (3, "num_hvx_threads", 3),
    "O": (1, "optimization", 1),
}


@pytest.mark.feature("VTCM in MB", guide="472-481")
@pytest.mark.feature("HVX threads", guide="499-505, 1090-1129")
@pytest.mark.feature("Optimization level", guide="456-462, 523, 1234-1238")
@pytest.mark.parametrize("key", GRAPH_SETTINGS)
def test_a_graphs_settings_are_in_the_context(key: str, model: Path, tmp_path: Path) -> None:
    value, name, written = GRAPH_SETTINGS[key]
    assert prepared(model, tmp_path, graphs=[{key: value}]).graphs[0].settings[name] == written
    assert (
        prepared(model, tmp_path, graphs=[{"graph_names": ["other"], key: value}]).graphs[0].settings[name] != written
    )


@pytest.mark.feature("DLBC inputs and weights", guide="998-1088")
@pytest.mark.feature("Weights packing", guide="507-513")
@pytest.mark.feature("Fold ReLU off", guide="483-489")
@pytest.mark.feature("Short depth conv off HMX", guide="491-497, 1252-1254")
@pytest.mark.parametrize(
    ("key", "value"),
    [("dlbc", 1), ("weights_packing", True), ("fold_relu_activation_into_conv_off", True),
     ("short_depth_conv_on_hmx_off", True)],
)  # fmt: skip
def test_a_graphs_options_are_the_backends(key: str, value: Any, tmp_path: Path) -> None:
    made = tool_backend("libQnnHtp.so", config(tmp_path, graphs=[{key: value}]), GENERATOR)
    assert made.config.pairs()[key] == "1"


def test_every_key_of_a_graph_is_one_of_the_backends_options() -> None:
    """What is not spelled so is the two that the backend spells otherwise, and what is no option of a graph."""
    own = {option.key for option in HtpConfig.table()}
    others = {"graph_names", "fp16_relaxed_precision", "O", "hvx_threads", "num_cores"}
    assert set(GraphSection.model_fields) - others <= own


@pytest.mark.feature("num_cores", guide="1248-1250")
def test_several_cores_are_quicker(model: Path, tmp_path: Path) -> None:
    """In the context that the generator makes, on a device, and in the estimate of the same file."""
    one, two = (config(tmp_path, graphs=[{"num_cores": n}], devices=[{"soc_model": 52}]) for n in (1, 2))
    assert second_us(model, two, GENERATOR, "SA8775P") < second_us(model, one, GENERATOR, "SA8775P")
    quick = hexforge.estimate(model, hexforge.deployment_from_config(tmp_path / "htp.json"))  # the file says two
    assert quick.latency_ms < hexforge.estimate(model, hexforge.Deployment("SA8775P", power=quick_power())).latency_ms
    compiled = hexforge.compile(model, None, tool_backend("libQnnHtp.so", two, GENERATOR))
    program = on_device([compiled.to_bytes()], "SA8775P", one)["m"]  # as the context was prepared, whoever runs it
    assert len(program.context.client.device.cores.cores) == 2
    on_one = config(tmp_path, graphs=[{"num_cores": 2}], devices=[{"soc_model": 57}])
    with pytest.raises(HexforgeError, match="num_cores 2: SM8650 has 1 NSP core"):
        tool_backend("libQnnHtp.so", on_one, GENERATOR)


def quick_power() -> hexforge.Power:
    return hexforge.Power("high_performance", rpc_control_latency_us=100)


def test_a_section_without_a_list_is_taken_as_older_tools_write_it(tmp_path: Path) -> None:
    given = config(tmp_path, graphs={"vtcm_mb": 2, "graph_names": ["m"]})
    assert given.graph("m").vtcm_mb == 2
    core = {"core_id": 0, "perf_profile": "burst", "rpc_control_latency": 100}
    assert config(tmp_path, devices=[{"soc_id": 57, "cores": [core]}]).htp.devices[0].cores[0].perf_profile == "burst"


def test_graphs_of_a_context_have_settings_of_their_own(model: Path, tmp_path: Path) -> None:
    (tmp_path / "n.onnx").write_bytes(model.read_bytes())
    sections = [{"graph_names": ["m"], "vtcm_mb": 2, "hvx_threads": 2}, {"graph_names": ["n"], "vtcm_mb": 8}]
    context = prepared(Path(f"{model},{tmp_path / 'n.onnx'}"), tmp_path, graphs=sections)
    assert {g.name: (g.settings["vtcm_mb"], g.settings["num_hvx_threads"]) for g in context.graphs} == {
        "m": (2, 2),
        "n": (8, 4),
    }
    sections[0]["dlbc"] = 1
    with pytest.raises(HexforgeError, match="dlbc: graphs of one context"):
        prepared(Path(f"{model},{tmp_path / 'n.onnx'}"), tmp_path, graphs=sections)


@pytest.mark.feature("SOC wins over ARCH", guide="529")
@pytest.mark.feature("Device config SOC", guide="63-69, 83-97")
@pytest.mark.feature("Device config ARCH", guide="71-77, 99-108")
def test_the_chip_by_any_key(model: Path, tmp_path: Path) -> None:
    for device in ({"soc_model": 69}, {"soc_id": 69}):
        assert prepared(model, tmp_path, devices=[device]).info.targets[0].name == "SM8750"
    given = config(tmp_path, devices=[{"dsp_arch": "v79"}])
    assert tool_backend("libQnnHtp.so", given, NET_RUN).config.pairs()["htp_arch"] == "79"
    both = prepared(model, tmp_path, devices=[{"soc_model": 57, "dsp_arch": "v79"}]).info.targets[0]
    assert (both.name, both.facts["htp_arch"]) == ("SM8650", 75)


@pytest.mark.feature("SLC allocator", guide="1131-1188")
def test_the_system_level_cache_is_a_key_of_graphs(tmp_path: Path) -> None:
    given = config(tmp_path, devices=[{"soc_model": 69}], graphs=[{"slc_alloc_enable": 1}])
    assert tool_backend("libQnnHtp.so", given, GENERATOR).config.pairs()["slc_alloc_enable"] == "1"


@pytest.mark.feature("RPC control latency", guide="565-567, 736-745, 1311-1313")
@pytest.mark.feature("RPC polling", guide="747-760, 1315-1318")
@pytest.mark.feature("Adaptive polling", guide="764-803, 1324-1326")
@pytest.mark.feature("Performance profile table", guide="1392-1632")
def test_how_a_core_is_driven_changes_the_time(model: Path, tmp_path: Path) -> None:
    burst = latency_us(model, tmp_path, perf_profile="burst")
    assert burst < latency_us(model, tmp_path, perf_profile="power_saver")
    assert burst < latency_us(model, tmp_path, perf_profile="burst", rpc_polling_time=0)
    adaptive = latency_us(model, tmp_path, perf_profile="burst", rpc_polling_time=1, adaptive_polling_time=1)
    assert adaptive < latency_us(model, tmp_path, perf_profile="burst", rpc_polling_time=1)
    slow = latency_us(model, tmp_path, perf_profile="power_saver", rpc_control_latency=100)
    assert latency_us(model, tmp_path, perf_profile="power_saver", rpc_control_latency=10) < slow


@pytest.mark.feature("system_settings", guide="1392")
def test_system_settings_vote_for_nothing(model: Path, tmp_path: Path) -> None:
    """The governor's clocks, no poll: slower than burst, and no vote is made around a run."""
    settings = latency_us(model, tmp_path, perf_profile="system_settings")
    assert latency_us(model, tmp_path, perf_profile="burst") < settings
    given = config(tmp_path, devices=[{"soc_model": 57, "cores": [{"perf_profile": "system_settings"}]}])
    assert not profile_of(given).votes


@pytest.mark.feature("Context of another arch", guide="33")
def test_a_context_of_a_newer_chip_is_refused_by_net_run(model: Path, tmp_path: Path) -> None:
    prepared(model, tmp_path, devices=[{"soc_model": 69}])
    config(tmp_path, devices=[{"soc_model": 57}])
    (tmp_path / "list.txt").write_text("x.raw\n")
    arguments = ["--retrieve_context", str(tmp_path / "m.bin"), "--backend", "libQnnHtp.so", "--input_list",
                 str(tmp_path / "list.txt"), "--config_file", str(tmp_path / "tool.json")]  # fmt: skip
    with pytest.raises(HexforgeError, match=r"was made for SM8750.*newer than SM8650"):
        tool_command("qnn-net-run").main(arguments, standalone_mode=False)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "device_id": ({"devices": [{"device_id": 1}]}, "there is one device"),
    "core_type": ({"devices": [{"core_type": 1}]}, "no HPASS core"),
    "max_spill_fill_buffer_for_group": ({"context": {"max_spill_fill_buffer_for_group": 8}}, "group_id must be 0"),
}


@pytest.mark.parametrize("key", REFUSED)
def test_what_cannot_be_is_refused(key: str, tmp_path: Path) -> None:
    sections, words = REFUSED[key]
    with pytest.raises(HexforgeError, match=words):
        config(tmp_path, **sections)


WARNED: dict[str, dict[str, Any]] = {
    "use_client_context": {"devices": [{"use_client_context": True}]},
    "adaptive_polling_time": {"devices": [{"cores": [{"adaptive_polling_time": 500}]}]},
    "group_id": {"context": {"group_id": 0}},
    "graph_names": {"graphs": [{"graph_names": []}]},
}


@pytest.mark.parametrize("key", WARNED)
def test_what_does_nothing_says_so(key: str, tmp_path: Path) -> None:
    assert any(key in warning for warning in config(tmp_path, **WARNED[key]).warnings)


@pytest.mark.feature("Signed PD", guide="79-81, 110-119")
@pytest.mark.feature("File read memory budget", guide="147-153, 347-355")
@pytest.mark.feature("I/O memory estimation", guide="155-161, 357-363")
@pytest.mark.feature("Init acceleration", guide="187-193, 412-418")
@pytest.mark.parametrize(
    "sections",
    [
        {"devices": [{"soc_model": 57, "pd_session": "signed", "core_id": [0]}]},
        {"context": {"file_read_memory_budget_in_mb": 1, "io_memory_estimation": True, "init_acceleration": True}},
        {"context": {"group_id": 0, "max_spill_fill_buffer_for_group": 30_081_024}},
    ],
)
def test_a_contexts_keys_are_the_devices(sections: dict[str, Any], model: Path, tmp_path: Path) -> None:
    on_a_device(model, tmp_path, **sections)


@pytest.mark.feature("Register multi contexts", guide="139-145, 249-289")
def test_a_groups_buffer_is_the_devices(tmp_path: Path) -> None:
    """That a graph which needs more is refused, the device's own tests show."""
    given = creation_config(config(tmp_path, context={"group_id": 0, "max_spill_fill_buffer_for_group": 4096}))
    assert given.register_multi_contexts is not None
    assert given.register_multi_contexts.max_spill_fill_buffer == 4096
    assert creation_config(config(tmp_path)).register_multi_contexts is None


@pytest.mark.feature("Weight sharing", guide="131-137, 227-247")
def test_weights_are_shared_where_they_are_to_be(model: Path, tmp_path: Path) -> None:
    other = tmp_path / "n.onnx"
    other.write_bytes(model.read_bytes())
    sizes = {}
    for shared in (False, True):
        config(tmp_path, context={"weight_sharing_enabled": shared})
        (tmp_path / "tool.json").write_text('{"backend_extensions": {"config_file_path": "htp.json"}}')
        arguments = ["--model", f"{model},{other}", "--backend", "libQnnHtp.so", "--binary_file", "b", "--config_file",
                     str(tmp_path / "tool.json"), "--output_dir", str(tmp_path)]  # fmt: skip
        tool_command("qnn-context-binary-generator").main(arguments, standalone_mode=False)
        sizes[shared] = (tmp_path / "b.bin").stat().st_size
    assert sizes[True] < sizes[False]


@pytest.mark.feature("Vote every inference / sustain by timer", guide="964-972")
@pytest.mark.feature("RELAXED and RELEASED power states, stages", guide="1414-1416, 1634-1642")
def test_a_vote_is_held_as_long_as_the_timeout_says(model: Path, tmp_path: Path) -> None:
    states = {}
    for timeout in (1000, 100_000):
        cores = [{"perf_profile": "burst", "hmx_timeout_us": timeout}]
        given = config(tmp_path, devices=[{"soc_model": 57, "cores": cores}])
        compiled = hexforge.compile(model, None, tool_backend("libQnnHtp.so", given, NET_RUN))
        program = on_device([compiled.to_bytes()], "SM8650", given)["m"]
        device: Device = program.qnn.client.device
        program.run({"x": np.zeros((1, 16, SIZE, SIZE), np.float32)})
        device.clock.wait(device.clock.start(asleep(50_000)))
        states[timeout] = [e["state"] for e in device.log.entries if e["event"] == "power_state"][-1]
    assert states == {1000: "RELAXED_POWER_STATE", 100_000: "burst"}


def asleep(us: float) -> Any:
    yield us


def softmax(size: int) -> bytes:
    """A softmax needs all of what is before it, which spills."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "relu"),
        helper.make_node("Softmax", ["a"], ["m"], "softmax", axis=1),
        helper.make_node("Mul", ["a", "m"], ["y"], "scale"),
    ]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 32, size, size]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(made.SerializeToString())


@pytest.mark.feature("Share resources", guide="171-185, 365-410")
@pytest.mark.feature("createFromBinaryListAsync", guide="3059-3093")
def test_contexts_of_a_list_share_what_they_can(tmp_path: Path) -> None:
    """Two contexts with a spill-fill buffer each, or with one for both."""
    used = {}
    for shared in (False, True):
        given = config(tmp_path, groupContext={"share_resources": shared}, graphs=[{"vtcm_mb": 1}])
        backend = tool_backend("libQnnHtp.so", given, NET_RUN)
        requests = [hexforge.ContextRequest(graph_names=(name,)) for name in "mn"]
        made = [hexforge.compile(softmax(256), None, backend, request) for request in requests]
        assert min(g.spill_fill_bytes for one in made for g in one.info.graphs) > 0
        programs = on_device([one.to_bytes() for one in made], "SM8650", given)
        assert set(programs) == {"m", "n"}
        used[shared] = sum(
            e["bytes"]
            for e in programs["m"].qnn.client.device.log.entries
            if e["event"] == "allocate" and "spill" in e["what"]
        )
    assert used[True] < used[False]


@pytest.mark.feature("Qmem graph, shared buffers", guide="2733-2735, 1373-1378")
def test_shared_buffers_save_copies_and_no_bit_changes(model: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((1, 16, SIZE, SIZE)).astype(np.float32)
    seen = []
    for memory in ({}, {"mem_type": "shared_buffer"}):
        given = config(tmp_path, memory=memory)
        compiled = hexforge.compile(model, None, tool_backend("libQnnHtp.so", given, NET_RUN))
        program = on_device([compiled.to_bytes()], "SM8650", given)["m"]
        outputs = [program.run({"x": x}) for _ in range(2)]
        seen.append((outputs[1]["r2"].tobytes(), program.results[1].latency_us))
    assert seen[0][0] == seen[1][0]
    assert seen[1][1] < seen[0][1]


@pytest.mark.feature("LoRA weight sharing", guide="211-217, 428-444")
def test_adapters_have_one_place(model: Path, tmp_path: Path) -> None:
    assert prepared(model, tmp_path, context={"lora_weight_sharing": True}).info.options["lora_weight_sharing"] == "1"
    assert "lora_weight_sharing" not in prepared(model, tmp_path).info.options
