# SPDX-License-Identifier: Apache-2.0
"""`python -m tools.compile_callers PROJECT CHECKOUT` compiles the files of an open program that calls QNN against our
headers, and prints which do and what stops the others.

The checkout is yours: nothing is fetched, and nothing of it is kept. What a project needs beside QNN is looked for in
the system (Debian: libflatbuffers-dev, flatbuffers-compiler, nlohmann-json3-dev, libmsgsl-dev, libabsl-dev) and in the
folders of --include.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from hexforge.addons.capi.library import include_path

_LEFT_OUT = re.compile("hexagon|SVC|direct_mode|usr_drv|telemetry|_test|windows|custom-op-package", re.I)
"""Files that are for the DSP or another system."""


@dataclass(frozen=True, slots=True)
class Project:
    """An open program: its files that call QNN, and how they are compiled."""

    files: tuple[str, ...]
    includes: tuple[str, ...] = (".",)
    options: tuple[str, ...] = ()
    parent: str = ""
    """What the folder of the checkout is called in the project's own includes; empty where they do not name it."""
    schemas: tuple[tuple[str, str], ...] = ()
    """Schemas of flatbuffers, and the folders that the files include their headers from."""


PROJECTS = {
    "ggml": Project(
        ("ggml/src/ggml-qnn/qnn/*.cpp", "ggml/src/ggml-qnn/shared/*.cpp"),
        ("ggml/include", "ggml/src", "ggml/src/ggml-qnn", "ggml/src/ggml-qnn/qnn", "ggml/src/ggml-qnn/shared"),
    ),
    "executorch": Project(
        ("backends/qualcomm/runtime/**/*.cpp", "backends/qualcomm/aot/wrappers/*.cpp"),
        ("runtime/core/portable_type/c10", "backends/qualcomm/runtime/backends",
         "backends/qualcomm/runtime/backends/htp", "backends/qualcomm/runtime/pal/include"),
        ("-DC10_USING_CUSTOM_GENERATED_MACROS",),
        "executorch",
        (("backends/qualcomm/serialization/qc_compiler_spec.fbs", "backends/qualcomm"),),
    ),
    "onnxruntime": Project(
        ("onnxruntime/core/providers/qnn/**/*.cc",),
        ("onnxruntime", "include", "include/onnxruntime", "include/onnxruntime/core/session"),
        ("-DORT_API_MANUAL_INIT", "-DQNN_SYSTEM_PROFILE_API_ENABLED", '-DORT_VERSION="1"', "-include", "optional",
         "-include", "filesystem", "-include", "cassert", "-include", "set", "-include", "fstream"),
    ),
    "mllm": Project(("mllm/backends/qnn/*.cpp",), options=("-include", "cstring")),
    "ai-engine-direct-helper": Project(
        ("src/*.cpp", "src/**/*.cpp"),
        ("src", "src/Utils", "src/Log", "src/PAL/include", "src/WrapperUtils", "src/CachingUtil"),
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compiled:
    """A file, and what stopped it; empty where it compiles."""

    file: str
    stopped_by: str


def compile_project(name: str, checkout: Path, include: Sequence[Path], compiler: str, jobs: int) -> Iterator[Compiled]:
    """Compile every file of a project, for its errors alone; each as it is done, in order."""
    project = PROJECTS[name]
    files = sorted({file for pattern in project.files for file in checkout.glob(pattern)})
    files = [file for file in files if not _LEFT_OUT.search(file.relative_to(checkout).as_posix())]
    with tempfile.TemporaryDirectory() as scratch:
        made = _scratch_includes(project, checkout.resolve(), Path(scratch))
        folders = [include_path(), *made, *(checkout / each for each in project.includes), *include]
        command = [compiler, "-std=c++20", "-fsyntax-only", "-w", *project.options, *(f"-I{each}" for each in folders)]

        def one(file: Path) -> Compiled:
            ran = subprocess.run([*command, str(file)], capture_output=True, text=True, check=False)
            errors = re.findall(r"(?:error|fatal error): (.*)", ran.stderr)
            return Compiled(file.relative_to(checkout).as_posix(), errors[0] if ran.returncode and errors else "")

        with ThreadPoolExecutor(jobs) as pool:
            yield from pool.map(one, files)


def _scratch_includes(project: Project, checkout: Path, scratch: Path) -> list[Path]:
    """Folders of headers that the project's own build would make."""
    folders = [scratch]
    if project.parent:
        (scratch / project.parent).mkdir()
        for each in checkout.iterdir():
            (scratch / project.parent / each.name).symlink_to(each)
    for schema, folder in project.schemas:
        flatc = shutil.which("flatc")
        if flatc is None:
            raise SystemExit("there is no flatc (Debian: flatbuffers-compiler)")
        target = scratch / "generated" / project.parent / folder
        target.mkdir(parents=True, exist_ok=True)
        options = ["--cpp", "--cpp-std", "c++11", "--gen-mutable", "--scoped-enums", "-o", str(target)]
        subprocess.run([flatc, *options, str(checkout / schema)], check=True)
        folders += [scratch / "generated", target]
    return folders


def main() -> None:
    """Compile a project and print a line for each file that does not."""
    parser = argparse.ArgumentParser(prog="compile_callers", description=(__doc__ or "").strip())
    parser.add_argument("project", choices=PROJECTS)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--include", type=Path, action="append", default=[], help="a folder of third-party headers")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    rows = []
    for row in compile_project(given.project, given.checkout, given.include, given.compiler, given.jobs):
        rows.append(row)
        print(f"{row.file}: {row.stopped_by or 'compiles'}", flush=True)
    if not rows:
        raise SystemExit(f"{given.checkout}: has no files of {given.project}")
    print(f"{given.project}: {sum(not row.stopped_by for row in rows)} of {len(rows)} files compile")
    sys.exit(any(row.stopped_by for row in rows))


if __name__ == "__main__":
    main()
