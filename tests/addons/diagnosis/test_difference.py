# SPDX-License-Identifier: Apache-2.0
"""Two contexts, models, profiles or estimates: what changed and why is told; what cannot be compared is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.addons.diagnosis.changes import FactChange, fact_text
from hexforge.addons.diagnosis.difference import Difference, diff
from hexforge.addons.diagnosis.difference_page import difference_page
from hexforge.addons.profiler import log
from hexforge.runtime.contexts.request import ContextRequest
from tests.addons.profiler.test_linting import LINTING_GUIDE
from tests.backends.htp.test_graph_options import quantized_conv, small_weights
from tests.digits import MODEL, held_out

SIZE = 24


def network(path: Path, channels: int = 16, tail: str = "Relu") -> Path:
    """Two convolutions and a last op that a test may choose."""
    random = np.random.default_rng(1)
    nodes, constants, now, width = [], [], "x", 16
    for i in range(2):
        weight = random.standard_normal((channels, width, 3, 3)).astype(np.float32) / 12
        constants.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("Conv", [now, f"w{i}"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1]))
        now, width = f"c{i}", channels
    nodes.append(helper.make_node(tail, [now], ["y"], "last"))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, SIZE, SIZE])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [given], [made], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything that is compared, by name."""
    folder = tmp_path_factory.mktemp("pairs")
    for name, recipe in (("q8", "w8a8"), ("q16", "w8a16")):
        hexforge.quantize(MODEL, held_out()[0][:8], recipe, folder / f"{name}.onnx")
    network(folder / "small.onnx")
    network(folder / "wide.onnx", channels=64)
    network(folder / "det.onnx", tail="Det")
    for name in ("small", "wide", "q8", "q16"):
        hexforge.compile(folder / f"{name}.onnx", folder / f"{name}.bin", "SM8650")
    both = [folder / "small.onnx", folder / "small.onnx"]
    hexforge.compile(
        both, folder / "both.bin", "SM8650", ContextRequest(weight_sharing=True, graph_names=("small", "again"))
    )
    hexforge.compile(folder / "small.onnx", folder / "slots.bin", "SM8650", ContextRequest(updatable=("w*",)))
    packed = quantized_conv(small_weights(), activation=np.uint8)
    for name, option in (("plain", False), ("packed", True)):
        deployment = hexforge.Deployment("SM8650", config=hexforge.GraphConfig(weights_packing=option))
        hexforge.compile(packed, folder / f"{name}.bin", deployment)
    for name, soc in (("wide", "SM8650"), ("wide", "SM8550"), ("small", "SM8650")):
        told = hexforge.estimate(folder / f"{name}.onnx", soc).to_json()
        (folder / f"{name}_{soc}.json").write_text(json.dumps(told))
    for name in ("small", "wide"):
        log.write(folder / f"{name}.log", hexforge.profile(folder / f"{name}.onnx", "SM8650"))
    for number, report in enumerate(LINTING_GUIDE):
        (folder / f"guide{number}.txt").write_text(str(report))
    return folder


