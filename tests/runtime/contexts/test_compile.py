# SPDX-License-Identifier: Apache-2.0
"""compile: the numbers of a fresh session, QNN's defaults, weights once, chips together, refusals by name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.chips.deployment import Deployment
from hexforge.chips.graph_config import GraphConfig
from hexforge.errors import CallError, CapacityError, UnsupportedError
from hexforge.runtime.contexts.compile import Compiled, compile
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.request import ContextRequest
from tests import ROOT
from tests.ort.models import FLOAT, mixed, model, node, quantized, sandwich


def net(channels: int = 32) -> bytes:
    """Two convolutions of an image whose size is open."""
    rng = np.random.default_rng(0)
    constants = {
        "w": rng.standard_normal((channels, 3, 3, 3)).astype(np.float32),
        "v": rng.standard_normal((channels, channels, 3, 3)).astype(np.float32),
    }
    nodes = [
        node("Conv", ["x", "w"], ["a"], name="first", pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"], name="relu"),
        node("Conv", ["b", "v"], ["y"], name="second", pads=[1, 1, 1, 1]),
    ]
    return model(nodes, {"x": (FLOAT, [1, 3, "h", "w"])}, {"y": (FLOAT, [1, channels, "h", "w"])}, constants)


def image(size: int) -> dict[str, Any]:
    return {"x": np.random.default_rng(1).standard_normal((1, 3, size, size)).astype(np.float32)}


def sized(size: int) -> dict[str, int]:
    return {"h": size, "w": size}


def fresh(source: bytes, size: int) -> Any:
    options = hexforge.SessionOptions()
    for name, value in sized(size).items():
        options.add_free_dimension_override_by_name(name, value)
    providers = [("QNNExecutionProvider", {"soc_model": "SM8650"})]
    return hexforge.InferenceSession(source, options, providers).run(None, image(size))[0]


@pytest.mark.parametrize("level", [1, 2, 3])
def test_the_numbers_of_a_session_at_every_level(tmp_path: Path, level: int) -> None:
    path = tmp_path / "net.bin"
    made = hexforge.compile(
        net(),
        path,
        Deployment(config=GraphConfig(optimization=level)),
        ContextRequest(graph_names=("net",)),
        dims=sized(16),
    )
    want = fresh(net(), 16)
    np.testing.assert_array_equal(Context(path).program("net").run(image(16))["y"], want)
    np.testing.assert_array_equal(made.program().run(image(16))["y"], want)
    assert path.read_bytes() == made.to_bytes()
    assert made.nbytes == path.stat().st_size
    assert made.info.graphs[0].settings["optimization"] == level


@pytest.mark.feature("VTCM in MB", guide="472-481")
def test_the_table_has_qnns_defaults_capped_by_the_chip(tmp_path: Path) -> None:
    row = compile(net(), None, "SM8650", dims=sized(16)).info.graphs[0]
    assert (row.settings["num_hvx_threads"], row.settings["vtcm_mb"]) == (4, 4)
    assert compile(quantized(), None, "SXR1230P").info.graphs[0].settings["vtcm_mb"] == 2
    row = compile(
        net(),
        None,
        Deployment("SM8750", config=GraphConfig(num_hvx_threads=6)),
        ContextRequest(settings={"vtcm_mb": 0}),
        dims=sized(16),
    ).info.graphs[0]
    assert (row.settings["num_hvx_threads"], row.settings["vtcm_mb"]) == (6, 0)
    with pytest.raises(CallError, match=r"num_hvx_threads 5: SM8650, SM8750 can have 1 to 4"):
        compile(net(), None, Deployment("SM8650,SM8750", config=GraphConfig(num_hvx_threads=5)), dims=sized(16))
    with pytest.raises(CallError, match=r"vtcm_mb 9: SM8650 can have 1 to 8"):
        compile(net(), request=ContextRequest(settings={"vtcm_mb": 9}), dims=sized(16))


def test_a_schematic_for_each_chip_adds_up_and_settings_change_it() -> None:
    context = compile(net(), None, "SM8650,SM8750", ContextRequest(graph_names=("n",)), dims=sized(64)).context
    assert [t.name for t in context.info.targets] == ["SM8650", "SM8750"]
    for soc in ("SM8650", "SM8750"):
        found = context.schematic("n", soc)
        us = found["columns"].index("us")
        assert sum(row[us] for row in found["rows"]) == pytest.approx(found["accelerator_us"], abs=0.01)
    one = compile(
        net(),
        None,
        Deployment(config=GraphConfig(num_hvx_threads=1)),
        ContextRequest(graph_names=("n",)),
        dims=sized(64),
    ).context.schematic("n")
    assert one["accelerator_us"] > context.schematic("n", "SM8650")["accelerator_us"]


@pytest.mark.feature("Spill-fill size in the binary's JSON", guide="253-259")
def test_what_does_not_fit_into_vtcm_is_spilled_into_a_buffer() -> None:
    def scaled(size: int) -> bytes:  # a softmax is not computed tile by tile: it needs all of what is before it
        nodes = [
            node("Relu", ["x"], ["a"], name="relu"),
            node("Softmax", ["a"], ["m"], name="softmax", axis=1),
            node("Mul", ["a", "m"], ["y"], name="scale"),
        ]
        return model(nodes, {"x": (FLOAT, [1, 32, size, size])}, {"y": (FLOAT, [1, 32, size, size])})

    assert compile(scaled(32)).info.graphs[0].spill_fill_bytes == 0
    image_bytes = 32 * 256 * 256 * 2
    some = compile(scaled(256), request=ContextRequest(settings={"vtcm_mb": 4})).info.graphs[0].spill_fill_bytes
    more = compile(scaled(256), request=ContextRequest(settings={"vtcm_mb": 1})).info.graphs[0].spill_fill_bytes
    assert 0 < some <= more <= image_bytes  # what spills does so as a whole
    assert compile(scaled(256), request=ContextRequest(settings={"vtcm_mb": 8})).info.graphs[0].spill_fill_bytes == 0


@pytest.mark.feature("Weight sharing", guide="131-137, 227-247")
def test_several_models_store_their_weights_once(tmp_path: Path) -> None:
    source, sizes = net(128), [16, 20, 24]
    alone = compile(source, request=ContextRequest(graph_names=("a",)), dims=sized(16))
    names = ["a", "b", "c"]
    made = compile(
        [source] * 3,
        tmp_path / "m.bin",
        request=ContextRequest(graph_names=tuple(names), weight_sharing=True),
        dims=[sized(s) for s in sizes],
    )
    assert made.info.weight_sharing
    assert made.nbytes <= 1.05 * alone.nbytes + 3 * 16384  # programs and schematics are small beside real weights
    assert made.saved_bytes == sum(made.weights_bytes.values()) - made.stored_bytes > alone.stored_bytes
    for name, size in zip(names, sizes, strict=True):
        np.testing.assert_array_equal(made.program(name).run(image(size))["y"], fresh(source, size))
    apart = compile(
        [source] * 2, None, "SM8450", ContextRequest(graph_names=("a", "b")), dims=sized(16)
    )  # v69 shares none
    assert not apart.info.weight_sharing
    assert apart.nbytes > 1.9 * alone.nbytes
    with pytest.raises(CallError, match="weight_sharing: graphs share weights on v73 and newer, this is SM8450"):
        compile(
            [source] * 2, None, "SM8450", ContextRequest(weight_sharing=True, graph_names=("a", "b")), dims=sized(16)
        )


@pytest.mark.feature("Weight sharing", guide="227-247")
@pytest.mark.parametrize(
    ("config", "settings", "reason"),
    [
        (GraphConfig(dlbc_weights=True), {}, "weight_sharing and dlbc_weights exclude each other"),
        (GraphConfig(dlbc=True), {}, "weight_sharing and dlbc exclude each other"),
        (GraphConfig(), [{"vtcm_mb": 2}, {"vtcm_mb": 4}], "the same VTCM, these have 2 MB and 4 MB"),
        (GraphConfig(), [{"vtcm_mb": 4}, {"vtcm_mb": 0}], "the same VTCM, these have 4 MB and 8 MB"),
    ],
)
def test_graphs_that_cannot_share_weights_are_refused(config: GraphConfig, settings: Any, reason: str) -> None:
    def made(sharing: bool) -> Compiled:
        request = ContextRequest(weight_sharing=sharing, graph_names=("a", "b"), settings=settings)
        return compile([net(8)] * 2, None, Deployment(config=config), request, dims=sized(16))

    with pytest.raises(CallError, match=reason):
        made(True)
    assert not made(False).info.weight_sharing
    same = ContextRequest(weight_sharing=True, graph_names=("a", "b"), settings=[{"vtcm_mb": 8}, {"vtcm_mb": 0}])
    assert compile([net(8)] * 2, None, Deployment(), same, dims=sized(16)).saved_bytes > 0


def test_refused_nodes_are_listed_and_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "m.bin"
    path.write_bytes(b"old")
    with pytest.raises(UnsupportedError, match=r"(?s)refuses 2 of 4 nodes.*'nonzero' \(NonZero\).*--allow-partial"):
        compile(mixed(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_parts_are_written_where_they_are_allowed() -> None:
    made = compile(sandwich(), request=ContextRequest(allow_partial=True, graph_names=("s",)))
    assert [g.name for g in made.info.graphs] == ["s_0", "s_1"]
    assert [row.node for left in made.left_on_cpu for row in left.rows] == ["det"]
    x = np.array([[1.0, -2.0, 3.0]] * 6, np.float32).reshape(2, 3, 3)
    np.testing.assert_array_equal(made.program("s_0").run({"x": x})["a"], np.maximum(x, 0))
    with pytest.raises(CallError, match="name a graph; the context has s_0, s_1"):
        made.program()
    lone = model([node("Det", ["x"], ["y"], name="det")], {"x": (FLOAT, [2, 3, 3])}, {"y": (FLOAT, [2])})
    with pytest.raises(UnsupportedError, match="nothing of it is left to compile"):
        compile(lone, request=ContextRequest(allow_partial=True))


def test_a_node_one_of_several_chips_refuses_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"on QCS6490:.*float"):
        compile(net(), None, "SM8650,QCS6490", dims=sized(16))


def test_inputs_and_outputs_are_integers_where_that_is_asked_for() -> None:
    real = compile(quantized()).info.graphs[0]
    assert [t.dtype.value for _, t in (*real.inputs, *real.outputs)] == ["float32", "float32"]
    whole = compile(quantized(), request=ContextRequest(quantized_io=True))
    row = whole.info.graphs[0]
    assert [t.qnn_dtype for _, t in (*row.inputs, *row.outputs)] == ["QNN_DATATYPE_UFIXED_POINT_8"] * 2
    assert not whole.left_on_cpu


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"deployment": "SM9999"}, "not a known chip"),
        ({"deployment": "SM8650,57"}, "SM8650.* is given twice"),
        ({"request": ContextRequest(graph_names=("a", "b"))}, "2 graph names for 1 models"),
        ({"request": ContextRequest(graph_names=("",))}, "a graph name is empty"),
        ({"deployment": Deployment(config=GraphConfig(optimization=4))}, "is not a level|3"),
        ({"deployment": "cpu", "request": ContextRequest(settings={"vtcm_mb": 2})}, "vtcm_mb: the cpu backend has no"),
        ({"request": ContextRequest(settings={"vtcm": 2})}, "a graph has no setting 'vtcm'"),
        ({"deployment": Deployment(config=GraphConfig(slc_alloc_enable=True))}, "no system level cache"),
        ({"dims": [{}, {}]}, "dims has 2 items for 1 models"),
        ({"output": "no/such/folder/a.bin"}, "there is no folder"),
    ],
)
def test_what_is_asked_for_is_checked_first(how: dict[str, Any], words: str) -> None:
    with pytest.raises(CallError, match=words):
        compile(quantized(), **how)


def test_a_context_holds_64_graphs() -> None:
    with pytest.raises(CallError, match="65 models: a context holds 64 graphs"):
        compile([quantized()] * 65, request=ContextRequest(graph_names=tuple([f"g{i}" for i in range(65)])))


def test_a_context_is_not_compiled_again(tmp_path: Path) -> None:
    compile(quantized(), tmp_path / "a.bin", request=ContextRequest(graph_names=("g",)))
    with pytest.raises(CallError, match=r"a\.bin: is a context, compiled already; `hexforge info`"):
        compile(tmp_path / "a.bin", tmp_path / "b.bin")
    assert not (tmp_path / "b.bin").exists()


def test_names_come_from_files_and_must_differ(tmp_path: Path) -> None:
    one, two = tmp_path / "a b.onnx", tmp_path / "sub" / "a b.onnx"
    two.parent.mkdir()
    for path in (one, two):
        path.write_bytes(quantized())
    assert compile(one).info.graphs[0].name == "a_b"
    with pytest.raises(CallError, match="two models have the graph name a_b"):
        compile([one, two])
    with pytest.raises(CallError, match="give a model to compile"):
        compile([])


def test_a_graph_beyond_vtcm_says_what_would_fit() -> None:
    wide = model([node("Softmax", ["x"], ["y"], name="s")], {"x": (FLOAT, [1, 1 << 19])}, {"y": (FLOAT, [1, 1 << 19])})
    with pytest.raises(CapacityError, match="vtcm_mb"):
        compile(wide, request=ContextRequest(settings={"vtcm_mb": 1}))


def test_progress_goes_to_its_end_and_the_cpu_backend_has_no_chip() -> None:
    told: list[tuple[int, int]] = []
    made = compile([quantized(), quantized(0.2)], None, "cpu", progress=lambda done, of: told.append((done, of)))
    assert [done for done, _ in told] == list(range(1, told[-1][1] + 1))
    assert made.info.targets == ()
    x = np.linspace(-3, 3, 8, dtype=np.float32).reshape(1, 8)
    for name, source in (("model_0", quantized()), ("model_1", quantized(0.2))):
        providers = [("QNNExecutionProvider", {"backend_type": "cpu"})]
        want = hexforge.InferenceSession(source, providers=providers).run(None, {"x": x})[0]
        np.testing.assert_array_equal(made.program(name).run({"x": x})["y"], want)


# -- settings of a graph in a context -------------------------------------------------------------------------------


def test_settings_change_until_the_first_execution(tmp_path: Path) -> None:
    path = tmp_path / "n.bin"
    compile(net(), path, request=ContextRequest(graph_names=("n",)), dims=sized(16))
    context = Context(path)
    program: Any = context.program("n")
    row = context.set_config("n", num_hvx_threads=2)
    assert (row.settings["num_hvx_threads"], row.settings["vtcm_mb"]) == (2, 4)
    assert program.running.threads == 2
    assert context.set_config("n", vtcm_mb=8).settings == context.graph("n").settings
    assert context.graph("n").settings["num_hvx_threads"] == 2
    with pytest.raises(CallError, match="can have 1 to 4"):
        context.set_config("n", num_hvx_threads=9)
    program.run(image(16))
    with pytest.raises(CallError, match="can not be configured after the first execution of the graph"):
        context.set_config("n", num_hvx_threads=1)
    again = Context(path)
    assert again.set_config("n", num_hvx_threads=1).settings["num_hvx_threads"] == 1
    late: Any = again.program("n")
    assert late.running.threads == 1
    np.testing.assert_array_equal(late.run(image(16))["y"], fresh(net(), 16))
    with pytest.raises(UnsupportedError, match="no HVX threads"):
        compile(quantized(), None, "cpu", ContextRequest(graph_names=("q",))).context.set_config("q", vtcm_mb=1)


def test_the_documents_own_reader_reads_a_file() -> None:
    page = (ROOT / "docs" / "context_format.md").read_text()
    scope: dict[str, Any] = {}
    exec(page.split("```python\n")[1].split("```")[0], scope)
    made = compile(quantized(), request=ContextRequest(graph_names=("q",)))
    found = scope["sections"](made.to_bytes())
    assert [kind for kind, _ in found] == ["info", "program", "schematic", "weights"]
    info = json.loads(found["info", ""])
    assert info == made.info.to_json()
    page_keys = set(re.findall(r'^ {10}"(\w+)":', page, re.MULTILINE))
    assert page_keys == set(info["graphs"][0])
    for name in ("columns", "rows", *json.loads(found["schematic", "SM8650/q"])):
        assert f'"{name}":' in page
