# SPDX-License-Identifier: Apache-2.0
"""InferenceSession: onnxruntime's session, with QNNExecutionProvider on this computer."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime

from hexforge.backend import interrupted_by, timed_kernels
from hexforge.errors import CallError, HexforgeError, UnsupportedError
from hexforge.formats.profile.record import HostEvent
from hexforge.ir import Graph
from hexforge.options import did_you_mean
from hexforge.ort.binding import IOBinding
from hexforge.ort.config import (
    ORT_RUN_KEYS,
    ORT_SESSION_KEYS,
    PROVIDER_PREFIX,
    DynamicOptions,
    Entries,
    RunConfig,
    SessionConfig,
    sort_entries,
    sort_run_entries,
)
from hexforge.ort.errors import raises_onnxruntime_errors
from hexforge.ort.options import (
    SessionOptions,
    is_session_options,
    replaced_initializers,
    requested_providers,
    run_entries,
    session_entries,
)
from hexforge.ort.prepare import Prepared, check_built, extension_notes, output_of, prepare
from hexforge.ort.profiling.files import ProfileFiles
from hexforge.ort.profiling.running_power import RunningPower
from hexforge.ort.profiling.stage import StageProfile, profiled_stages
from hexforge.ort.profiling.trace import Trace
from hexforge.ort.provider_options import ProviderOptions
from hexforge.ort.providers import Requested, requested, uses_qnn
from hexforge.ort.signature import NodeArg, check_feed, check_outputs
from hexforge.ort.values import buffer_at, numpy_dtype, shared_memory_info, shared_value, to_ortvalue
from hexforge.runtime.contexts.context_model import Report
from hexforge.runtime.cpu_part import CPU, QNN
from hexforge.runtime.stages import PlacedNode, Stage, Stages

if TYPE_CHECKING:
    from hexforge.device.buffers import SharedBuffer
    from hexforge.model.declarations import Metadata
    from hexforge.ort.simulated import SimulatedRuns

_LOG = logging.getLogger("hexforge")
_FILE = re.compile(r"(?:_path|_dir|_filepath|_to_file|_trace|dump_\w+)\b")
"""Options that promise a file: one that is not written is worth a warning."""
OFF = "off"
_KEYWORDS = ("enable_fallback", "read_config_from_model", "disabled_optimizers")


@dataclass(frozen=True, slots=True)
class AssignedNode:
    """A node in a graph assignment, as onnxruntime's OrtEpAssignedNode."""

    name: str
    domain: str
    op_type: str


@dataclass(frozen=True, slots=True)
class AssignedSubgraph:
    """Nodes a provider took together, as onnxruntime's OrtEpAssignedSubgraph."""

    ep_name: str
    nodes: tuple[AssignedNode, ...]

    def get_nodes(self) -> list[AssignedNode]:
        """The nodes."""
        return list(self.nodes)


