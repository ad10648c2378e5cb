# SPDX-License-Identifier: Apache-2.0
"""The contract: a saver has what every backend has, and what the backend that it records has."""

from __future__ import annotations

from hexforge.backend import Backend, ContextBackend, TimedBackend
from hexforge.runtime import registry
from tests.test_backend import relu


def test_a_saver_has_the_defaults() -> None:
    saver = registry.backend("saver")
    assert isinstance(saver, Backend)
    assert isinstance(saver.config, type(registry.backend().config))
    graph = relu()
    assert [saver.unsupported(node) for node in graph] == [None]
    assert [saver.float16_hazard(node) for node in graph] == [None]
    assert isinstance(saver.ep_limited, bool)


def test_a_saver_is_what_the_recorded_backend_is() -> None:
    saver, inner = registry.with_recorder(registry.backend("htp", {"soc_model": "SM8650,SM8750"})), registry.backend()
    assert isinstance(saver, ContextBackend)
    assert isinstance(saver, TimedBackend)
    assert [target.name for target in saver.targets] == ["SM8650", "SM8750"]
    one = saver.for_chip(1)
    assert type(one) is type(saver)
    assert (one.chip_name, one.chips) == ("SM8750", inner.chips if isinstance(inner, TimedBackend) else ())
    plain = registry.with_recorder(registry.backend("cpu"))
    assert not isinstance(plain, ContextBackend | TimedBackend)
