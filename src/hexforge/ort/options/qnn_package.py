# SPDX-License-Identifier: Apache-2.0
"""What the package of the QNN EP tells a script: its name and where its libraries would lie.

`python -m hexforge.ort` lets a script import it by the package's own name where that is not installed. The paths are
those of no files: hexforge takes libraries by their names and loads none.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

from hexforge.runtime.cpu_part import QNN

EP_NAME = QNN
LIB_DIR_FULL_PATH = str(Path(__file__).resolve().parent)
"""The folder that its paths name."""
__version__ = version("hexforge")


def get_ep_names() -> list[str]:
    """The execution providers of the package."""
    return [EP_NAME]


def get_ep_name() -> str:
    """The execution provider of the package."""
    return EP_NAME


def get_library_path() -> str:
    """The provider's library, for register_execution_provider_library."""
    return _library("onnxruntime_providers_qnn")


def get_qnn_cpu_path() -> str:
    """The library of the cpu backend, for the provider option backend_path."""
    return _library("QnnCpu")


def get_qnn_gpu_path() -> str:
    """The library of the gpu backend."""
    return _library("QnnGpu")


def get_qnn_htp_path() -> str:
    """The library of the htp backend."""
    return _library("QnnHtp")


def _library(name: str) -> str:
    return str(Path(LIB_DIR_FULL_PATH) / (f"{name}.dll" if sys.platform == "win32" else f"lib{name}.so"))
