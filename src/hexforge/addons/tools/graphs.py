# SPDX-License-Identifier: Apache-2.0
"""Graphs that tools run: from ONNX models, graph texts and contexts, with the config file's settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from hexforge.backend import Backend, ContextBackend, Program
from hexforge.errors import CallError, FormatError
from hexforge.formats.backend_extensions import Config
from hexforge.formats.config_sections import PerfProfile
from hexforge.formats.file_kinds import kind_of, open_model
from hexforge.options import did_you_mean
from hexforge.rules import require_taken

if TYPE_CHECKING:
    from hexforge.runtime.contexts.compile import Compiled

LOG_LEVELS = ("error", "warn", "info", "debug", "verbose")
DLC_LIBRARY = "libQnnModelDlc.so"
CHIP: ContextVar[str] = ContextVar("CHIP", default="")
"""The chip of the device that a tool runs on, whatever a config file says; empty: the config's, else the default."""
_LIBRARY = re.compile(r"\.(?:so|dll|dylib|cpp)$", re.IGNORECASE)


def tool_backend(library: str, config: Config, tool: str, graph: str | Sequence[str] = "") -> Backend:
    """The backend that a library's name selects, made as the config file says."""
    from hexforge.chips.soc import DEFAULT_SOC
    from hexforge.ort.options.provider_options import backend_of_library
    from hexforge.runtime import registry
    from hexforge.runtime.tool_config import htp_settings

    try:
        name = backend_of_library(library)
    except CallError as error:
        raise CallError(str(error).replace("provider option 'backend_path' is", "--backend")) from None
    plain = registry.backend(name)
    if not isinstance(plain, ContextBackend):
        return plain
    settings = htp_settings(config, graph, (tool,))
    if CHIP.get():
        settings.pop("htp_arch", None)
        settings["soc_model"] = CHIP.get()
    elif "soc_model" not in settings and "htp_arch" not in settings:
        settings["soc_model"] = DEFAULT_SOC
    return registry.backend(name, settings)


def prepares_online(backend: Backend) -> Backend:
    """The backend as it prepares a graph on the device that runs it: all threads and all VTCM unless told otherwise."""
    from hexforge.backend import TimedBackend
    from hexforge.chips.graph_config import THREADS, VTCM
    from hexforge.chips.soc import find_chip
    from hexforge.runtime import registry

    if not isinstance(backend, TimedBackend) or not isinstance(backend, ContextBackend):
        return backend
    chip, own = find_chip(backend.targets[0].name), backend.graph_config
    if chip is None:
        return backend
    given = {} if own.num_hvx_threads else {THREADS: str(chip.hvx_threads)}
    given |= {} if own.vtcm_bytes else {VTCM: str(chip.vtcm_mb)}
    return registry.backend(backend.name, {**backend.config.pairs(), **given})


def records(backend: Backend) -> bool:
    """Whether a backend writes down the calls it gets."""
    from hexforge.addons.saver.recorder import SaverBackend

    return isinstance(backend, SaverBackend)


def recorded_model(path: Path, backend: Backend, name: str) -> Program:
    """A model compiled whole by a backend that records it; UnsupportedError names what is refused."""
    from hexforge.runtime.contexts.compile import compiled_programs

    compiled_model(path, backend.inner, name)  # type: ignore[attr-defined]  # refuses what cannot be whole
    return compiled_programs(path, name, backend, {}, quantized_io=False)[name]


def check_log_level(name: str) -> None:
    """CallError for what is no log level."""
    if name.lower() not in LOG_LEVELS:
        raise CallError(f"--log_level {name!r}: one of {', '.join(LOG_LEVELS)}{did_you_mean(name, LOG_LEVELS)}")


def check_profile(name: str) -> None:
    """CallError for what is no performance profile."""
    known = get_args(PerfProfile)
    if name and name.lower() not in known:
        raise CallError(f"--perf_profile {name!r}: one of {', '.join(known)}{did_you_mean(name, known)}")


def register_packages(text: str) -> None:
    """Load the op packages of --op_packages: path:interface[:target], separated by commas."""
    from hexforge.ops.packages import register_whole_package

    for part in filter(None, text.split(",")):
        register_whole_package(part)


