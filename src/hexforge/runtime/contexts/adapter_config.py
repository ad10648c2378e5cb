# SPDX-License-Identifier: Apache-2.0
"""Adapter config: the files by which a run names the adapters of its graphs (qnn.lora_config), and applying them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hexforge.errors import CallError, FormatError
from hexforge.formats.adapter import Adapter
from hexforge.runtime.contexts.context import Context, exchange_adapters

MOST_CONFIG_BYTES = 1 << 20
_MOST_OPEN_FILES = 8


def read_config(path: str | os.PathLike[str]) -> list[tuple[str, Path]]:
    """A LoRA config file, lines of `<graph>;<adapter file>`: graphs and files.

    A file lies where its path leads from the current folder, as in the EP, or else from the config's.
    """
    at = Path(path)
    try:
        if at.stat().st_size > MOST_CONFIG_BYTES:
            raise FormatError(f"{at}: is no LoRA config: it has more than {MOST_CONFIG_BYTES} bytes")
        text = at.read_bytes().decode()
    except FileNotFoundError:
        raise CallError(f"qnn.lora_config: {at}: no such file; check the path") from None
    except UnicodeDecodeError as error:
        raise FormatError(f"{at}: is no LoRA config: it is not a text", error.start) from None
    except (OSError, ValueError) as error:
        raise CallError(f"qnn.lora_config: {at}: cannot be read: {error}") from None
    files: dict[str, Path] = {}
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if not line.strip():
            continue
        graph, separator, file = (part.strip() for part in line.partition(";"))
        if not graph or not separator or not file or "\0" in file:
            raise FormatError(f"{at}: line {number} is not `<graph>;<adapter file>`")
        if graph in files:
            raise FormatError(f"{at}: line {number} names graph {graph!r} again")
        here = os.path.exists(file)  # noqa: PTH110 - a Path raises where the name is too long
        files[graph] = Path(file) if here or Path(file).is_absolute() else at.parent / file
    if not files:
        raise FormatError(f"{at}: names no graph; a line is `<graph>;<adapter file>`")
    return list(files.items())


def apply_config(contexts: Sequence[Context], path: str | os.PathLike[str]) -> None:
    """Apply what a LoRA config says, each line to the first context that has the graph; all lines, or none."""
    changes: dict[Context, dict[str, Adapter | None]] = {}
    for graph, file in read_config(path):
        context = next((c for c in contexts if any(g.name == graph for g in c.graphs)), None)
        if context is None:
            names = ", ".join(g.name for c in contexts for g in c.graphs)
            raise CallError(f"{path}: names graph {graph!r}; the context model has {names}")
        changes.setdefault(context, {})[graph] = open_adapter(context, file)
    exchange_adapters(changes)


def open_adapter(context: Context, path: Path) -> Adapter:
    """An adapter's file, opened and verified; the last ones of a context stay open, so that going back is quick."""
    try:
        status = path.stat()
    except OSError as error:
        raise CallError(f"{path}: the adapter cannot be read: {error.strerror or error}") from None
    key = (str(path.absolute()), status.st_ino, status.st_size, status.st_mtime_ns)
    with context.switching:
        open_files = context.adapter_files
        adapter = open_files.pop(key, None) or Adapter(path, verify=not context.skip_validation_on_binary_section)
        open_files[key] = adapter
        while len(open_files) > _MOST_OPEN_FILES:
            open_files.pop(next(iter(open_files)))
        return adapter
