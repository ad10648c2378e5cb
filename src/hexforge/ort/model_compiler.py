"""ModelCompiler: onnxruntime's, which for QNNExecutionProvider says that context models are not built yet."""

from __future__ import annotations

from typing import Any

import onnxruntime

from hexforge.errors import UnsupportedError
from hexforge.runtime.fallback import QNN, requested_providers


class ModelCompiler(onnxruntime.ModelCompiler):  # type: ignore[misc]
    """Compiles a model into one with EPContext nodes."""

    def __init__(self, sess_options: Any, input_model_path_or_bytes: Any, *args: Any, **kwargs: Any) -> None:
        if QNN in dict(requested_providers(sess_options)):
            raise UnsupportedError(f"ModelCompiler: context models of {QNN} are not built yet; run the model itself")
        super().__init__(sess_options, input_model_path_or_bytes, *args, **kwargs)
