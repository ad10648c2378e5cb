# SPDX-License-Identifier: Apache-2.0
"""ModelCompiler: onnxruntime's, which for QNNExecutionProvider makes the context model here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime

from hexforge.errors import CallError
from hexforge.ort.errors import raises_onnxruntime_errors
from hexforge.ort.options.context_callbacks import sender
from hexforge.ort.options.parsing import parse_options
from hexforge.ort.options.providers import uses_qnn
from hexforge.ort.options.session_options import SessionOptions, requested_providers
from hexforge.ort.session_plan import default_context_path, prepare
from hexforge.runtime.contexts.context_model import Output, Report
from hexforge.runtime.cpu_part import QNN

_Flags = onnxruntime.OrtCompileApiFlags


class ModelCompiler(onnxruntime.ModelCompiler):  # type: ignore[misc]
    """Compiles a model into one with EPContext nodes; the providers are those added to the session options."""

    @raises_onnxruntime_errors
    def __init__(
        self,
        sess_options: Any,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = _Flags.NONE,
        graph_optimization_level: Any = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Callable[..., Any] | None = None,
    ) -> None:
        asked = dict(requested_providers(sess_options))
        self._ours = uses_qnn(asked)
        self.report: Report | None = None
        """What was compiled last: graphs and sizes."""
        if not self._ours:
            if isinstance(sess_options, SessionOptions):
                sess_options.hand_over()
            super().__init__(
                sess_options,
                input_model_path_or_bytes,
                embed_compiled_data_into_model,
                external_initializers_file_path,
                external_initializers_size_threshold,
                flags,
                graph_optimization_level,
                get_initializer_location_func,
            )
            return
        if not isinstance(input_model_path_or_bytes, (str, os.PathLike, bytes)):
            raise CallError(f"a model is given by path or as bytes, not as {type(input_model_path_or_bytes).__name__}")
        if not input_model_path_or_bytes:
            raise CallError("the model is empty; give a path or the bytes of a model")
        if external_initializers_file_path and get_initializer_location_func is not None:
            raise CallError("give external_initializers_file_path or get_initializer_location_func, not both")
        self._sess_options, self._source = sess_options, input_model_path_or_bytes
        parsed = parse_options(sess_options, {QNN: asked[QNN]})
        self._entries, self._options = parsed.entries, parsed.options
        self._embed = embed_compiled_data_into_model
        self._initializers = os.fspath(external_initializers_file_path or "")
        self._over_bytes = external_initializers_size_threshold
        self._flags = int(flags)
        self._choose = get_initializer_location_func
        self._send: Callable[[str, bytes], None] | None = None

    @raises_onnxruntime_errors
    def compile_to_file(self, output_model_path: str | os.PathLike[str] | None = None) -> None:
        """Compile to a file, `<model>_ctx.onnx` unless one is given; what is not embedded goes beside it."""
        if not self._ours:
            super().compile_to_file(output_model_path)
            return
        if output_model_path:
            path = Path(output_model_path)
        elif self._entries.config.context_file_path:
            path = Path(self._entries.config.context_file_path)
        elif isinstance(self._source, bytes):
            raise CallError("compile_to_file: the model was given as bytes; give the path to write")
        else:
            path = default_context_path(Path(self._source))
        self._compile(path)

    @raises_onnxruntime_errors
    def compile_to_bytes(self) -> bytes:
        """Compile to the bytes of the context model."""
        if not self._ours:
            return super().compile_to_bytes()  # type: ignore[no-any-return]
        made = self._compile(None).model
        assert made is not None
        return made

    @raises_onnxruntime_errors
    def compile_to_stream(self, write_function: Callable[[bytes], None]) -> None:
        """Compile, and have the bytes of the context model written by a function."""
        if not self._ours:
            super().compile_to_stream(write_function)
            return
        write_function(self.compile_to_bytes())

    def set_ep_context_data_write_func(self, write_func: Callable[[str, Any], None]) -> None:
        """Have a function take the context, by its name in the model, instead of a file."""
        if not self._ours:
            super().set_ep_context_data_write_func(write_func)
            return
        self._send = sender(write_func)

    def clear_ep_context_data_write_func(self) -> None:
        """Write the context to a file."""
        if not self._ours:
            super().clear_ep_context_data_write_func()
            return
        self._send = None

    def _compile(self, path: Path | None) -> Report:
        if path is not None and not isinstance(self._source, bytes) and path.resolve() == Path(self._source).resolve():
            raise CallError(f"{path}: is the model that is to be compiled; give another path to write")
        config = self._entries.config
        stop = config.stop_share_ep_contexts
        output = Output(
            path,
            embed=self._embed,
            prefix=config.context_node_name_prefix,
            initializers=self._beside(path),
            initializers_over_bytes=self._over_bytes if self._initializers else 0,
            replace=not self._flags & int(_Flags.ERROR_IF_OUTPUT_FILE_EXISTS),
            without_graphs=not self._flags & int(_Flags.ERROR_IF_NO_NODES_COMPILED),
            share=config.share_ep_contexts or stop,
            stop=stop,
            place=None if self._choose is None else self._place,
            send=self._send,
        )
        report = prepare(self._source, self._sess_options, config, self._options, output).report
        if report is None:
            raise CallError(
                f"no node of the model was compiled for {QNN}, and flags has ERROR_IF_NO_NODES_COMPILED; "
                "`hexforge check` says why each node is refused"
            )
        self.report = report
        return report

    def _beside(self, path: Path | None) -> str:
        """The file for constants, which lies beside the model."""
        if not self._initializers:
            return self._entries.config.context_model_external_initializers_file_name
        given = Path(self._initializers)
        if path is not None and given.parent != Path() and given.parent.resolve() != path.parent.resolve():
            raise CallError(
                f"external_initializers_file_path: {given} is not in the model's folder, {path.parent}; "
                "constants lie beside the model"
            )
        return given.name

    def _place(self, tensor: Any) -> tuple[str, int, int] | None:
        """Where the caller's function puts an initializer."""
        from onnx import numpy_helper

        assert self._choose is not None
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind not in "biuf":
            return None
        place = self._choose(tensor.name, onnxruntime.OrtValue.ortvalue_from_numpy(array), None)
        return None if place is None else (os.fspath(place.filepath), int(place.file_offset), int(place.byte_size))
