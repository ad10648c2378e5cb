# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that records which QNN ops each translator and fusion really writes, and keeps them in a file.

`python -m pytest -p tests.frontends.onnx.emissions --emissions FILE TESTS`
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hexforge.frontends.onnx.translate.builder import Builder, Translator
from hexforge.frontends.onnx.unit import Unit

Emissions = dict[str, set[str]]
"""ONNX op type, or "fusion" and its kind -> names of QNN ops."""


@contextmanager
def recorded() -> Iterator[Emissions]:
    """What is written while this is open. An If is its own nodes, without those of its branches."""
    emissions: Emissions = defaultdict(set)
    inner: list[set[object]] = []
    translate = Builder.translate

    def watched(self: Builder, unit: Unit, translator: Translator) -> None:
        before = set(self.graph.nodes)
        inner.append(set())
        try:
            translate(self, unit, translator)
        finally:
            branches = inner.pop()
            written = [node for node in self.graph.nodes if node not in before]
            name = unit.op if unit.kind in ("node", "qdq") else f"fusion {unit.kind}"
            emissions[name] |= {node.op.name for node in written if node not in branches}
            if inner:
                inner[-1].update(written)

    Builder.translate = watched  # type: ignore[method-assign]
    try:
        yield emissions
    finally:
        Builder.translate = translate  # type: ignore[method-assign]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--emissions", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    watching = recorded()
    emissions = watching.__enter__()

    def keep() -> None:
        watching.__exit__(None, None, None)
        config.getoption("--emissions").write_text(json.dumps({name: sorted(ops) for name, ops in emissions.items()}))

    config.add_cleanup(keep)
