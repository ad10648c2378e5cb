# SPDX-License-Identifier: Apache-2.0
"""The contract: what every backend has, what only some are, and that power belongs to a timing, not to a backend."""

from __future__ import annotations

import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.backend import Backend, Program, ProgramFacts
from hexforge.chips.deployment import Deployment
from hexforge.chips.power import Power
from hexforge.errors import UnsupportedError
from hexforge.ir import Array, DType, Graph, Role, TensorType
from hexforge.runtime import registry


def relu() -> Graph:
    graph = Graph("net")
    type = TensorType(DType.FLOAT32, (1, 64, 64, 32))
    graph.node("Relu", [graph.value("x", type, Role.APP_WRITE)], [graph.value("y", type, Role.APP_READ)], name="relu")
    return graph


@pytest.mark.parametrize("name", [name for name in registry.backends() if name != "gpu"])
def test_every_backend_has_the_defaults(name: str) -> None:
    backend = registry.backend(name)
    assert isinstance(backend, Backend)
    assert isinstance(backend.config, backend.Config)
    graph = relu()
    assert [backend.unsupported(node) for node in graph] == [None]
    assert [backend.float16_hazard(node) for node in graph] == [None]
    assert isinstance(backend.ep_limited, bool)


def test_what_a_program_does_not_say_is_nothing() -> None:
    class Silent(Program):
        def run(self, feeds: object) -> dict[str, Array]:
            return {}

    program = Silent(relu())
    assert program.facts == ProgramFacts((), "", 0)
    assert program.run_into({}, {}) == {}
    assert program.save(lambda data: (0, 0)).keys() == {"graph"}


def test_a_program_that_does_not_run_is_not_saved() -> None:
    with pytest.raises(UnsupportedError, match="programs of the ir backend cannot be saved"):
        registry.backend("ir").compile(relu()).save(lambda data: (0, 0))


def test_power_is_an_argument_of_timing() -> None:
    backend = registry.timed_backend(Deployment("SM8650", power=Power("power_saver")))
    graph = backend.prepared(relu())
    fast, slow = backend.timing(graph), backend.timing(graph, power=Power("power_saver"))
    ratio = slow.timeline.accelerator_us / fast.timeline.accelerator_us
    assert 2 < ratio <= 1 / 0.42, "the clock of power_saver, which not every microsecond depends on"
    assert backend.timing(graph).timeline == fast.timeline
    assert not hasattr(backend, "power")
