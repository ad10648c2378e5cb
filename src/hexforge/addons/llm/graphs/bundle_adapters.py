# SPDX-License-Identifier: Apache-2.0
"""Adapters of a bundle's contexts: opened once each, then exchanged in a moment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from hexforge.addons.llm.bundle import Bundle

if TYPE_CHECKING:
    from hexforge.formats.adapter import Adapter
    from hexforge.runtime.contexts.context import Context


class BundleAdapters:
    """Puts a bundle's adapters on its contexts, all parts together or none."""

    def __init__(self, bundle: Bundle, contexts: Sequence[Context]) -> None:
        self._bundle, self._contexts = bundle, contexts
        self._opened = cache(self._open)

    def apply(self, name: str) -> None:
        """Exchange what is applied for an adapter, or ("") for the base, whose bits come back."""
        from hexforge.runtime.contexts.context import exchange_adapters

        opened = self._opened(name) if name else [None] * len(self._contexts)
        exchange_adapters(
            {
                context: dict.fromkeys(
                    context.adapters if adapter is None else (g.name for g in adapter.graphs), adapter
                )
                for context, adapter in zip(self._contexts, opened, strict=True)
            }
        )

    def _open(self, name: str) -> list[Adapter | None]:
        from hexforge.formats.adapter import Adapter

        files = [part.adapters[name] for part in self._bundle.parts]
        return [Adapter(self._bundle.folder / file) if file else None for file in files]
