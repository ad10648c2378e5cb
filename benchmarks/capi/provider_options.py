# SPDX-License-Identifier: Apache-2.0
"""The vendor's provider with every option, over Qualcomm's libraries and over ours, side by side.

`python -m benchmarks.capi.provider_options [--only TEXT]`; `make vendor` installs the provider. Each option is tried
with a small model, and what loads contexts with a context that the provider wrote over the same library. A row says how
it ended: a crash, the first error, or how many nodes the provider took and whether they ran. Exit code 1 where one
crashed over ours, or a verdict differs that no reason is known for.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.peers.provider_process import EP, Answer, ProviderProcess
from benchmarks.peers.vendor import missing
from hexforge.addons.capi.library import lib_path
from hexforge.ir import Array

FEEDS = {"x": np.linspace(-1, 1, 2 * 8 * 8, dtype=np.float32).reshape(1, 2, 8, 8)}
CHIP = {"soc_model": "60", "enable_htp_fp16_precision": "1", "offload_graph_io_quantization": "0"}
TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Trial:
    """Options of the provider, tried with a model, or with a context that it wrote with other options."""

    options: Mapping[str, str]
    session: Mapping[str, str] = field(default_factory=dict)
    of_context: bool = False
    """Open a context; else the model."""
    reason: str = ""
    """Why the verdicts may differ; empty where they must not."""

    @property
    def name(self) -> str:
        """What is tried, in a few words."""
        said = ", ".join(
            f"{key}={Path(value).name or value}" for key, value in [*self.options.items(), *self.session.items()]
        )
        return f"{said or 'defaults'}{' of a context' if self.of_context else ''}"


def trials(folder: Path) -> list[Trial]:
    """Every option of the provider; `folder` is for what it writes."""
    csv = str(folder / "profile.csv")
    made = [Trial({})]
    values: dict[str, tuple[str, ...]] = {
        "soc_model": ("0", "30", "43", "57", "69", "999", "SM8750"),
        "htp_arch": ("0", "68", "73", "75", "79", "12"),
        "device_id": ("0", "1"),
        "vtcm_mb": ("0", "1", "4", "8", "64"),
        "rpc_control_latency": ("100",),
        "htp_performance_mode": (
            "default", "burst", "balanced", "high_performance", "high_power_saver", "low_balanced", "low_power_saver",
            "power_saver", "extreme_power_saver", "sustained_high_performance", "unknown",
        ),
        "qnn_context_priority": (
            "low", "normal_low", "normal", "normal_high", "high", "high_plus", "critical", "critical_plus", "unknown",
        ),
        "htp_graph_finalization_optimization_mode": ("0", "1", "2", "3", "9"),
        "enable_htp_fp16_precision": ("0", "1"),
        "htp_bf16_enable": ("1",),
        "enable_htp_monolithic_lstm": ("1",),
        "enable_htp_matmul_lut": ("0",),
        "enable_htp_fp16_clamp_overflow": ("1",),
        "enable_htp_spill_fill_buffer": ("1",),
        "offload_graph_io_quantization": ("1",),
        "enable_block_quant_weight_optimization": ("1",),
        "enable_htp_shared_memory_allocator": ("1",),
        "extended_udma": ("1",),
        "dump_json_qnn_graph": ("1",),
        "skip_qnn_version_check": ("1",),
        "enable_framework_op_trace": ("1",),
        "disable_file_mapped_weights": ("1",),
        "enable_htp_prepare_and_load": ("1",),
        "enable_htp_graph_splitting": ("1",),
        "htp_reused_io_limit_mb": ("1",),
        "htp_share_resource_optimization": ("0", "1"),
        "enable_vtcm_backup_buffer_sharing": ("1",),
        "htp_num_cores": ("2",),
    }  # fmt: skip
    more: dict[str, dict[str, str]] = {
        "dump_json_qnn_graph": {"json_qnn_graph_dir": str(folder)},
        "enable_framework_op_trace": {"framework_op_trace_dir": str(folder)},
    }
    for key, each in values.items():
        made += [Trial({key: value, **more.get(key, {})}) for value in each]
    made += [
        Trial({"profiling_level": level, "profiling_file_path": csv}) for level in ("basic", "detailed", "optrace")
    ]
    context = {"ep.context_enable": "1", "ep.context_file_path": str(folder / "again_ctx.onnx")}
    made += [
        Trial({}, context),
        Trial({"enable_htp_prepare_only": "1"}, context),
        Trial({"enable_htp_spill_fill_buffer": "1"}, context),
    ]
    of_context: list[dict[str, str]] = [
        {}, {"htp_share_resource_optimization": "1"}, {"enable_vtcm_backup_buffer_sharing": "1"},
        {"enable_htp_spill_fill_buffer": "1"}, {"qnn_context_priority": "high"}, {"htp_reused_io_limit_mb": "1"},
        {"disable_file_mapped_weights": "1"}, {"enable_htp_shared_memory_allocator": "1"},
    ]  # fmt: skip
    return [*made, *(Trial(options, of_context=True) for options in of_context)]


LISTS = "Qualcomm's library on x86 makes no lists of contexts; ours does, as a device"
REASONS: Mapping[str, str] = {
    "vtcm_mb=64": "the chip has 8 MB; Qualcomm's library on x86 does not look, a device refuses it",
    "enable_htp_graph_splitting=1": "Qualcomm's library on x86 does not run what it split; ours has one graph",
    "htp_share_resource_optimization=1 of a context": LISTS,
    "enable_vtcm_backup_buffer_sharing=1 of a context": LISTS,
    "htp_reused_io_limit_mb=1 of a context": "Qualcomm's library on x86 refuses the option; ours leaves it out",
}
"""Why a verdict differs, by the trial's name."""


