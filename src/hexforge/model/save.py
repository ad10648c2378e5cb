# SPDX-License-Identifier: Apache-2.0
"""Save: a model to a file, whole or not at all; one past what a protobuf holds has its tensors beside it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import onnx_ir
from onnx_ir import serde

from hexforge.errors import CallError
from hexforge.formats.files import write_atomically
from hexforge.model.load_check import require_loads

EMBEDDED_BYTES = 1_900_000_000
"""The bytes of constants up to which a model is one file: a protobuf ends at 2 GB, and the graph needs room."""


def constant_bytes(model: onnx_ir.Model) -> int:
    """What the constants of a model take."""
    return sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)


def to_bytes(model: onnx_ir.Model) -> bytes:
    """A model as the bytes of one ONNX file; CallError where they are too many for that."""
    if constant_bytes(model) > EMBEDDED_BYTES:
        raise CallError("the model has more constants than one file holds (2 GB); name a file to write it to")
    data: bytes = serde.serialize_model(model).SerializeToString()
    return data


def save(model: onnx_ir.Model, path: Path) -> tuple[Path, ...]:
    """Write a model; the files that it became. ModelError where onnxruntime would not load it."""
    if constant_bytes(model) <= EMBEDDED_BYTES:
        content = to_bytes(model)
        require_loads(content, str(path))
        write_atomically(path, content)
        return (path,)
    data = path.with_name(f"{path.name}.data")
    try:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    except OSError as error:
        raise CallError(f"{path}: cannot be written: {error.strerror or error}") from None
    try:
        onnx_ir.save(model, folder / path.name, external_data=data.name)
        require_loads(folder / path.name, str(path))
        (folder / data.name).replace(data)
        (folder / path.name).replace(path)
    except OSError as error:
        raise CallError(f"{path}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return path, data