def tensors_by_graph(text: str, flag: str, known: Sequence[str]) -> dict[str, list[str]]:
    """`graph:a,b;graph2:c` as names by graph; of one graph its name may be left out, or said before each tensor."""
    tensors: dict[str, list[str]] = {}
    for part in filter(None, text.split(";")):
        graph, colon, names = part.partition(":")
        if not colon and len(known) == 1:
            graph, names = known[0], part
        if graph not in known:
            raise CallError(f"{flag} {part!r}: expected <graph>:<tensor>,<tensor> with graph one of {', '.join(known)}")
        tensors.setdefault(graph, []).extend(name.removeprefix(f"{graph}:") for name in filter(None, names.split(",")))
    return tensors


def graph_name(model: Path) -> str:
    """What the graph of a model file is called."""
    return re.sub(r"[^\w.-]", "_", model.stem)


def require_model(path: Path) -> None:
    """CallError that explains what is no model of ours: the vendor's libraries and files."""
    if not path.exists():
        raise CallError(f"--model {path}: there is no such file")
    if _LIBRARY.search(path.name):
        raise CallError(
            f"--model {path}: is a model library compiled with the vendor's SDK; give the ONNX file it was made from"
        )
    kind = kind_of(path)
    if not kind.does:
        raise FormatError(f"{path}: is {kind.name}; {kind.advice}")


def compiled_model(path: Path, backend: Backend, name: str, exposed: Sequence[str] = ()) -> Compiled:
    """A model compiled whole; UnsupportedError names what the backend refuses."""
    from hexforge.runtime.contexts.compile import compile as compile_models
    from hexforge.runtime.contexts.request import ContextRequest

    require_model(path)
    return compile_models(path, None, backend, ContextRequest(graph_names=(name,), exposed=exposed))


def is_graph_text(path: Path) -> bool:
    """True for a file that holds a graph as `hexforge show --weights` prints it."""
    return path.suffix.lower() in (".txt", ".qnn", ".graph")


def text_program(path: Path, backend: Backend, exposed: Sequence[str] = ()) -> Program:
    """The program of a graph that is given as text."""
    from hexforge.ir import text
    from hexforge.runtime.plan import expose

    try:
        graph = text.loads(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise FormatError(f"{path}: is no text; a graph text is what `hexforge show --weights` prints") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from None
    require_taken(graph, backend.unsupported, f"{path}: the {backend.name} backend")
    if exposed:
        expose(graph, exposed)
    return backend.compile(graph)


def model_paths(model: str, dlc_path: str) -> list[Path]:
    """The models of --model and --dlc_path, of which libQnnModelDlc.so only says that the other names the model."""
    named = [part for part in model.split(",") if part and Path(part).name != DLC_LIBRARY]
    if dlc_path and named:
        raise CallError(f"--dlc_path and --model {model} both name a model; with --dlc_path, --model is {DLC_LIBRARY}")
    paths = [Path(part) for part in (dlc_path.split(",") if dlc_path else named)]
    if not paths:
        raise CallError("no model is given: --model, or --retrieve_context for a context binary")
    return paths


def require_suits(path: Path, backend: Backend, strict: bool) -> None:
    """Refuse what is no context, or none for the backend's chip; one of the vendor's is refused with an explanation."""
    from hexforge.formats.container import Container
    from hexforge.formats.context import Info
    from hexforge.runtime.contexts.compatibility import BinaryCompatibility, require_compatible

    if not path.exists():
        raise CallError(f"--retrieve_context {path}: there is no such file")
    if not open_model(path).does("validate"):
        raise FormatError(
            f"{path}: is no context of hexforge; one that the vendor's tools wrote runs only on its libraries: "
            "make one here with qnn-context-binary-generator or `hexforge compile`"
        )
    demanded = BinaryCompatibility.STRICT if strict else BinaryCompatibility.PERMISSIVE
    info = Info.from_json(Container(path, str(path)).json("info", ""), str(path))
    require_compatible(info, backend, demanded, where=str(path))


def open_context(path: Path, backend: Backend, config: Config) -> dict[str, Program]:
    """The programs of a context binary that suits the backend."""
    from hexforge.runtime.contexts.load_contexts import ContextConfig, load_context

    own = config.htp.context
    given = ContextConfig(
        graphs=config.tool.context_configs.enable_graphs,
        backend=backend,
        file_read_memory_budget_mb=own.file_read_memory_budget_in_mb,
        init_acceleration=own.init_acceleration,
    )
    return dict(load_context(path, given).programs)
