"""Runners: a model as a function from inputs to outputs by name, on a backend or in onnxruntime itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hexforge.errors import CallError, HexforgeError, ModelError
from hexforge.ir import Array
from hexforge.options import did_you_mean
from hexforge.ort.options import SessionOptions
from hexforge.ort.session import InferenceSession
from hexforge.runtime.cpu_part import CPU, QNN

BACKENDS = ("htp", "cpu", "ort")
"""ort is onnxruntime's own CPU provider."""
Feeds = Mapping[str, Array]


def runner(
    model: str | Path | bytes, backend: str = "htp", *, soc: str = "", threads: int = 0, name: str = "model"
) -> Callable[[Feeds], dict[str, Array]]:
    """What runs the model; `threads` 0 is as many as there are cores, `name` is for messages about bytes."""
    if backend not in BACKENDS:
        raise CallError(f"backend {backend!r}: there are {', '.join(BACKENDS)}{did_you_mean(backend, BACKENDS)}")
    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    name = name if isinstance(model, bytes) else Path(model).name
    given = {"backend_type": backend, "offload_graph_io_quantization": "0"} | ({"soc_model": soc} if soc else {})
    providers: list[Any] = [CPU] if backend == "ort" else [(QNN, given)]
    source = model if isinstance(model, bytes) else str(model)
    try:
        session = InferenceSession(source, options, providers=providers)
    except (HexforgeError, OSError):
        raise
    except Exception as error:  # onnxruntime has no class of its own that its errors share
        raise ModelError(f"{name}: onnxruntime cannot load it: {error}") from None
    names = [output.name for output in session.get_outputs()]

    def run(feeds: Feeds) -> dict[str, Array]:
        try:
            found = session.run(None, dict(feeds))
        except HexforgeError:
            raise
        except Exception as error:
            raise CallError(f"{name}: onnxruntime cannot run the sample: {error}") from None
        return dict(zip(names, found, strict=True))

    return run
