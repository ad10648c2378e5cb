# SPDX-License-Identifier: Apache-2.0
"""QnnSession: what an InferenceSession with QNNExecutionProvider does: hexforge places the model and runs it."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from hexforge.addon import DEVICE_VARIABLE, Hook, hook
from hexforge.backend import interrupted_by
from hexforge.errors import CallError, HexforgeError, UnsupportedError
from hexforge.ir import Graph
from hexforge.ort.binding import IOBinding
from hexforge.ort.errors import raises_onnxruntime_errors
from hexforge.ort.observed_runs import DeviceRuns, SessionRecord
from hexforge.ort.options.backend import power_of_options
from hexforge.ort.options.compatibility import tolerated_run_entries
from hexforge.ort.options.config import LIKE_THE_EP, ORT_RUN_KEYS, DynamicOptions, RunConfig, sort_run_entries
from hexforge.ort.options.notes import OVERFLOWED, Notes
from hexforge.ort.options.parsing import attribute_notes, parse_options
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.ort.options.providers import Requested
from hexforge.ort.options.running_power import RunningPower
from hexforge.ort.options.session_options import SessionOptions, run_entries
from hexforge.ort.provider_listing import assignment
from hexforge.ort.session_plan import Prepared, context_output, extension_notes, prepare
from hexforge.ort.signature import NodeArg, check_feed, check_outputs
from hexforge.ort.values import SharedMemory, buffer_at, numpy_dtype, shared_memory_info, shared_value, to_ortvalue
from hexforge.runtime.contexts.context_model import Report
from hexforge.runtime.cpu_part import CPU, QNN
from hexforge.runtime.stages import PlacedNode, Stage, Stages

if TYPE_CHECKING:
    from hexforge.model.declarations import Metadata


class _Absent:
    """Takes the place of onnxruntime's native session, whose attributes do not exist with QNN."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(f"InferenceSession: {name} is not there with {QNN}; use a session with {CPU} only")


class QnnSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """A session with QNNExecutionProvider."""

    saved: Report | None
    """The context that was written (ep.context_enable=1), and its sizes."""

    def load(
        self,
        source: str | bytes | os.PathLike[str],
        sess_options: Any,
        wanted: Requested,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
    ) -> None:
        """Place and compile the model; `shapes` are those of inputs that it leaves open."""
        super(onnxruntime.InferenceSession, self).__init__(enable_fallback=False)
        self._sess = _Absent()
        self._sess_options = sess_options if sess_options is not None else SessionOptions()
        self._sess_options_initial = sess_options
        self._source = source
        self._lock = threading.Lock()
        parsed = parse_options(self._sess_options, wanted)
        entries, options = parsed.entries, parsed.options
        self._notes = Notes(_least_severe(options, self._sess_options))
        self._notes.warn(*parsed.warnings)
        self._config = entries.config
        self._only_prepared = "enable_htp_prepare_only" if options.acts("enable_htp_prepare_only") else ""
        self._only_prepared = "session.compile_only" if entries.config.compile_only else self._only_prepared
        output = context_output(source, entries.config, options)
        prefix = self._sess_options.profile_file_prefix.rstrip("_")
        self._running_power = RunningPower(power_of_options(options))
        self._record = SessionRecord()
        if self._sess_options.enable_profiling or options.profiling_level != "off":
            traced = prefix if self._sess_options.enable_profiling else None
            self._record = hook(Hook.PROFILE_SESSION)(traced, self._running_power)
        began = time.monotonic_ns()
        with self._record.span("Session", "session_initialization"):
            prepared = prepare(source, self._sess_options, entries.config, options, output, parsed.no_backend, shapes)
        took_us = (time.monotonic_ns() - began) // 1000
        self._plan: Stages = prepared.plan
        self._notes.tell_placements(prepared.plan.rows, prepared.backend.name)
        self._inputs_meta, self._outputs_meta, self._fixed = prepared.inputs, prepared.outputs, prepared.fixed
        self._model_meta = prepared.metadata
        self.saved = prepared.report
        self._providers = [QNN, CPU]
        self._provider_options = {QNN: {**entries.provider, **wanted[QNN]}, CPU: wanted.get(CPU, {})}
        self._dynamic = DynamicOptions()
        self._device_parts = prepared.backend, options, not prepared.reloads
        self._simulated: DeviceRuns | None = None
        self._notes.add(*entries.config.notes(), *options.notes(), *attribute_notes(self._sess_options))
        self._notes.add(*prepared.notes, *extension_notes(options, source))
        if not self._only_prepared:
            self._start_record(options, prepared, took_us)
            self._attach()

    def _attach(self) -> None:
        """Be on the device that the environment names (HEXFORGE_DEVICE) from the first run on, where there is one."""
        if not os.environ.get(DEVICE_VARIABLE):
            return
        self._simulated = hook(Hook.ATTACH_TO_DEVICE)(self._plan.stages, *self._device_parts)
        if self._simulated is None:
            self._notes.add(f"{DEVICE_VARIABLE}: the session runs on no chip that is simulated; soc_model names one")

    def _start_record(self, options: ProviderOptions, prepared: Prepared, took_us: int) -> None:
        name = Path(self._source).stem if isinstance(self._source, str | os.PathLike) else "model"
        self._record.start(
            name, prepared.plan, prepared.backend, options, prepared.from_context, took_us, self._notes.add
        )
        if (told := self._record.when_freed()) is not None:
            weakref.finalize(self, _free_programs, told, [prepared.plan])

    # -- what the session is ----------------------------------------------------------------------------------------

    @property
    def notes(self) -> tuple[str, ...]:
        """Options that were given and have no effect, each with the reason; and that numbers of a run overflowed."""
        if self._plan.overflowed:
            self._notes.add(OVERFLOWED)
        return self._notes.lines

    @property
    def placements(self) -> tuple[PlacedNode, ...]:
        """Every node of the model: where it runs, why not on the backend, which QNN ops it became."""
        return self._plan.rows

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The QNN graphs, in the order they run."""
        return self._plan.graphs

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The parts the model runs in, in order."""
        return self._plan.stages

    @property
    def simulated(self) -> DeviceRuns:
        """The session's runs on a simulated device: time, memory, energy (assumed), faults.

        From the first time it is asked for, every run of the session is also a run there.
        """
        with self._lock:
            if self._simulated is None:
                made: DeviceRuns = hook(Hook.RUN_ON_DEVICE)(self._plan.stages, *self._device_parts)
                made.follow(self._dynamic, list(self._dynamic.pairs()))
                made.run(self._running_power.config)
                self._simulated = made
            return self._simulated

    def get_inputs(self) -> Sequence[NodeArg]:
        """The inputs: name, type, shape."""
        return list(self._inputs_meta)

    def get_outputs(self) -> Sequence[NodeArg]:
        """The outputs: name, type, shape."""
        return list(self._outputs_meta)

    def get_input_memory_infos(self) -> Sequence[Any]:
        """Where each input is to lie: in the CPU's memory, or in what it shares with the HTP."""
        return [self._memory() for _ in self._inputs_meta]

    def get_output_memory_infos(self) -> Sequence[Any]:
        """Where each output lies: in the CPU's memory, or in what it shares with the HTP."""
        return [self._memory() for _ in self._outputs_meta]

    def _memory(self) -> Any:
        return shared_memory_info() if self.shares_memory else _cpu_memory()

    @property
    def shares_memory(self) -> bool:
        """Whether values can lie in memory that the CPU shares with the HTP (enable_htp_shared_memory_allocator)."""
        options = self._device_parts[1]
        file = options.extensions()
        return options.acts("enable_htp_shared_memory_allocator") or (file is not None and file.shares_buffers)

    @raises_onnxruntime_errors
    def shared_value(self, shape: Sequence[int], element_type: Any) -> Any:
        """An OrtValue in memory that the CPU shares with the HTP (QnnHtpShared): read where it lies."""
        if not self.shares_memory:
            option = "enable_htp_shared_memory_allocator"
            raise CallError(f"memory is not shared with the HTP; set provider option {option}=1")
        return shared_value(shape, numpy_dtype(element_type))

    def get_input_epdevices(self) -> Sequence[Any]:
        """The device that each input goes to, as onnxruntime lists its devices: the CPU's, which hands it on."""
        cpu = next(device for device in onnxruntime.get_ep_devices() if device.ep_name == CPU)
        return [cpu for _ in self._inputs_meta]

    def get_overridable_initializers(self) -> Sequence[NodeArg]:
        """Initializers a feed may replace: none with QNNExecutionProvider, which makes them constant."""
        return []

    def get_modelmeta(self) -> Metadata:
        """What the model says of itself."""
        return self._model_meta

    def get_providers(self) -> Sequence[str]:
        """The execution providers, in order of preference."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options of each provider, as they were given."""
        return {name: dict(options) for name, options in self._provider_options.items()}

    def get_session_options(self) -> Any:
        """The session's options."""
        return self._sess_options

    @raises_onnxruntime_errors
    def get_provider_graph_assignment_info(self) -> Sequence[Any]:
        """Which nodes each provider took; needs session.record_ep_graph_assignment_info=1."""
        if not self._config.record_ep_graph_assignment_info:
            key = "session.record_ep_graph_assignment_info"
            raise CallError(f'session config key {key!r} must be "1" to retrieve graph assignment information')
        return list(assignment(self._plan.stages))

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session anew with other providers."""
        self.__init__(self._source, self._sess_options_initial, providers, provider_options)  # type: ignore[misc]

    # -- running ----------------------------------------------------------------------------------------------------

    @raises_onnxruntime_errors
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Outputs for inputs, in the order of `output_names` (all outputs where it is None)."""
        return self._execute(*self._checked(output_names, input_feed), run_options)

    @raises_onnxruntime_errors
    def run_into(
        self, output_names: Sequence[str], input_feed: Mapping[str, Any], targets: Mapping[str, Any], run_options: Any
    ) -> list[Any]:
        """As `run`; an output is the array in `targets` where its program can write there, without a copy."""
        return self._execute(*self._checked(output_names, input_feed), run_options, targets)

    def _checked(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any]
    ) -> tuple[list[str], dict[str, Any]]:
        """The outputs that are asked for, and the inputs as arrays."""
        return check_outputs(output_names, self._outputs_meta), check_feed(input_feed, self._inputs_meta, self._fixed)

    def _execute(
        self, names: list[str], feeds: Mapping[str, Any], run_options: Any, targets: Mapping[str, Any] | None = None
    ) -> list[Any]:
        if self._only_prepared:
            raise CallError(f"{self._only_prepared}=1: the session only prepares the model; run its context model")
        if run_options is None and not self._record.active:
            with self._on_device(None, feeds, targets):
                plain = self._plan.run(feeds, names, targets=targets)
            return [plain[name] for name in names]
        config: RunConfig | None = None
        only_needed, stages = False, None
        if run_options is not None:
            keys = [o.key for o in RunConfig.table()] + sorted(ORT_RUN_KEYS)
            entries = run_entries(run_options, keys)
            if self._config.compatibility == LIKE_THE_EP:
                entries, faults = tolerated_run_entries(entries)
                self._notes.warn(*(fault for fault in faults if fault not in self._notes.lines))
            config, _ = sort_run_entries(entries)
            self._notes.add(*config.notes(self._device_parts[0].name))
            self._running_power.begin(config)
            only_needed = run_options.only_execute_path_to_fetches
            stages = self._plan.stages_with_adapters(config.lora_config) if config.lora_config else None

        def around(stage: Stage) -> contextlib.AbstractContextManager[None]:
            if run_options is not None and run_options.terminate:
                raise HexforgeError(f"the run was stopped before {stage.name}: RunOptions.terminate is set")
            return self._record.run_of(stage)

        def stop() -> None:
            if run_options is not None and run_options.terminate:
                raise HexforgeError("the run was stopped: RunOptions.terminate is set")

        with (
            self._on_device(config, feeds, targets),
            self._record.span("Session", "model_run"),
            interrupted_by(None if run_options is None else stop),
        ):
            results = self._plan.run(
                feeds, names, targets=targets, stages=stages, only_needed=only_needed, around=around
            )
        if config is not None:
            self._running_power.end(config)
        return [results[name] for name in names]

    @contextlib.contextmanager
    def _on_device(
        self, config: RunConfig | None, feeds: Mapping[str, Any], targets: Mapping[str, Any] | None
    ) -> Iterator[None]:
        """A run that is on the simulated device, too, where there is one, for as long as it computes here."""
        device = self._simulated
        if device is None:
            yield
            return
        flight = device.begin(config, _shared_buffers(feeds, targets))
        try:
            yield
        finally:
            device.finish(flight)

    @raises_onnxruntime_errors
    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Any,
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Run in a thread of its own; `callback(results, user_data, error text)` is called from it.

        Only a feed without one of the inputs is an error at once, as in onnxruntime.
        """
        if not isinstance(input_feed, Mapping) or any(arg.name not in input_feed for arg in self._inputs_meta):
            check_feed(input_feed, self._inputs_meta, self._fixed)

        def work() -> None:
            try:
                results = self._execute(*self._checked(output_names, input_feed), run_options)
            except HexforgeError as error:
                callback([], user_data, str(error))
            except Exception as error:  # whatever it is, the caller can only learn of it here
                callback([], user_data, f"{type(error).__name__}: {error}")
            else:
                callback(results, user_data, "")

        threading.Thread(target=work, daemon=True).start()

    @raises_onnxruntime_errors
    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """As `run`, with OrtValues in and out."""
        return [to_ortvalue(value) for value in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> Any:
        """An IOBinding for this session."""
        return IOBinding(self)

    @raises_onnxruntime_errors
    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Run on what an IOBinding of this session binds."""
        if not isinstance(iobinding, IOBinding) or iobinding._session is not self:
            raise CallError("the IOBinding belongs to another session; make it with this session's io_binding()")
        iobinding.execute(run_options)

    @raises_onnxruntime_errors
    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Set options of the execution providers that can change while the session lives."""
        with self._lock:
            self._dynamic = self._dynamic.updated(options)
            self._running_power.follow(self._dynamic, list(options))
            if self._simulated is not None:
                self._simulated.follow(self._dynamic, list(options))
        self._notes.add(*self._dynamic.notes(self._device_parts[0].name))

    def end_profiling(self) -> str:
        """Write the profile (SessionOptions.enable_profiling) and return its file name."""
        return self._record.end()

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, comparable to time.monotonic_ns()."""
        return self._record.start_ns