def small_model(path: Path) -> Path:
    """A convolution, a Relu and a Softmax."""
    weights = np.random.default_rng(1).standard_normal((4, 2, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=1),
    ]
    first, last = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 8, 8])]
        for name, channels in (("x", 2), ("y", 4))
    )
    graph = helper.make_graph(nodes, "small", first, last, [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@dataclass(frozen=True, slots=True)
class Ending:
    """How the provider ended with a trial."""

    verdict: str
    """`crash`, `no session`, `on the CPU`, `in part`, `no run` or `runs`."""
    error: str = ""

    @classmethod
    def of(cls, answer: Answer) -> Ending:
        """The verdict on what the process said."""
        line = (answer.error or answer.run_error).splitlines()[:1]
        if answer.error.startswith(("the process ended", "no answer")):
            return cls("crash", answer.error)
        if answer.error:
            return cls("no session", line[0])
        if EP not in answer.nodes:
            return cls("on the CPU")
        if answer.run_error:
            return cls("no run", line[0])
        return cls("runs" if answer.whole else "in part")


class Side:
    """The provider over one library."""

    def __init__(self, folder: Path, options: Mapping[str, str], environment: Mapping[str, str] | None = None) -> None:
        self._own, self._folder, self._environment = options, folder, environment
        self._context: Path | None = None

    def context(self) -> Path:
        """A context that the provider wrote with default options."""
        if self._context is None:
            self._context = self._folder / "made_ctx.onnx"
            entries = {"ep.context_enable": "1", "ep.context_file_path": str(self._context)}
            answer = self._ask({}, small_model(self._folder / "small.onnx"), entries, None)
            if answer.error:
                raise RuntimeError(f"the provider writes no context: {answer.error}")
        return self._context

    def tried(self, trial: Trial) -> Ending:
        """How the provider ended with a trial."""
        for left in self._folder.glob("again_ctx*"):
            left.unlink()
        model = self.context() if trial.of_context else small_model(self._folder / "small.onnx")
        return Ending.of(self._ask(trial.options, model, trial.session, FEEDS))

    def _ask(
        self, options: Mapping[str, str], model: Path, session: Mapping[str, str], feeds: Mapping[str, Array] | None
    ) -> Answer:
        chosen = {**CHIP, **self._own, **options}
        with ProviderProcess(chosen, TIMEOUT_S, environment=self._environment) as process:
            return process.ask(model, feeds, session_options=session)


def rows(only: str = "") -> Iterator[tuple[Trial, Ending, Ending]]:
    """Every trial with how it ended over Qualcomm's library, and over ours."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        theirs = Side(Path(first), {})
        ours = Side(Path(second), {"backend_path": str(lib_path() / "libQnnHtp.so")})
        for mine, other in zip(trials(Path(second)), trials(Path(first)), strict=True):
            if only in mine.name:
                yield mine, theirs.tried(other), ours.tried(mine)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    if why := missing():
        sys.exit(why)
    crashes = unexplained = count = 0
    print("| option | over Qualcomm's library | over ours | |\n|---|---|---|---|")
    for trial, theirs, ours in rows(arguments.only):
        count += 1
        same = theirs.verdict == ours.verdict
        crashes += ours.verdict == "crash"
        unexplained += not same and trial.name not in REASONS
        note = "" if same else REASONS.get(trial.name, "**differs**")
        cells = [f"{end.verdict}{f': {end.error[:110]}' if end.error else ''}" for end in (theirs, ours)]
        print(f"| {trial.name} | {cells[0]} | {cells[1]} | {note} |", flush=True)
    print(f"{count} options: {crashes} crashes over ours, {unexplained} verdicts differ without a reason")
    sys.exit(1 if crashes or unexplained else 0)


if __name__ == "__main__":
    main()
