# SPDX-License-Identifier: Apache-2.0
"""Loads: whether a model that is about to be written is one that onnx's checker and onnxruntime's defaults take."""

from __future__ import annotations

from pathlib import Path

import onnx

from hexforge.errors import ModelError

_CHECKED_BYTES = 1_900_000_000
"""Up to which the checker takes a model as bytes."""


def load_problem(model: bytes | Path, folder: Path | None = None) -> str | None:
    """Why a model would not load, in the checker's or onnxruntime's words; None where it does.

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
        onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        words = _words(error)
        return None if "EPContext" in words else words
    return None


def require_loads(model: bytes | Path, where: str, folder: Path | None = None) -> None:
    """ModelError where a model would not load."""
    problem = load_problem(model, folder)
    if problem is not None:
        raise ModelError(f"{where}: is not written, because onnxruntime would not load it: {problem}")


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())