PAIRS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "models of another width": ("small.onnx", "wide.onnx", "model", ("longer than small.onnx", "conv1_Conv2d takes")),
    "a model whose last op stays with the CPU": (
        "small.onnx", "det.onnx", "model", ("One node is more on the CPU, such as last (",),
    ),
    "the same model": ("small.onnx", "small.onnx", "model", ("Both are the same", "no figure differs")),
    "quantized models": ("q8.onnx", "q16.onnx", "model", ("longer than q8.onnx", "uint8 became uint16")),
    "contexts": ("small.bin", "wide.bin", "context", ("Stored weights", "The file", "longer than small.bin")),
    "quantized contexts": ("q16.bin", "q8.bin", "context", ("less than q16.bin", "uint16 became uint8")),
    "a graph more": ("small.bin", "both.bin", "context", ("Weights that graphs share: 0 B →", "again: conv0_Conv2d")),
    "adapter slots": ("small.bin", "slots.bin", "context", ("2 adapter slots are new, such as small: w0",)),
    "packed weights": ("plain.bin", "packed.bin", "context", ("option weights_packing none → 1", "Stored weights")),
    "profiles": ("small.log", "wide.log", "profile", ("longer than small.log", "conv1_Conv2d takes")),
    "published reports": ("guide0.txt", "guide1.txt", "profile", ("cycles less: gone",)),
    "estimates of two chips": ("wide_SM8650.json", "wide_SM8550.json", "estimate", ("soc SM8650 → SM8550",)),
    "estimates": ("small_SM8650.json", "wide_SM8650.json", "estimate", ("weights", "longer than small_SM8650.json")),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_a_pair(name: str, files: Path) -> None:
    one, two, kind, told = PAIRS[name]
    found = diff(files / one, files / two)
    assert found.kind == kind
    sentences = " ".join(found.why())
    for part in told:
        assert part in sentences, sentences
    written = json.loads(json.dumps(found.to_json()))
    assert written["same"] == (one == two)
    assert written["unchanged_layers"] + len(written["layers"]) == len(found.layers)
    page = difference_page(found)
    assert found.before.name in page
    assert "<script" in page
    back = diff(files / two, files / one)
    assert sum(layer.us for layer in back.layers) == pytest.approx(-sum(layer.us for layer in found.layers))


def test_bytes_and_times_of_layers_add_up(files: Path) -> None:
    found = diff(files / "small.onnx", files / "wide.onnx")
    before, after = (hexforge.estimate(files / name, "SM8650") for name in ("small.onnx", "wide.onnx"))
    assert sum(layer.us for layer in found.layers) == pytest.approx(
        sum(row.us for row in after.rows) - sum(row.us for row in before.rows), abs=0.01
    )
    assert sum(layer.weight_bytes for layer in found.layers) == sum(r.weight_bytes for r in after.rows) - sum(
        r.weight_bytes for r in before.rows
    )
    weights = {fact.name: fact for fact in found.facts}["constant_bytes"]
    assert (weights.before, weights.after) == (2 * 16 * 16 * 9 * 4, (64 * 16 + 64 * 64) * 9 * 4)


def test_packing_takes_bytes_off_the_file(files: Path) -> None:
    found = diff(files / "plain.bin", files / "packed.bin")
    facts = {fact.name: fact for fact in found.facts}
    stored = facts["stored_weight_bytes"]
    assert isinstance(stored.before, int)
    assert isinstance(stored.after, int)
    assert stored.after < 0.55 * stored.before
    assert facts["constant_bytes"].before == facts["constant_bytes"].after == 128 * 128 * 9
    (layer,) = found.changed_layers  # its weights are fetched sooner
    assert layer.name == "conv_Conv2d"
    assert layer.us < 0


def test_sharing_is_told(files: Path) -> None:
    facts = {fact.name: fact for fact in diff(files / "small.bin", files / "both.bin").facts}
    assert facts["shared_weight_bytes"].before == 0
    shared = facts["shared_weight_bytes"].after
    assert isinstance(shared, int)
    assert shared >= 2 * 16 * 16 * 9 * 2
    assert (facts["graphs"].before, facts["graphs"].after) == (1, 2)


def test_the_bottleneck_of_the_guides_first_model_is_named_first(files: Path) -> None:
    found = diff(files / "guide0.txt", files / "guide1.txt")
    assert found.layers[0].name == "model_sub_sub"
    assert found.layers[0].after is None


def test_sizes_go_to_the_model_that_leaves_them_open(files: Path, tmp_path: Path) -> None:
    model = onnx.load(files / "small.onnx")
    for axis, name in enumerate(("batch", "", "rows", "columns")):
        if name:
            model.graph.input[0].type.tensor_type.shape.dim[axis].dim_param = name
    onnx.save(model, tmp_path / "open.onnx")
    found = diff(tmp_path / "open.onnx", files / "small.onnx", dims={"rows": SIZE, "columns": SIZE})
    assert [fact.name for fact in found.facts if fact.differs] == []
    with pytest.raises(hexforge.CallError, match="'rowz' is no input or named dimension of either"):
        diff(files / "small.onnx", files / "small.onnx", dims={"rowz": SIZE})
    with pytest.raises(hexforge.CallError, match="sizes are for ONNX models"):
        diff(files / "small.bin", files / "small.bin", shapes={"x": (1, 16, SIZE, SIZE)})


