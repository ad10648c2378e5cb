# SPDX-License-Identifier: Apache-2.0
"""Where the libraries and headers of QNN's C API lie in this installation, which `hexforge lib-path` prints."""

from __future__ import annotations

import sys
from pathlib import Path

from hexforge import _native
from hexforge.errors import CallError
from hexforge.request_fields import option

LIBRARIES = ("Htp", "Cpu", "Gpu", "Saver", "System")
"""The libraries by what their names end with: libQnnHtp.so and so on."""


def file_name(name: str) -> str:
    """What the library of a backend is called on this system: libQnnHtp.so, libQnnHtp.dylib or QnnHtp.dll."""
    if sys.platform == "win32":
        return f"Qnn{name}.dll"
    return f"libQnn{name}.{'dylib' if sys.platform == 'darwin' else 'so'}"


def lib_path() -> Path:
    """The folder of libQnnHtp.so and its siblings; CallError where they were not built."""
    folder = Path(_native.__file__).parent / "lib"
    missing = [file for file in map(file_name, LIBRARIES) if not (folder / file).is_file()]
    if missing:
        raise CallError(f"{folder}: has no {', '.join(missing)}; install hexforge again, with a C++ compiler")
    return folder


def include_path() -> Path:
    """The folder of QNN's headers: `#include "QnnInterface.h"` is found there."""
    return Path(__file__).parents[2] / "include" / "QNN"


def print_lib_path(include: bool = option(False, "The folder of the headers instead.")) -> None:
    """Print the folder of libQnnHtp.so and its siblings: QNN's C API, for programs that load it."""
    from hexforge.cli.say import say

    say(str(include_path() if include else lib_path()))
