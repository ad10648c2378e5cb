# SPDX-License-Identifier: Apache-2.0
"""Build what runs contexts for 64-bit Windows, and run it under Wine: `python -m tools.windows`.

Debian's mingw-w64 makes kernels, steps, the reader of contexts and the libraries of QNN's C API. A program over the
first three (tests/native/run_context.cpp) runs the demo model's contexts at every instruction set; programs over the C
API (examples/capi) load contexts by `QnnHtp.dll`. All must give the bytes that this computer gives. Threads that share
loops must not miss each other's calls, however slow they are (tests/native/many_loops.cpp). Python's module is not made
here; docs/computers.md says how it was tried.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hexforge
from hexforge import _native, demo
from hexforge.addons.capi.library import include_path, lib_path

ROOT = Path(__file__).parents[1]
WORK = ROOT / "build" / "windows"
CXX, CC = "x86_64-w64-mingw32-g++-posix", "x86_64-w64-mingw32-gcc-posix"
NEEDED = {CXX: "g++-mingw-w64-x86-64-posix", CC: "gcc-mingw-w64-x86-64-posix", "cc": "gcc", "cmake": "cmake"}
WINE = Path("/usr/lib/wine/wine64")
TYPES = {name: np.dtype(name) for name in ("uint8", "uint16", "float16", "float32")}
RECIPES = ("float", "w8a8_channel", "w8a16")
MANY_LOOPS = "many_loops.exe"
EXAMPLES = ("run_context", "two_nodes")
LIBRARIES = WORK / "lib"
REFUSED = "graphs are not built on Windows yet"
LOOPS = 50_000

LONGEST_S = 1200
"""No command of these takes as long, the whole build included: one that does hangs."""


def _run(command: Sequence[str | Path], refused: str = "") -> str:
    """What a command prints; where it is to be refused, it must fail and say that."""
    environment = {**os.environ, "HEXFORGE_PYTHON": sys.executable, "WINEPREFIX": str(WORK / "wine")}
    words = [str(part) for part in command]
    try:
        done = subprocess.run(
            words, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise SystemExit(f"{' '.join(words)} did not end within {LONGEST_S} s") from None
    if (done.returncode != 0) != bool(refused) or refused not in done.stderr:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


def build() -> Path:
    """The program over the core, made by the cross compiler; the libraries and programs of the C API beside it."""
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    options = [f"-DCMAKE_TOOLCHAIN_FILE={ROOT / 'tools/windows.cmake'}", "-DHEXFORGE_PYTHON_MODULE=OFF"]
    options += [f"-DSKBUILD_PROJECT_VERSION={hexforge.__version__}", f"-DPython_EXECUTABLE={sys.executable}"]
    _run(["cmake", "-G", "Ninja", "-S", ".", "-B", WORK, "-DHEXFORGE_WERROR=ON", *options, *launcher])
    _run(["cmake", "--build", WORK, "-j", str(os.cpu_count() or 1)])
    program = WORK / "run_context.exe"
    flags = ["-std=gnu++20", "-O2", "-Wall", "-Wextra", "-Werror", "-static", "-Inative"]
    _run([CXX, *flags, "tests/native/run_context.cpp", WORK / "libhexforge_core.a", "-o", program])
    held_up = "-Wl,--wrap=pthread_mutex_lock"
    _run([CXX, *flags, held_up, "tests/native/many_loops.cpp", WORK / "libhexforge_core.a", "-o", WORK / MANY_LOOPS])
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{include_path()}"]
    for name in EXAMPLES:
        source = f"examples/capi/{name}.c"
        _run([CC, *flags, "-static", source, "-o", WORK / f"capi_{name}.exe", "-lpthread"])
        _run(["cc", *flags, source, "-o", WORK / f"capi_{name}", "-ldl", "-lpthread"])
    return program


def _drawn(dtype: str, shape: Sequence[int]) -> NDArray[Any]:
    """Numbers of a picture, or of its codes."""
    uniform = np.random.default_rng(3).random(shape)
    return (uniform if TYPES[dtype].kind == "f" else uniform * np.iinfo(TYPES[dtype]).max).astype(TYPES[dtype])


def contexts() -> dict[str, tuple[Path, Path, bytes]]:
    """By recipe: the demo model's context, a file with its input, and the bytes of what it computes here."""
    made: dict[str, tuple[Path, Path, bytes]] = {}
    shots = demo.calibration()
    for recipe in RECIPES:
        model = WORK / f"{recipe}.onnx"
        if recipe == "float":
            shutil.copy(demo.MODEL, model)
        else:
            hexforge.quantize(demo.MODEL, [{demo.INPUT: shot} for shot in shots[:4]], recipe, model)
        context, inputs = WORK / f"{recipe}.bin", WORK / f"{recipe}.raw"
        _run([sys.executable, "-m", "hexforge", "compile", model, "-o", context, "--soc", "SM8650"])
        opened = _native.CompiledContext.open_file(str(context))
        graph = opened.graph(opened.graphs[0])
        (tensor,) = graph.inputs
        given = _drawn(tensor[2], tensor[3])
        inputs.write_bytes(given.tobytes())
        outputs = [np.empty(result[3], TYPES[result[2]]) for result in graph.outputs]
        graph.run([given], outputs)
        made[recipe] = context, inputs, b"".join(output.tobytes() for output in outputs)
    return made


