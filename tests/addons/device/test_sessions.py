# SPDX-License-Identifier: Apache-2.0
"""Sessions on a simulated device: options change its time, its memory and what a crash does; never a bit."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import hexforge
from hexforge.chips.power import MODES, Power
from tests.addons.device import tiny
from tests.ort.models import FLOAT, model, node

X = {"x": np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)}


def session(source: Any = None, **options: str) -> Any:
    chosen = {"soc_model": "SM8650", **options}
    return hexforge.InferenceSession(
        tiny.conv() if source is None else source, providers=[("QNNExecutionProvider", chosen)]
    )


def steady(made: Any, run_options: Any = None) -> Any:
    """The last of a few runs."""
    first = made.run(None, X, run_options)[0]
    for _ in range(3):
        assert made.simulated.latency_us > 0
        assert np.array_equal(made.run(None, X, run_options)[0], first)
    return made.simulated.last


def entries(**pairs: str) -> Any:
    made = hexforge.RunOptions()
    for key, value in pairs.items():
        made.add_run_config_entry(f"qnn.{key}", value)
    return made


def test_burst_takes_what_the_estimate_says() -> None:
    made = session(htp_performance_mode="burst")
    deployment = hexforge.Deployment("SM8650", runtime="onnx", power=Power("burst"))
    taken = steady(made)
    graph = made.graphs[0]
    assert taken.latency_us == pytest.approx(hexforge.estimate(graph, deployment).timeline.latency_us, rel=1e-6)


def test_modes_change_time_and_energy_and_no_bit() -> None:
    found = {mode: steady(session(htp_performance_mode=mode)) for mode in MODES}
    times = {mode: run.accelerator_us for mode, run in found.items() if mode != "default"}
    assert list(times.values()) == sorted(times.values())
    assert times["burst"] < times["high_performance"] < times["balanced"] < times["extreme_power_saver"]
    assert found["burst"].latency_us < found["sustained_high_performance"].latency_us  # which does not poll
    assert {run.mode for run in found.values()} == set(MODES)


def test_control_latency_and_run_options_change_the_time() -> None:
    plain, quick = steady(session()), steady(session(rpc_control_latency="20"))
    assert plain.latency_us - quick.latency_us >= 80
    made = session()
    before = steady(made)
    after = steady(made, entries(htp_perf_mode="burst", rpc_control_latency="20"))
    assert after.latency_us < before.latency_us
    assert after.mode == "burst"
    made.run(None, X)
    assert made.simulated.last.mode == "burst"  # from that run on
    made.run(None, X, entries(htp_perf_mode_post_run="low_power_saver"))
    assert (made.simulated.last.mode, made.simulated.last.post_mode) == ("burst", "low_power_saver")
    made.run(None, X)
    assert made.simulated.last.mode == "low_power_saver"


def test_dynamic_options_hold_from_then_on() -> None:
    made = session()
    assert steady(made).mode == "default"
    made.set_ep_dynamic_options({"ep.dynamic.qnn_htp_performance_mode": "burst"})
    made.run(None, X)
    assert made.simulated.last.mode == "burst"
    made.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
    assert "LOW" in [e["priority"] for e in made.simulated.device.log.of("priority")]
    other = session()
    other.set_ep_dynamic_options({"ep.dynamic.qnn_htp_performance_mode": "balanced"})
    other.run(None, X)
    assert other.simulated.last.mode == "balanced"  # asked for after the options were set


def test_priorities_decide_on_a_device_that_sessions_share() -> None:
    low, high = session(qnn_context_priority="low", device_id="7"), session(qnn_context_priority="high", device_id="7")
    assert low.simulated.device is high.simulated.device
    assert session(device_id="8").simulated.device is not low.simulated.device
    graphs = [s.simulated._graphs[0] for s in (low, high)]
    assert graphs[0].priority < graphs[1].priority
    assert (graphs[0].hmx_thread, graphs[1].hmx_thread) == (0xC5, 0xBB)


def test_cores_and_vtcm_change_the_time() -> None:
    one, two = (
        steady(
            session(htp_num_cores=n, htp_performance_mode="burst", device_id="9", soc_model="SA8775P")
        ).accelerator_us
        for n in "12"
    )
    assert one / two == pytest.approx(1.9)
    weights = np.ones((1024, 1024), np.float32)
    wide = model([node("MatMul", ["x", "w"], ["m"], name="a"), node("MatMul", ["m", "w"], ["y"], name="b")],
                 {"x": (FLOAT, [512, 1024])}, {"y": (FLOAT, [512, 1024])}, {"w": weights})  # fmt: skip
    times = [session(wide, vtcm_mb=mb).simulated.last.accelerator_us for mb in ("1", "8")]
    assert times[0] > times[1]


def test_shared_resources_take_less_memory() -> None:
    nodes = [
        node("Relu", ["x"], ["a"], name="relu"),
        node("Det", ["a"], ["b"], name="det"),
        node("Neg", ["b"], ["y"], name="neg"),
    ]
    data = model(nodes, {"x": (FLOAT, [2, 3, 3])}, {"y": (FLOAT, [2])})
    plain, shared = session(data), session(data, htp_share_resource_optimization="1")
    assert len(plain.simulated._graphs) == 2
    assert shared.simulated._graphs[0].context.group is shared.simulated._graphs[1].context.group is not None
    assert plain.simulated._graphs[0].context.group is None


def test_a_crash_is_an_engine_error_where_nothing_can_be_loaded_again() -> None:
    made = session()
    right = made.run(None, X)[0]
    made.simulated.device.restart()
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.EngineError, match="SSR detected") as error:
        made.run(None, X)
    assert isinstance(error.value, hexforge.HexforgeError)
    assert error.value.code == 1007
    assert np.array_equal(session().run(None, X)[0], right)


@pytest.mark.parametrize("embed", [False, True])
def test_a_context_model_recovers_unless_it_is_embedded(tmp_path: Path, embed: bool) -> None:
    (tmp_path / "m.onnx").write_bytes(tiny.conv())
    options = hexforge.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_embed_mode", str(int(embed)))
    options.add_session_config_entry("ep.context_file_path", str(tmp_path / "ctx.onnx"))
    hexforge.InferenceSession(
        str(tmp_path / "m.onnx"), options, providers=[("QNNExecutionProvider", {"soc_model": "SM8650"})]
    )
    made = session(str(tmp_path / "ctx.onnx"), device_id=str(20 + embed))
    right = made.run(None, X)[0]
    made.simulated.device.clock.after(10, made.simulated.device.restart)
    if embed:
        with pytest.raises(hexforge.HexforgeError, match="ENGINE_ERROR"):
            made.run(None, X)
        return
    assert np.array_equal(made.run(None, X)[0], right)
    assert made.simulated.latency_us > 300_000
    assert made.simulated.device.log.of("recovered")
    whole = session(str(tmp_path / "ctx.onnx"), disable_file_mapped_weights="1")
    assert np.array_equal(whole.run(None, X)[0], right)


def test_shared_memory_is_read_where_it_lies_and_saves_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = session(enable_htp_shared_memory_allocator="1", htp_performance_mode="burst")
    assert [info.name for info in (*made.get_input_memory_infos(), *made.get_output_memory_infos())] == [
        "QnnHtpShared"
    ] * 2
    right = made.run(None, X)[0]
    plain = made.simulated.latency_us
    value = made.shared_value((1, 3, 8, 8), np.float32)
    assert value.data_ptr() % 4096 == 0
    value.update_inplace(X["x"])
    seen: list[int] = []
    program = next(stage.runner for stage in made.stages if stage.part.taken)
    run = type(program).run

    def noted(self: Any, feeds: dict[str, Any]) -> dict[str, Any]:
        seen.extend(array.ctypes.data for array in feeds.values())
        found: dict[str, Any] = run(self, feeds)
        return found

    monkeypatch.setattr(type(program), "run", noted)
    (out,) = made.run_with_ort_values(None, {"x": value})
    assert np.array_equal(out.numpy(), right)
    made.run_with_ort_values(None, {"x": value})
    assert made.simulated.latency_us < plain
    direct = session(
        tiny.dense(1), enable_htp_shared_memory_allocator="1", offload_graph_io_quantization="0", device_id="31"
    )
    x = direct.shared_value((1, 8), np.float32)
    seen.clear()
    direct.run_with_ort_values(None, {"x": x})
    assert seen == [x.data_ptr()]  # no copy was made: the program reads the buffer itself
    binding = direct.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y", "npu")
    written: list[int] = []
    run_into = type(program).run_into

    def noted_too(self: Any, feeds: dict[str, Any], targets: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = run_into(self, feeds, targets)
        written.extend(array.ctypes.data for array in found.values())
        return found

    monkeypatch.setattr(type(program), "run_into", noted_too)
    direct.run_with_iobinding(binding)
    (bound,) = binding.get_outputs()
    assert bound.data_ptr() % 4096 == 0
    assert written == [bound.data_ptr()]  # nor on the way back: the program writes into the buffer itself
    assert np.array_equal(bound.numpy(), direct.run(None, {"x": x})[0])


def test_outputs_are_written_where_they_are_bound_whatever_that_is() -> None:
    made = hexforge.InferenceSession(
        tiny.dense(1),
        providers=[("QNNExecutionProvider", {"soc_model": "SM8650", "offload_graph_io_quantization": "0"})],
    )
    x = np.random.default_rng(3).standard_normal((1, 8)).astype(np.float32)
    right = made.run(None, {"x": x})[0]
    array, room = np.zeros((1, 8), np.float32), np.zeros((1, 16), np.float32)
    value = onnxruntime.OrtValue.ortvalue_from_numpy(np.zeros((1, 8), np.float32))
    for bind in (
        lambda b: b.bind_output("y", "cpu", 0, np.float32, (1, 8), array.ctypes.data),
        lambda b: b.bind_ortvalue_output("y", value),
        lambda b: b.bind_ortvalue_output("y", onnxruntime.OrtValue.ortvalue_from_numpy(x.copy())),
    ):
        binding = made.io_binding()
        binding.bind_cpu_input("x", x)
        bind(binding)
        made.run_with_iobinding(binding)
        assert np.array_equal(binding.copy_outputs_to_cpu()[0], right)
    assert np.array_equal(array, right)
    assert np.array_equal(value.numpy(), right)
    same = made.io_binding()  # an output over its own input: read before it is written
    own = x.copy()
    same.bind_input("x", "cpu", 0, np.float32, (1, 8), own.ctypes.data)
    same.bind_output("y", "cpu", 0, np.float32, (1, 8), own.ctypes.data)
    made.run_with_iobinding(same)
    assert np.array_equal(own, right)
    wrong = made.io_binding()
    wrong.bind_cpu_input("x", x)
    wrong.bind_output("y", "cpu", 0, np.float32, (1, 16), room.ctypes.data)
    with pytest.raises(hexforge.CallError, match="bind a buffer of that kind"):
        made.run_with_iobinding(wrong)


def test_memory_is_shared_only_where_it_is_asked_for() -> None:
    made = session()
    assert made.get_input_memory_infos()[0].name == "Cpu"
    with pytest.raises(hexforge.CallError, match="enable_htp_shared_memory_allocator=1"):
        made.shared_value((1,), np.float32)
    with pytest.raises(hexforge.CallError, match="enable_htp_shared_memory_allocator=1"):
        made.io_binding().bind_output("y", "npu")


def test_what_cannot_be_simulated_is_said() -> None:
    with pytest.raises(hexforge.CallError, match="soc_model"):
        _ = session(soc_model="0").simulated
    cpu = hexforge.InferenceSession(tiny.conv(), providers=[("QNNExecutionProvider", {"backend_type": "cpu"})])
    with pytest.raises(hexforge.UnsupportedError, match="use htp"):
        _ = cpu.simulated
    with pytest.raises(hexforge.CallError, match="v81"):
        session(extended_udma="1")


def test_options_that_act_are_not_noted() -> None:
    made = session(
        htp_performance_mode="burst", rpc_control_latency="100", qnn_context_priority="high", device_id="3",
        htp_num_cores="1", enable_vtcm_backup_buffer_sharing="1", htp_share_resource_optimization="1",
        htp_reused_io_limit_mb="1", disable_file_mapped_weights="1",
    )  # fmt: skip
    made.run(None, X, entries(htp_perf_mode="burst", htp_perf_mode_post_run="default", rpc_control_latency="5"))
    made.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
    assert made.notes == ()


def test_profiles_are_timed_under_what_run_and_dynamic_options_say(tmp_path: Path) -> None:
    made = session(profiling_level="basic", profiling_file_path=str(tmp_path / "p.csv"))
    runs: list[Any] = [None, entries(htp_perf_mode="burst"), None, entries(rpc_control_latency="20"), None,
                       entries(htp_perf_mode_post_run="low_power_saver"), None, entries(htp_perf_mode="default"),
                       entries(rpc_control_latency="0")]  # fmt: skip
    for options in runs:
        made.run(None, X, options)
    made.set_ep_dynamic_options({"ep.dynamic.qnn_htp_performance_mode": "extreme_power_saver"})
    made.run(None, X)
    lines = [line.split(",") for line in (tmp_path / "p.csv").read_text().splitlines()]
    times = [int(line[2]) for line in lines if line[1] == "EXECUTE"]
    default, burst, still, quick, again, last, saver, back, slow, extreme = times
    assert burst == still < default
    assert quick == again == last <= burst
    assert last < back <= saver < default  # all of them with a control latency of 20 us
    assert slow == default < extreme
    from hexforge.addons.profiler import log

    assert len(log.read(tmp_path / "p_qnn.log").graphs[0].runs) == len(runs) + 1


def test_what_runs_asked_for_before_the_device_was_looked_at_holds_on_it() -> None:
    made = session()
    made.run(None, X, entries(htp_perf_mode="burst"))
    made.run(None, X)
    assert made.simulated.last.mode == "burst"
    made.run(None, X, entries(htp_perf_mode="default"))
    assert made.simulated.last.mode == "default"


# -- sessions that contend ---------------------------------------------------------------------------------------------


def contending(first: Any, second: Any, rounds: int = 4) -> list[Any]:
    """The last runs of two sessions whose runs overlap: neither ends before both have begun."""
    sessions = [first, second]
    feeds = [{i.name: np.ones(i.shape, np.float32) for i in made.get_inputs()} for made in sessions]
    for made, feed in zip(sessions, feeds, strict=True):
        assert made.simulated.device is first.simulated.device
        made.run(None, feed)
    both = threading.Barrier(2, timeout=60)

    def threaded(made: Any, feed: Any) -> None:
        compute = made._plan.run

        def run(*arguments: Any, **named: Any) -> Any:
            both.wait()
            return compute(*arguments, **named)

        made._plan.run = run
        try:
            for _ in range(rounds):
                made.run(None, feed)
                both.wait()
        finally:
            made._plan.run = compute

    threads = [threading.Thread(target=threaded, args=pair) for pair in zip(sessions, feeds, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [made.simulated.last for made in sessions]


def large(**options: str) -> Any:
    weights = np.random.default_rng(1).standard_normal((512, 512)).astype(np.float32)
    names = ["x", *(f"m{i}" for i in range(7)), "y"]  # several ops: a graph gives way between two
    nodes = [node("MatMul", [a, "w"], [b], name=b) for a, b in itertools.pairwise(names)]
    source = model(nodes, {"x": (FLOAT, [256, 512])}, {"y": (FLOAT, [256, 512])}, {"w": weights})
    return session(source, htp_performance_mode="burst", **options)


def test_priorities_decide_who_waits_where_runs_overlap() -> None:
    low = large(qnn_context_priority="low", device_id="71")
    high = large(qnn_context_priority="high", device_id="71")
    first, second = contending(low, high)
    assert first.waited_us > 0.8 * second.accelerator_us
    assert second.waited_us < 0.3 * first.waited_us
    assert first.latency_us > second.latency_us
    alone = low.simulated.run()
    assert alone.waited_us < 0.3 * first.waited_us
    assert alone.latency_us < first.latency_us


def test_a_run_that_overlaps_with_none_waits_for_none() -> None:
    one, two = large(device_id="72"), large(device_id="72")
    for made in (one, two, one, two):
        made.run(None, {"x": np.ones((256, 512), np.float32)})
        taken = made.simulated.last
    assert taken.waited_us < 0.3 * taken.accelerator_us


def test_the_workload_type_changes_who_waits() -> None:
    one, other = large(device_id="73"), large(device_id="73")
    one.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
    efficient, plain = contending(one, other)
    assert efficient.waited_us > 0.8 * plain.accelerator_us > plain.waited_us
    one.set_ep_dynamic_options({"ep.dynamic.workload_type": "Default"})
    other.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
    plain, efficient = contending(one, other)
    assert efficient.waited_us > 0.8 * plain.accelerator_us > plain.waited_us