def _least_severe(options: ProviderOptions, sess_options: Any) -> int | None:
    """What is logged by the provider's option, or by the session's where that asks for more than warnings."""
    if options.log_severity_level is not None:
        return options.log_severity_level
    return sess_options.log_severity_level if sess_options.log_severity_level in (0, 1) else None


def _free_programs(told: Callable[[int], None], plans: list[Stages]) -> None:
    """Free a session's programs, and write down how long that took."""
    began = time.monotonic_ns()
    plans.clear()
    with contextlib.suppress(OSError):  # the folder may be gone with what else a test or a script made
        told((time.monotonic_ns() - began) // 1000)


def _shared_buffers(feeds: Mapping[str, Any], targets: Mapping[str, Any] | None) -> list[SharedMemory]:
    """The shared buffers that inputs and outputs lie in, each once."""
    arrays = [feed for feed in (*feeds.values(), *(targets or {}).values()) if isinstance(feed, np.ndarray)]
    buffers = [shared for a in arrays if (shared := buffer_at(a.ctypes.data)) is not None]
    return list({buffer.fd: buffer for buffer in buffers}.values())


def _cpu_memory() -> Any:
    kinds = onnxruntime.capi.onnxruntime_pybind11_state
    return kinds.OrtMemoryInfo("Cpu", kinds.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, kinds.OrtMemType.DEFAULT)