class _Absent:
    """Stands where onnxruntime's native session would be; whatever is asked of it is not there with QNN."""

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedError(f"InferenceSession: {name} is not there with {QNN}; use a session with {CPU} only")


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """onnxruntime's InferenceSession; with QNNExecutionProvider it is a `QnnSession`, in which hexforge runs the model.

    Without that provider it is onnxruntime's own session and does what that does.
    """

    saved: Report | None = None
    """The context that was written (ep.context_enable=1), and its sizes."""
    notes: tuple[str, ...] = ()
    """Options that were given and have no effect, each with the reason."""

    @raises_onnxruntime_errors
    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if sess_options is not None and not is_session_options(sess_options):
            raise CallError(f"sess_options is a {type(sess_options).__name__}; give a SessionOptions")
        for name in kwargs:
            if name not in _KEYWORDS:
                raise CallError(f"InferenceSession has no argument {name!r}{did_you_mean(name, _KEYWORDS)}")
        wanted = requested(providers, provider_options) or dict(requested_providers(sess_options))
        if uses_qnn(wanted):
            if not isinstance(self, QnnSession):
                own = type(self)
                self.__class__ = QnnSession if own is InferenceSession else type(own.__name__, (own, QnnSession), {})
            self._load(path_or_bytes, sess_options, wanted)
            return
        if type(self) is QnnSession:
            self.__class__ = InferenceSession
        if QNN in wanted:  # after the CPU, which takes every node
            providers, provider_options = [(name, o) for name, o in wanted.items() if name != QNN], None
        if isinstance(sess_options, SessionOptions):
            sess_options.hand_over()
        super().__init__(path_or_bytes, sess_options, providers, provider_options, **kwargs)

    def _load(self, source: str | bytes | os.PathLike[str], sess_options: Any, wanted: Requested) -> None:
        raise NotImplementedError  # QnnSession's

    @property
    def placements(self) -> tuple[PlacedNode, ...]:
        """Every node of the model: where it runs, why not on the backend, which QNN ops it became."""
        raise self._not_placed()

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The QNN graphs, in the order they run."""
        raise self._not_placed()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The parts the model runs in, in order."""
        raise self._not_placed()

    def _not_placed(self) -> CallError:
        return CallError(f"the session has no {QNN}; give it in `providers` to see where nodes are placed")

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session anew with other providers."""
        if uses_qnn(requested(providers, provider_options)):
            source = self._model_path or self._model_bytes
            self.__init__(source, self._sess_options_initial, providers, provider_options)  # type: ignore[misc]
        else:
            super().set_providers(providers, provider_options)


class QnnSession(InferenceSession):
    """An InferenceSession with QNNExecutionProvider: hexforge places and runs the model."""

    def _load(self, source: str | bytes | os.PathLike[str], sess_options: Any, wanted: Requested) -> None:
        """Place and compile the model."""
        super(onnxruntime.InferenceSession, self).__init__(enable_fallback=False)  # type: ignore[call-arg]
        self._sess = _Absent()
        self._sess_options = sess_options if sess_options is not None else SessionOptions()
        self._sess_options_initial = sess_options
        self._source = source
        self._lock = threading.Lock()
        self.notes = ()
        entries, options = parse_options(self._sess_options, wanted)
        self._config = entries.config
        self._least_severe = options.log_severity_level
        self._only_prepared = "enable_htp_prepare_only" if options.acts("enable_htp_prepare_only") else ""
        self._only_prepared = "session.compile_only" if entries.config.compile_only else self._only_prepared
        output = output_of(source, entries.config, options)
        prefix = self._sess_options.profile_file_prefix.rstrip("_")
        self._trace = Trace(prefix) if self._sess_options.enable_profiling else None
        began = time.monotonic_ns()
        with self._span("Session", "session_initialization"):
            prepared = prepare(source, self._sess_options, entries.config, options, output)
        took_us = (time.monotonic_ns() - began) // 1000
        self._plan: Stages = prepared.plan
        self._inputs_meta, self._outputs_meta, self._fixed = prepared.inputs, prepared.outputs, prepared.fixed
        self._model_meta = prepared.metadata
        self.saved = prepared.report
        self._providers = [QNN, CPU]
        self._provider_options = {QNN: {**entries.provider, **wanted[QNN]}, CPU: wanted.get(CPU, {})}
        self._dynamic = DynamicOptions()
        self._device_parts = prepared.backend, options, not prepared.reloads
        self._simulated: SimulatedRuns | None = None
        self._running_power = RunningPower()
        self._note(*entries.config.notes(), *options.notes(), *_attribute_notes(self._sess_options), *prepared.notes)
        self._note(*extension_notes(options, source))
        self._profile_files: ProfileFiles | None = None
        self._profiled: Mapping[str, StageProfile] = {}
        if not self._only_prepared and (options.profiling_level != OFF or self._trace is not None):
            self._start_profile(options, prepared, took_us)

    # -- what the session is ----------------------------------------------------------------------------------------

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
    def simulated(self) -> SimulatedRuns:
        """The session's runs on a simulated device: time, memory, energy (assumed), faults.

        From the first time it is asked for, every run of the session is also a run there.
        """
        with self._lock:
            if self._simulated is None:
                from hexforge.ort.simulated import SimulatedRuns

                made = SimulatedRuns(self._plan.stages, *self._device_parts)
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
        subgraphs = []
        for stage in self._plan.stages:
            nodes = tuple(AssignedNode(row.node, row.domain, row.op_type) for row in stage.rows)
            if stage.part.taken:
                subgraphs.append(AssignedSubgraph(QNN, nodes))
            else:
                subgraphs.extend(AssignedSubgraph(CPU, (node,)) for node in nodes)
        return subgraphs

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session anew with other providers."""
        self.__init__(self._source, self._sess_options_initial, providers, provider_options)  # type: ignore[misc]

    # -- running ----------------------------------------------------------------------------------------------------

    @raises_onnxruntime_errors
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Outputs for inputs, in the order of `output_names` (all outputs where it is None)."""
        names = check_outputs(output_names, self._outputs_meta)
        feeds = check_feed(input_feed, self._inputs_meta, self._fixed)
        return self._execute(names, feeds, run_options)

    @raises_onnxruntime_errors
    def run_into(
        self, output_names: Sequence[str], input_feed: Mapping[str, Any], targets: Mapping[str, Any], run_options: Any
    ) -> list[Any]:
        """As `run`; an output is the array in `targets` where its program can write there, without a copy."""
        names = check_outputs(output_names, self._outputs_meta)
        feeds = check_feed(input_feed, self._inputs_meta, self._fixed)
        return self._execute(names, feeds, run_options, targets)

    def _execute(
        self, names: list[str], feeds: Mapping[str, Any], run_options: Any, targets: Mapping[str, Any] | None = None
    ) -> list[Any]:
        if self._only_prepared:
            raise CallError(f"{self._only_prepared}=1: the session only prepares the model; run its context model")
        if run_options is None and self._simulated is not None:
            self._simulated.run(None, _shared_buffers(feeds, targets))
        if run_options is None and self._trace is None and self._profile_files is None:
            plain = self._plan.run(feeds, names, targets=targets)
            return [plain[name] for name in names]
        only_needed, stages = False, None
        if run_options is not None:
            keys = [o.key for o in RunConfig.table()] + sorted(ORT_RUN_KEYS)
            config, _ = sort_run_entries(run_entries(run_options, keys))
            self._note(*config.notes(self._device_parts[0].name))
            self._running_power.begin(config)
            if self._simulated is not None:
                self._simulated.run(config, _shared_buffers(feeds, targets))
            only_needed = run_options.only_execute_path_to_fetches
            stages = self._plan.adapted(config.lora_config) if config.lora_config else None

        def around(stage: Stage) -> contextlib.AbstractContextManager[None]:
            if run_options is not None and run_options.terminate:
                raise HexforgeError(f"the run was stopped before {stage.name}: RunOptions.terminate is set")
            if stage.name in self._profiled:
                return self._profiled_run(self._profiled[stage.name])
            return self._span("Node", stage.name, provider=QNN if stage.part.taken else CPU)

        def stop() -> None:
            if run_options is not None and run_options.terminate:
                raise HexforgeError("the run was stopped: RunOptions.terminate is set")

        with self._span("Session", "model_run"), interrupted_by(None if run_options is None else stop):
            results = self._plan.run(
                feeds, names, targets=targets, stages=stages, only_needed=only_needed, around=around
            )
        if run_options is not None:
            self._running_power.end(config)
        return [results[name] for name in names]

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
                names = check_outputs(output_names, self._outputs_meta)
                feeds = check_feed(input_feed, self._inputs_meta, self._fixed)
                results = self._execute(names, feeds, run_options)
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
        self._note(*self._dynamic.notes(self._device_parts[0].name))

    def end_profiling(self) -> str:
        """Write the profile (SessionOptions.enable_profiling) and return its file name."""
        return "" if self._trace is None else self._trace.end()

    def get_profiling_start_time_ns(self) -> int:
        """When profiling began, comparable to time.monotonic_ns()."""
        return 0 if self._trace is None else self._trace.start_ns

    # -- inside -----------------------------------------------------------------------------------------------------

    def _start_profile(self, options: ProviderOptions, prepared: Prepared, took_us: int) -> None:
        """Write what is known before the first run, and see to what each run adds."""
        name = Path(self._source).stem if isinstance(self._source, str | os.PathLike) else "model"
        if options.profiling_level == OFF:  # onnxruntime's own profile has ops, too
            self._profiled = profiled_stages(prepared.plan.stages, prepared.backend, "detailed", self._note)
            return
        files = ProfileFiles(
            Path(options.profiling_file_path),
            options.profiling_level,
            options.enable_framework_op_trace,
            prepared.plan.stages,
            prepared.backend,
            self._note,
        )
        loaded = prepared.from_context
        message, what = ("INIT", "QNN (load binary) time") if loaded else ("FINALIZE", "QNN (finalize) time")
        files.start(name, [HostEvent(message, what, took_us, root=True, timestamp_us=time.time_ns() // 1000)])
        self._profile_files, self._profiled = files, files.stages
        weakref.finalize(self, _freed, files, [prepared.plan])

    @contextlib.contextmanager
    def _profiled_run(self, stage: StageProfile) -> Iterator[None]:
        """Record what a stage does while it runs; a run that fails is not recorded."""
        called = time.monotonic_ns()
        with self._span("Node", stage.name, provider=QNN), timed_kernels() as times:
            begin = time.monotonic_ns()
            yield
            took = time.monotonic_ns() - begin
        run = stage.run(times, time.monotonic_ns() - called, took, self._running_power)
        if self._profile_files is not None:
            self._profile_files.add(stage, run)
        if self._trace is not None:
            self._trace.ops(stage.graph, run, begin, QNN, stage.source)

    def _span(self, category: str, name: str, **arguments: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self._trace is None else self._trace.span(category, name, **arguments)

    def _note(self, *notes: str) -> None:
        """Keep and log what has no effect, once."""
        with self._lock:
            new = [note for note in notes if note not in self.notes]
            self.notes += tuple(new)
        for note in new:
            promised = _FILE.search(note.partition(" has no effect")[0])
            self._log(logging.INFO if promised is None else logging.WARNING, note)

    def _log(self, level: int, note: str) -> None:
        """Log as `logging` is set up, or down to the severity that the provider option asks for."""
        if self._least_severe is None:
            _LOG.log(level, note)
        elif level >= 10 * (self._least_severe + 1):  # 0 is verbose, logging.DEBUG is 10
            _LOG.handle(_LOG.makeRecord(_LOG.name, level, __file__, 0, note, (), None))


def _freed(files: ProfileFiles, plans: list[Stages]) -> None:
    """Free a session's programs, and write down how long that took."""
    began = time.monotonic_ns()
    plans.clear()
    with contextlib.suppress(OSError):  # the folder may be gone with what else a test or a script made
        files.close((time.monotonic_ns() - began) // 1000)


def _shared_buffers(feeds: Mapping[str, Any], targets: Mapping[str, Any] | None) -> list[SharedBuffer]:
    """The shared buffers that inputs and outputs lie in, each once."""
    arrays = [feed for feed in (*feeds.values(), *(targets or {}).values()) if isinstance(feed, np.ndarray)]
    buffers = [found for a in arrays if (found := buffer_at(a.ctypes.data)) is not None]
    return list({buffer.fd: buffer for buffer in buffers}.values())


def _cpu_memory() -> Any:
    kinds = onnxruntime.capi.onnxruntime_pybind11_state
    return kinds.OrtMemoryInfo("Cpu", kinds.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, kinds.OrtMemType.DEFAULT)


def parse_options(sess_options: Any, wanted: Requested) -> tuple[Entries, ProviderOptions]:
    """Options and config entries, every fault of both at once."""
    keys = [o.key for o in SessionConfig.table()] + sorted(ORT_SESSION_KEYS)
    keys += [PROVIDER_PREFIX + o.key for o in ProviderOptions.table()]
    given = session_entries(sess_options, keys)
    faults: list[str] = []
    entries = Entries(SessionConfig(), {}, {})
    options = ProviderOptions()
    try:
        entries = sort_entries(given)
    except CallError as error:
        faults.append(str(error))
    prefixed = {k.removeprefix(PROVIDER_PREFIX): v for k, v in given.items() if k.startswith(PROVIDER_PREFIX)}
    try:
        options = ProviderOptions.parse({**prefixed, **wanted[QNN]})
    except CallError as error:
        faults.append(str(error))
    if faults:
        raise CallError("\n".join(faults))
    check_built(entries.config)
    if replaced := replaced_initializers(sess_options):
        names = ", ".join(map(repr, replaced))
        raise UnsupportedError(f"SessionOptions replaces initializers {names}: {QNN} does not; save them in the model")
    return entries, options


def _attribute_notes(sess_options: Any) -> list[str]:
    notes = []
    if sess_options.optimized_model_filepath:
        notes.append("optimized_model_filepath has no effect: ep.context_enable=1 writes a model that has QNN graphs")
    if sess_options.execution_mode.name != "ORT_SEQUENTIAL":
        notes.append("execution_mode has an effect only inside the CPU parts: the parts run one after another")
    return notes
