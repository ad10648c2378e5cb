# SPDX-License-Identifier: Apache-2.0
"""SessionOptions and RunOptions: onnxruntime's own, which also remember what they were given."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import onnx
import onnxruntime

from hexforge.errors import CallError
from hexforge.ir import Array
from hexforge.options import did_you_mean
from hexforge.ort.options.config import ORT_SESSION_KEYS, SessionConfig
from hexforge.ort.options.context_callbacks import reader
from hexforge.runtime.cpu_part import CPU, QNN, OptionsOf, with_constants

_OF_THE_WHOLE = tuple(option.key for option in SessionConfig.table() if option.whole_model)
"""Keys that concern a whole model: the sessions of its parts on the CPU must not see them."""
_OF_PARTS = ORT_SESSION_KEYS | {option.key for option in SessionConfig.table() if not option.whole_model}
"""Keys that the sessions of parts are given."""

_COPIED = (
    "enable_cpu_mem_arena enable_mem_pattern enable_mem_reuse execution_mode execution_order graph_optimization_level "
    "inter_op_num_threads intra_op_num_threads log_severity_level log_verbosity_level logid use_deterministic_compute "
    "use_per_session_threads"
).split()


class SessionOptions(onnxruntime.SessionOptions):  # type: ignore[misc]
    """onnxruntime's SessionOptions, which also remembers what it was given, so that a session can check all of it."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[str, str] = {}
        self._providers: list[tuple[str, dict[str, str]]] = []
        self._dims: dict[str, int] = {}
        self._libraries: list[str] = []
        self._replaced: list[str] = []
        self._context_reader: Callable[[str], bytearray] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("_") and not hasattr(type(self), name):
            raise CallError(f"SessionOptions has no attribute {name!r}{did_you_mean(name, dir(type(self)))}")
        super().__setattr__(name, value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set one session config entry; a session checks the key and the value when it is made."""
        if key not in _OF_THE_WHOLE:
            super().add_session_config_entry(key, value)
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """A session config entry."""
        return self._entries[key] if key in self._entries else str(super().get_session_config_entry(key))

    def hand_over(self) -> None:
        """Give onnxruntime also the entries that concern a whole model, for a session that is onnxruntime's own."""
        for key in _OF_THE_WHOLE:
            if key in self._entries and _native_entry(self, key) != self._entries[key]:
                super().add_session_config_entry(key, self._entries[key])

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Give a symbolic dimension of the inputs a size."""
        super().add_free_dimension_override_by_name(name, size)
        self._dims[name] = int(size)

    def register_custom_ops_library(self, path: str) -> None:
        """Load a library of custom ops for the nodes left to the CPU."""
        super().register_custom_ops_library(path)
        self._libraries.append(path)

    def add_initializer(self, name: str, value: Any) -> None:
        """Replace the data of an initializer."""
        super().add_initializer(name, value)
        self._replaced.append(name)

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Replace the data of external initializers."""
        super().add_external_initializers(names, values)
        self._replaced.extend(names)

    def set_ep_context_data_read_func(self, read_func: Callable[[str, Any], None], max_data_size: int) -> None:
        """Have a function supply contexts that are not embedded, by their names, instead of files."""
        super().set_ep_context_data_read_func(read_func, max_data_size)
        self._context_reader = reader(read_func, max_data_size)

    def clear_ep_context_data_read_func(self) -> None:
        """Read contexts from files."""
        super().clear_ep_context_data_read_func()
        self._context_reader = None

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Add an execution provider, used where a session is made without `providers`."""
        if name != QNN:
            super().add_provider(name, dict(options))
        self._providers.append((name, dict(options)))

    def add_provider_for_devices(self, devices: Sequence[Any], options: Mapping[str, str]) -> None:
        """Add the execution provider of some devices (get_ep_devices)."""
        if not any(device.ep_name == QNN for device in devices):
            super().add_provider_for_devices(devices, dict(options))
        elif not all(device.ep_name == QNN for device in devices):
            raise CallError("add_provider_for_devices: all devices must belong to the same execution provider")
        named = {"backend_type", "backend_path"} & set(options)
        own = dict(devices[0].ep_options) if devices[0].ep_name == QNN and not named else {}
        self._providers.append((devices[0].ep_name, {**own, **options}))

    def set_provider_selection_policy(self, policy: Any) -> None:
        """Choose the provider by policy: those that want an NPU choose QNNExecutionProvider."""
        if "NPU" in str(policy) or "EFFICIENCY" in str(policy) or "POWER" in str(policy):
            self._providers.append((QNN, {}))
        else:
            super().set_provider_selection_policy(policy)

    def has_providers(self) -> bool:
        """True where a provider or policy was added."""
        return bool(self._providers) or super().has_providers()


class RunOptions(onnxruntime.RunOptions):  # type: ignore[misc]
    """onnxruntime's RunOptions, which also remembers its config entries."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set one run config entry; a run checks the key and the value."""
        super().add_run_config_entry(key, value)
        self._entries[key] = value


def session_entries(options: Any, known: Iterable[str]) -> dict[str, str]:
    """Config entries of session options; of onnxruntime's own class, which cannot list them, those that are known."""
    return _entries(options, "get_session_config_entry", known)


def run_entries(options: Any, known: Iterable[str]) -> dict[str, str]:
    """Config entries of run options; of onnxruntime's own class those that are known."""
    return _entries(options, "get_run_config_entry", known)


def _entries(options: Any, getter: str, known: Iterable[str]) -> dict[str, str]:
    if isinstance(options, (SessionOptions, RunOptions)):
        return dict(options._entries)
    entries = {}
    for key in known:
        try:
            entries[key] = str(getattr(options, getter)(key))
        except RuntimeError:  # how onnxruntime says that the key is not set
            continue
    return entries


def _native_entry(options: Any, key: str) -> str | None:
    """What onnxruntime itself has of an entry."""
    try:
        return str(onnxruntime.SessionOptions.get_session_config_entry(options, key))
    except RuntimeError:  # how onnxruntime says that the key is not set
        return None


def requested_providers(options: Any) -> list[tuple[str, dict[str, str]]]:
    """Providers added to session options."""
    return list(options._providers) if isinstance(options, SessionOptions) else []


def named_dims(options: Any) -> dict[str, int]:
    """Symbolic dimensions given a size by name; onnxruntime's own class does not tell."""
    return dict(options._dims) if isinstance(options, SessionOptions) else {}


def replaced_initializers(options: Any) -> list[str]:
    """Names of initializers whose data the session options replace."""
    return list(options._replaced) if isinstance(options, SessionOptions) else []


def context_reader(options: Any) -> Callable[[str], bytearray] | None:
    """What supplies contexts instead of files, if anything does."""
    return options._context_reader if isinstance(options, SessionOptions) else None


def is_session_options(options: Any) -> bool:
    """True for onnxruntime's SessionOptions and for ours."""
    return isinstance(options, onnxruntime.SessionOptions)


def overridden_shapes(declared: Iterable[onnx.ValueInfoProto], options: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of inputs that free-dimension overrides make static.

    onnxruntime has no getter for the overrides, so it is asked for the inputs of a model that has nothing else.
    """
    inputs = [v for v in declared if v.type.HasField("tensor_type")]
    nodes = [onnx.helper.make_node("Identity", [v.name], [f"{v.name}_out"]) for v in inputs]
    outputs = [onnx.helper.make_empty_tensor_value_info(f"{v.name}_out") for v in inputs]
    graph = onnx.helper.make_graph(nodes, "inputs", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    with _fit_for_a_part(options) as chosen:
        session = onnxruntime.InferenceSession(model.SerializeToString(), chosen, providers=[CPU])
    shapes = {v.name: v.shape for v in session.get_inputs()}
    return {name: tuple(shape) for name, shape in shapes.items() if all(isinstance(d, int) for d in shape)}


def options_of_parts(options: Any) -> OptionsOf:
    """What gives the parts of a model that stay on the CPU the user's session options."""

    def chosen(constants: Mapping[str, Array]) -> AbstractContextManager[Any]:
        if constants or isinstance(options, SessionOptions):
            return _fit_for_a_part(_let_threads_sleep(_copied(options, constants)))
        return _fit_for_a_part(_let_threads_sleep(options))

    return chosen


_WAITING = ("session.intra_op.allow_spinning", "session.force_spinning_stop")


def _let_threads_sleep(options: Any) -> Any:
    """The options of a part, whose threads sleep behind its run: the next part is a graph, which needs their cores.

    onnxruntime's own lets them wait awake, which is kept where the user says how they are to wait.
    """
    if all(_native_entry(options, key) is None for key in _WAITING):
        onnxruntime.SessionOptions.add_session_config_entry(options, "session.force_spinning_stop", "1")
    return options


_CHANGING = threading.Lock()


@contextmanager
def _fit_for_a_part(options: Any) -> Iterator[Any]:
    """The user's own options (they may hold what cannot be copied, such as custom-op libraries) fit for a part.

    What concerns files or providers of the whole model is set aside for as long as the part's session is being made.
    """
    changed = {key: value for key in _OF_THE_WHOLE if (value := _native_entry(options, key)) not in (None, "0")}
    set_aside = {"optimized_model_filepath": "", "enable_profiling": False}
    if options.log_severity_level in (0, 1):  # a part would say that all nodes are the CPU's, which is not the model's
        set_aside["log_severity_level"] = 2
    kept = {name: getattr(options, name) for name in set_aside}
    if kept == set_aside and not changed and not options.has_providers():
        yield options
        return
    with _CHANGING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, neutral in set_aside.items():
            setattr(options, name, neutral)
        for key in changed:
            onnxruntime.SessionOptions.add_session_config_entry(options, key, "0")
        try:
            yield options
        finally:
            for name, value in kept.items():
                setattr(options, name, value)
            for key, value in changed.items():
                onnxruntime.SessionOptions.add_session_config_entry(options, key, value)


def _copied(options: Any, constants: Mapping[str, Array]) -> Any:
    """A copy of options with constants added, which the user's own are not to keep."""
    made = onnxruntime.SessionOptions()
    for key, value in session_entries(options, _OF_PARTS).items():
        if key in _OF_PARTS:
            made.add_session_config_entry(key, value)
    for name in _COPIED:
        setattr(made, name, getattr(options, name))
    for path in options._libraries if isinstance(options, SessionOptions) else ():
        made.register_custom_ops_library(path)
    return with_constants(made, constants)
