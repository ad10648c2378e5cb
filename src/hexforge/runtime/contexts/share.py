# SPDX-License-Identifier: Apache-2.0
"""Share: contexts that several sessions of a process have in common, while being made and while being used.

Made: sessions with ep.share_ep_contexts=1 add their graphs to one context, in which equal weights are stored once; the
session with ep.stop_share_ep_contexts=1 is the last and writes it, under the name of the first.
Used: sessions with ep.share_ep_contexts=1 whose context is the same have one copy of it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hexforge.backend import Backend, ContextBackend
from hexforge.chips.graph_config import VTCM
from hexforge.errors import CallError, ExistingFileError, UnsupportedError
from hexforge.formats.container import HEADER
from hexforge.formats.context import MOST_GRAPHS
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph


@dataclass(slots=True)
class Sharing:
    """A context that sessions are making together."""

    path: Path
    """Where the last of them writes it."""
    backend: Backend
    graphs: list[PreparedGraph] = field(default_factory=list)

    def builder(self) -> ContextBuilder:
        """The context of all graphs so far."""
        return ContextBuilder.of(self.backend, self.graphs, weight_sharing=True)


LOCK = threading.RLock()
"""Held while a session joins, writes or leaves."""
_making: Sharing | None = None
_opened: list[tuple[bytes, Context]] = []


def require_sharing(backend: Backend) -> None:
    """UnsupportedError where a chip's graphs cannot share weights."""
    obstacle = backend.no_weight_sharing() if isinstance(backend, ContextBackend) else None
    if obstacle is not None:
        raise UnsupportedError(
            f"ep.share_ep_contexts=1: {obstacle}; leave the key out, or set soc_model to a newer chip"
        )


def join(path: Path, backend: Backend, replace: bool = False) -> Sharing:
    """The context being made, begun here where none is; CallError where this session's graphs cannot go into it."""
    global _making
    require_sharing(backend)
    with LOCK:
        if _making is None:
            if path.exists() and not replace:
                raise ExistingFileError(
                    f"{path}: is there already; remove it or set ep.context_file_path to another path"
                )
            _making = Sharing(path, backend)
        sharing = _making
    for property_name, theirs, ours in (
        ("backend", sharing.backend.name, backend.name),
        ("chip", _chips(sharing.backend), _chips(backend)),
        ("VTCM", _vtcm(sharing.backend), _vtcm(backend)),
        ("folder", sharing.path.parent.resolve(), path.parent.resolve()),
    ):
        if theirs != ours:
            raise CallError(
                f"ep.share_ep_contexts=1: the {property_name} is {ours}, and {sharing.path.name}, which other sessions "
                f"make, has {theirs}; end that with ep.stop_share_ep_contexts=1 first"
            )
    return sharing


def check_names(sharing: Sharing, names: Sequence[str]) -> None:
    """CallError for graphs that the context has already, or too many."""
    if twice := sorted({g.name for g in sharing.graphs} & set(names)):
        raise CallError(
            f"{sharing.path.name}: another session has added a graph {twice[0]!r} already; "
            "set ep.context_node_name_prefix to tell them apart"
        )
    if len(sharing.graphs) + len(names) > MOST_GRAPHS:
        raise CallError(
            f"{sharing.path.name}: would have {len(sharing.graphs) + len(names)} graphs; a context holds {MOST_GRAPHS}"
        )


def end() -> None:
    """The context is written, or given up."""
    global _making
    with LOCK:
        _making = None


def shared_context(source: str | os.PathLike[str] | memoryview, where: str) -> Context:
    """The context that sessions share, opened by the first; CallError where another has a graph of that name."""
    identity = _identity(source)
    with LOCK:
        for known, context in _opened:
            if known == identity:
                return context
        newly_opened = Context(source, where)
        for _, other in _opened:
            names = {g.name for g in other.graphs}
            if twice := [g.name for g in newly_opened.graphs if g.name in names]:
                raise CallError(
                    f"{where}: a graph {twice[0]!r} is shared already, that of {other.where}; compile with "
                    "ep.context_node_name_prefix to tell them apart, or do not share"
                )
        _opened.append((identity, newly_opened))
        return newly_opened


def close() -> None:
    """Share no longer what is open; sessions keep what they have."""
    with LOCK:
        _opened.clear()


def _identity(source: str | os.PathLike[str] | memoryview) -> bytes:
    """The header of a context, which differs between contexts: it has a checksum over all checksums."""
    if isinstance(source, memoryview):
        return bytes(source[: HEADER.size])
    with Path(source).open("rb") as file:
        return file.read(HEADER.size)


def _vtcm(backend: Backend) -> str:
    """How much VTCM a backend's graphs have, which share weights only where it is the same."""
    return f"{backend.graph_settings().get(VTCM, 0) or 'all'} MB" if isinstance(backend, ContextBackend) else ""


def _chips(backend: Backend) -> str:
    targets = backend.targets if isinstance(backend, ContextBackend) else ()
    return ", ".join(t.name or t.label for t in targets) or "none"
