# SPDX-License-Identifier: Apache-2.0
"""LoRA weight sharing with contexts that exist: one blob as large as the largest adapter, applied before any run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import hexforge
from hexforge.addons.adapters.making import make_adapter
from hexforge.addons.device import Binary, Device, DeviceError, Qnn
from hexforge.addons.device.contexts.handles import DeviceGraph
from hexforge.addons.device.contexts.tensors import Feed
from hexforge.chips.soc import require_chip
from hexforge.runtime.registry import backend
from tests.addons.device import tiny
from tests.addons.device.test_memory import by_kind

Feeds = Callable[[str], dict[str, Feed]]
WIDTHS = (8, 16)
WEIGHT_BYTES = {"dense": 2, "conv": 1}
"""What one weight takes on the chip: float16, and 8 bits."""


def shared_context(folder: Path, kind: str, *, shared: bool = True) -> tuple[Path, list[int]]:
    """A context with two graphs whose weights adapters may change, and how many these are."""
    dense, conv = [tiny.dense(n, width) for n, width in enumerate(WIDTHS)], [tiny.conv(n) for n in range(2)]
    request = hexforge.ContextRequest(graph_names=("a", "b"), updatable=("w",))
    options = {"soc_model": tiny.SOC, **({"lora_weight_sharing": "1"} if shared else {})}
    path = folder / f"{kind}_{shared}.bin"
    hexforge.compile(dense if kind == "dense" else conv, path, backend("htp", options), request)
    return path, [w * w for w in WIDTHS] if kind == "dense" else [4 * 3 * 3 * 3] * 2


def created(path: Path) -> tuple[Qnn, dict[str, DeviceGraph]]:
    q = Qnn(Device(tiny.SOC).process("app"))
    context = q.QnnContext_createFromBinary(Binary.of(path, require_chip(tiny.SOC)))
    return q, dict(context.graphs)


@pytest.mark.feature("LoRA weight sharing", guide="211-217, 428-444")
@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_a_context_that_exists_has_one_blob_for_the_adapters_of_all_its_graphs(tmp_path: Path, kind: str) -> None:
    path, counts = shared_context(tmp_path, kind)
    binary = Binary.of(path, require_chip(tiny.SOC))
    sizes = [WEIGHT_BYTES[kind] * count for count in counts]
    assert [graph.adapter_bytes for graph in binary.graphs] == sizes
    q, _ = created(path)
    assert by_kind(q)["LoRA weights"] == max(sizes)
    apart, _ = created(shared_context(tmp_path, kind, shared=False)[0])
    assert by_kind(apart)["LoRA weights"] == sum(sizes)


@pytest.mark.feature("LoRA weight sharing", guide="211-217, 428-444")
@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_no_graph_runs_before_an_adapter_is_applied(tmp_path: Path, kind: str, feeds: Feeds) -> None:
    path, _ = shared_context(tmp_path, kind)
    make_adapter(path, output=tmp_path / "base.bin")
    q, graphs = created(path)
    with pytest.raises(DeviceError, match="applyBinarySection comes first") as error:
        q.QnnGraph_execute(graphs["a"], feeds(kind))
    assert error.value.code == 1005
    for name in "ab":
        q.QnnContext_applyBinarySection(graphs[name], str(tmp_path / "base.bin"))
    outputs = [q.QnnGraph_execute(graphs["a"], feeds(kind)).outputs["y"] for _ in range(2)]
    plain, unshared = created(shared_context(tmp_path, kind, shared=False)[0])
    expected = plain.QnnGraph_execute(unshared["a"], feeds(kind)).outputs["y"]
    assert all(np.array_equal(output, expected) for output in outputs)
    assert len(q.client.device.log.of("adapter_again")) == 1  # graph b had the blob last


@pytest.fixture
def feeds() -> Feeds:
    shapes = {"dense": (1, 8), "conv": (1, 3, 8, 8)}
    return lambda kind: {"x": np.linspace(-1, 1, int(np.prod(shapes[kind])), dtype=np.float32).reshape(shapes[kind])}
