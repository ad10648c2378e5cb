# SPDX-License-Identifier: Apache-2.0
"""Text that ships with Python: its language reference and the docstrings of its library, most for training."""

from __future__ import annotations

import ast
import pydoc_data.topics
import sysconfig
import warnings
import zlib
from pathlib import Path

END = "<|end|>"
"""Written after every document."""
SHORTEST = 80
HELD_OUT = 20
"""Of so many documents one is held out."""
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip", "turtledemo"}


def _docstrings(path: Path) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            return []
    described = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [text for node in ast.walk(tree) if isinstance(node, described) and (text := ast.get_docstring(node))]


def documents() -> list[str]:
    """Every document once, in the order of their files."""
    library = Path(sysconfig.get_paths()["stdlib"])
    texts = [text.strip() for _, text in sorted(pydoc_data.topics.topics.items())]
    for path in sorted(library.rglob("*.py")):
        if not _LEFT_OUT & set(path.relative_to(library).parts):
            texts += _docstrings(path)
    return [text for text in dict.fromkeys(texts) if len(text) >= SHORTEST and text.isascii()]


def split_documents() -> tuple[list[str], list[str]]:
    """What is trained on, and what is held out; a document is in the same part whatever else there is."""
    parts: tuple[list[str], list[str]] = ([], [])
    for text in documents():
        parts[zlib.crc32(text.encode()) % HELD_OUT == 0].append(text)
    return parts