MIXED = [("small.bin", "small.onnx"), ("small.onnx", "small_SM8650.json"), ("small.log", "small.bin")]


@pytest.mark.parametrize(("one", "two"), MIXED)
def test_two_kinds_are_refused(one: str, two: str, files: Path) -> None:
    with pytest.raises(hexforge.CallError, match="give two of one kind"):
        diff(files / one, files / two)


def _estimate(**changes: Any) -> str:
    row = {"name": "a", "op": "Conv2d", "us": 1.0, "cycles": 2, "weight_bytes": 3, "spill_bytes": 4, "bound": "HMX"}
    told = dict.fromkeys(("latency_ms", "accelerator_ms", "host_ms", "rpc_ms", "io_ms", "wait_ms"), 1.0)
    told |= dict.fromkeys(("batch", "threads", "core_mhz", "weight_bytes", "spill_bytes", "dram_bytes", "vtcm_bytes",
                           "vtcm_peak_bytes", "context_bytes", "cpu_nodes"), 1.0)  # fmt: skip
    named: dict[str, Any] = dict.fromkeys(("soc", "precision", "runtime", "performance_mode", "costs"), "x")
    return json.dumps({**told, **named, "ops": [row], "left_out": [], **changes})


MALFORMED = {
    "empty.bin": b"",
    "cut.onnx": b"\x08\x09\x12",
    "text.onnx": b"no model\n",
    "words.txt": b"no report at all\n",
    "report.txt": b"Execute Stats (Average):\n   what is this\n",
    "list.json": b"[1, 2]",
    "other.json": b'{"a": 1}',
    "broken.json": b'{"latency_ms": ',
    "twice.json": b'{"latency_ms": 1, "latency_ms": 2, "soc": "", "ops": []}',
    "no_number.json": _estimate(latency_ms="1").encode(),
    "infinite.json": _estimate(rpc_ms=math.inf).encode(),
    "rows.json": _estimate(ops=[1]).encode(),
    "names.json": _estimate(left_out=[{"node": 3, "op": "x", "reason": None}]).encode(),
    "no_utf8.json": b'{"latency_ms": 1, "soc": "\xff"}',
    "noise.log": bytes(range(256)) * 4,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_files_are_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(MALFORMED[name])
    (tmp_path / "good.json").write_text(_estimate())
    with pytest.raises(hexforge.HexforgeError, match=name.partition(".")[0]):
        diff(tmp_path / name, tmp_path / "good.json")
    with pytest.raises(hexforge.CallError, match="there is no such file"):
        diff(tmp_path / "good.json", tmp_path / "missing.json")


def test_a_damaged_context_is_refused(files: Path, tmp_path: Path) -> None:
    data = bytearray((files / "small.bin").read_bytes())
    (tmp_path / "cut.bin").write_bytes(data[: len(data) // 2])
    with pytest.raises(hexforge.FormatError, match=r"cut\.bin"):
        diff(files / "small.bin", tmp_path / "cut.bin")


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    evil = "</script><b id=pwned>\x1b[2J{0}"
    row = json.loads(_estimate())["ops"][0]
    for name, us in (("a", 1.0), ("b", 2.0)):
        (tmp_path / f"{name}.json").write_text(_estimate(ops=[{**row, "name": evil, "us": us}, {**row, "name": evil}]))
    found = diff(tmp_path / "a.json", tmp_path / "b.json")
    assert [layer.name for layer in found.layers] == [evil, f"{evil} #2"]
    assert "<b id=pwned>" not in difference_page(found)
    assert isinstance(found, Difference)


def test_figures_have_units() -> None:
    assert fact_text("latency_us", 1500.0) == "1.50 ms"
    assert fact_text("weight_bytes", 2048) == "2.0 KiB"
    assert fact_text("graphs", 12345) == "12,345"
    assert fact_text("soc", None) == "none"
    assert FactChange("graph: vtcm_mb", 4, 8).chosen
    assert not FactChange("latency_us", 4.0, 8.0).chosen
    assert not FactChange("latency_us", 4.0, 4.0).differs