def run_by_api(recipe: str, context: Path, inputs: Path, expected: bytes) -> None:
    """A context by QNN's C API on two threads, here and under Windows; one changed bit must be noticed."""
    (graph,) = _native.CompiledContext.open_file(str(context)).graphs
    results, changed = WORK / f"{recipe}.results", WORK / f"{recipe}.changed"
    results.write_bytes(expected)
    changed.write_bytes(expected[:-1] + bytes([expected[-1] ^ 1]))
    given: list[str | Path] = [context, graph, "2", "20", inputs]
    _run([WORK / "capi_run_context", lib_path(), *given, results])
    there: list[str | Path] = [WINE, WORK / "capi_run_context.exe", LIBRARIES, *given]
    _run([*there, results])
    _run([*there, changed], refused="memcmp")
    print(f"{recipe}: the same bytes by QnnHtp.dll, on two threads, 20 times each")


def two_nodes() -> None:
    """A graph that is built and saved here is loaded under Windows, where building one is refused with a sentence."""
    context = WORK / "two_nodes.bin"
    there: list[str | Path] = [WINE, WORK / "capi_two_nodes.exe", LIBRARIES]
    _run([WORK / "capi_two_nodes", lib_path(), context])
    here = _run([WORK / "capi_two_nodes", lib_path(), context, "load"])
    if _run([*there, context, "load"]) != here:
        raise SystemExit("two_nodes: other numbers under Windows")
    _run([*there, WORK / "not_written.bin"], refused=REFUSED)
    print("two_nodes: the same numbers by QnnHtp.dll; building the graph there is refused")


def main() -> None:
    """Build, run, compare."""
    missing = [package for command, package in NEEDED.items() if shutil.which(command) is None]
    if not WINE.exists():
        missing.append("wine64")
    if missing:
        raise SystemExit(f"windows: not installed here: {', '.join(missing)}; try: apt-get install {' '.join(missing)}")
    WORK.mkdir(parents=True, exist_ok=True)
    program = build()
    result = WORK / "result.raw"
    print(f"threads that are held up: {_run([WINE, WORK / MANY_LOOPS, str(LOOPS)]).strip()}")
    two_nodes()
    for recipe, (context, inputs, expected) in contexts().items():
        ran = []
        for level in _native.levels():
            result.unlink(missing_ok=True)
            _run([WINE, program, context, inputs, result, level])
            if not result.exists():
                continue  # Wine's processor has fewer instruction sets
            if result.read_bytes() != expected:
                raise SystemExit(f"{recipe} at {level}: other bytes under Windows")
            ran.append(level)
        print(f"{recipe}: the same bytes under Windows at {', '.join(ran)}")
        run_by_api(recipe, context, inputs, expected)


if __name__ == "__main__":
    main()
