# SPDX-License-Identifier: Apache-2.0
"""The stand-in's submodules are onnxruntime's own, with one function fixed; it can be imported as onnxruntime."""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

_OWN = Path(__file__).parent
_PACKAGE = "onnxruntime_qnn"
"""The package that the QNN EP comes in, which scripts ask for its libraries."""


class _Aliases(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `stand_in.x.y` as the module `real.x.y` itself, not as a second copy of it."""

    def __init__(self, stand_in: str, real: str) -> None:
        self._prefix = f"{stand_in}."
        self._real = f"{real}."
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """A spec for names under the stand-in that the real package has."""
        if not fullname.startswith(self._prefix) or (_OWN / f"{fullname.removeprefix(self._prefix)}.py").exists():
            return None
        name = self._real + fullname.removeprefix(self._prefix)
        try:
            exists = name in sys.modules or importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            exists = False
        return importlib.machinery.ModuleSpec(fullname, self) if exists else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The real module."""
        module = importlib.import_module(self._real + spec.name.removeprefix(self._prefix))
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run; the import system has put the alias's spec on the module, so give it its own back."""
        spec = module.__spec__
        if spec is not None and spec.name in self._specs:
            module.__spec__ = self._specs.pop(spec.name)


def alias_submodules(stand_in: str, real: str) -> None:
    """Make `import stand_in.x` give the real package's `x` wherever the stand-in has no such module itself."""
    sys.meta_path.insert(0, _Aliases(stand_in, real))  # first, as real packages have paths that others would search


def install() -> types.ModuleType:
    """Make `import onnxruntime` give the stand-in, in this process from now on.

    The module has the real one's name, path and contents, so its submodules load as ever; those that import
    onnxruntime themselves get the stand-in too, whose session without QNNExecutionProvider is onnxruntime's.
    """
    import onnxruntime

    import hexforge.ort

    present = sys.modules["onnxruntime"]
    if present.__dict__.get("__hexforge__"):
        return present
    module = types.ModuleType("onnxruntime", onnxruntime.__doc__)
    module.__dict__.update(onnxruntime.__dict__)
    module.__dict__.update({name: getattr(hexforge.ort, name) for name in hexforge.ort.__all__})
    module.__dict__["__hexforge__"] = True
    sys.modules["onnxruntime"] = module
    if _PACKAGE not in sys.modules and importlib.util.find_spec(_PACKAGE) is None:
        sys.modules[_PACKAGE] = importlib.import_module("hexforge.ort.options.qnn_package")
    return module


# -- qnn_preprocess_model, for models with metadata too, on which onnxruntime's own fails ----------------------------

MODULE = "onnxruntime.quantization.execution_providers.qnn"
_NAME = "qnn_preprocess_model"


def replace_function() -> None:
    """Replace onnxruntime's function by the fixed one: now if its module is loaded, else when it is first imported."""
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
        setattr(module, _NAME, keeping_metadata(function))


def keeping_metadata(preprocess: Callable[..., bool]) -> Callable[..., bool]:
    """The function called without the model's metadata, which is added again to the model that it writes."""

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
