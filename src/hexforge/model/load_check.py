# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime loads: the newest versions, the largest protobuf, and whether a model is one that it takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from hexforge.errors import ModelError
from hexforge.ir import Array

RUNTIME_OPSET = 26  # the newest that onnxruntime 1.31 loads, and the newest IR version
RUNTIME_IR = 13
MOST_BYTES = 3 << 29  # 1.5 GB, a safe step below protobuf's 2 GB
_CHECKED_BYTES = 1_900_000_000
"""Up to which the checker takes a model as bytes."""


@dataclass(frozen=True, slots=True)
class Extract:
    """A part of a model that stands alone, for onnxruntime, and the constants that do not fit into its protobuf."""

    proto: onnx.ModelProto
    constants: dict[str, Array] = field(default_factory=dict)
    """For SessionOptions.add_external_initializers."""


def load_problem(model: bytes | Path, folder: Path | None = None, *, run: bool = False) -> str | None:
    """Why a model would not load, in the checker's or onnxruntime's words; None where it does.

    With `run` it must also run once, on zeros, where all of its inputs are tensors of fixed sizes.

    `folder` is where the external data of a model in bytes lies. A context model is only checked: it loads where there
    is a provider that takes its contexts.
    """
    import onnxruntime

    external = folder is not None or isinstance(model, Path)
    try:
        if not external and len(model) <= _CHECKED_BYTES:  # type: ignore[arg-type]
            onnx.checker.check_model(model)
    except (onnx.checker.ValidationError, ValueError, RuntimeError) as error:
        return _words(error)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    source = str(model) if isinstance(model, Path) else model
    try:
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        if run and (zeros := _zeros(session)) is not None:
            session.run(None, zeros)
    except Exception as error:
        words = _words(error)
        return None if "EPContext" in words else words
    return None


def _zeros(session: Any) -> dict[str, np.ndarray[Any, Any]] | None:
    """A zero for every input; None where an input is no tensor of a fixed size."""
    zeros = {}
    for value in session.get_inputs():
        dtype = NUMPY_TYPES.get(value.type)
        if dtype is None or not all(isinstance(size, int) for size in value.shape):
            return None
        zeros[value.name] = np.zeros(value.shape, dtype)
    return zeros


_ALIKE = ("float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
NUMPY_TYPES: dict[str, np.dtype[Any]] = {f"tensor({name})": np.dtype(name) for name in _ALIKE}
NUMPY_TYPES |= {"tensor(float)": np.dtype("float32"), "tensor(double)": np.dtype("float64")}
"""Array types by the names that onnxruntime has for types of tensors; those that numpy has no type for are left out."""


def require_loads(model: bytes | Path, where: str, folder: Path | None = None) -> None:
    """ModelError where a model would not load."""
    problem = load_problem(model, folder)
    if problem is not None:
        raise ModelError(f"{where}: is not written, because onnxruntime would not load it: {problem}")


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())
