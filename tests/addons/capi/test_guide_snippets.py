# SPDX-License-Identifier: Apache-2.0
"""What Qualcomm's guide of the HTP shows in C compiles against our headers, as C and as C++, without a warning."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from docs.generated_sections import SNIPPETS, snippets
from hexforge.addons.capi.library import include_path

LANGUAGES = {
    "gcc, C": ("gcc", "-xc", "-std=c11"),
    "gcc, C++": ("g++", "-xc++", "-std=c++17"),
    "clang, C": ("clang", "-xc", "-std=c11"),
    "clang, C++": ("clang++", "-xc++", "-std=c++17"),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_snippet_compiles_without_a_warning(language: str) -> None:
    compiler, *options = LANGUAGES[language]
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} (Debian: {'g++' if compiler == 'g++' else compiler.rstrip('+')})")
    command = [compiler, *options, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{include_path()}", str(SNIPPETS)]
    compiled = subprocess.run(command, capture_output=True, text=True, check=False)
    assert compiled.returncode == 0, compiled.stderr


def test_the_snippets_are_those_of_the_guide() -> None:
    assert len(snippets()) >= 53
    assert len({name for _, name in snippets()}) == len(snippets())


@pytest.mark.parametrize("header", sorted(include_path().rglob("*.h")), ids=lambda path: path.name)
def test_every_header_stands_alone(header: Path) -> None:
    source = f'#include "{header.relative_to(include_path()).as_posix()}"\nint nothing;\n'
    for compiler, *options in (LANGUAGES["gcc, C"], LANGUAGES["gcc, C++"]):
        command = [compiler, *options, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", f"-I{include_path()}", "-"]
        compiled = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
        assert compiled.returncode == 0, compiled.stderr
