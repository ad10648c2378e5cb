# SPDX-License-Identifier: Apache-2.0
"""qnn_preprocess_model as onnxruntime has it, but for models with metadata too, on which onnxruntime's own fails."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MODULE = "onnxruntime.quantization.execution_providers.qnn"
_NAME = "qnn_preprocess_model"


def mend() -> None:
    """Put the mended function in onnxruntime's place: now if its module is there, or when it is first imported."""
    if MODULE in sys.modules:
        _replace(sys.modules[MODULE])
    elif not any(isinstance(finder, _OnImport) for finder in sys.meta_path):
        sys.meta_path.insert(0, _OnImport())


class _OnImport(importlib.abc.MetaPathFinder):
    """Finds the module where it always is; after it has run, its function is replaced."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's own spec."""
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target) if fullname == MODULE else None
        if spec is None or spec.loader is None:
            return None
        plain = spec.loader.exec_module

        def run(module: types.ModuleType) -> None:
            plain(module)
            _replace(module)

        spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec


def _replace(module: types.ModuleType) -> None:
    function = getattr(module, _NAME)
    if not hasattr(function, "__wrapped__"):
        setattr(module, _NAME, mended(function))


def mended(preprocess: Callable[..., bool]) -> Callable[..., bool]:
    """The function, called without the model's metadata, which is put back into what it writes."""

    @functools.wraps(preprocess)
    def qnn_preprocess_model(model_input: Any, model_output: Any, *args: Any, **kwargs: Any) -> bool:
        import onnx

        if isinstance(model_input, onnx.ModelProto):
            model = onnx.ModelProto()
            model.CopyFrom(model_input)
        else:
            model = onnx.load_model(model_input, load_external_data=False)
            if model.metadata_props:
                onnx.external_data_helper.load_external_data_for_model(model, str(Path(model_input).parent))
        if not model.metadata_props:
            return preprocess(model_input, model_output, *args, **kwargs)
        kept = list(model.metadata_props)
        del model.metadata_props[:]
        changed = preprocess(model, model_output, *args, **kwargs)
        if changed:
            written = onnx.load_model(model_output, load_external_data=False)
            known = {pair.key for pair in written.metadata_props}
            written.metadata_props.extend(pair for pair in kept if pair.key not in known)
            onnx.save_model(written, model_output)
        return changed

    return qnn_preprocess_model
