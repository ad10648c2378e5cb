# SPDX-License-Identifier: Apache-2.0
"""Context models: written by sessions and ModelCompiler, opened as ordinary models, with the same bits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import hexforge
from hexforge import CallError, FormatError, HexforgeError, ModelError, UnsupportedError
from hexforge.formats.container import MAGIC
from hexforge.frontends.onnx.context_model import COMPATIBILITY
from hexforge.model.wire import detach_contexts, has_contexts
from tests.digits import MODEL, held_out
from tests.ort.context_models import (
    CPU,
    QNN,
    assert_same_bits,
    compiler,
    dense,
    edited,
    ep_context,
    feeds,
    session,
    written,
)
from tests.ort.models import FLOAT, mixed, model, node, quantized, sandwich

MODELS = {"mixed": mixed(), "sandwich": sandwich(), "quantized": quantized(), "dense": dense()}


def nodes_of(path: Path) -> list[onnx.NodeProto]:
    return [n for n in onnx.load(path).graph.node if n.op_type == "EPContext"]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


# -- round trips ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("embed", ["0", "1"])
@pytest.mark.parametrize("name", MODELS)
def test_a_context_model_gives_the_same_bits(tmp_path: Path, name: str, embed: str) -> None:
    made, _ = written(tmp_path / "m.onnx", MODELS[name], ep__context_embed_mode=embed)
    assert {p.name for p in tmp_path.glob("m_ctx*")} == {"m_ctx.onnx", *(["m_ctx_qnn.bin"] if embed == "0" else [])}
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for file in tmp_path.glob("m_ctx*"):
        shutil.move(file, moved)
    opened = session(moved / "m_ctx.onnx")
    assert_same_bits(made, opened)
    assert opened.get_providers() == [QNN, CPU]
    assert [g.name for g in opened.graphs] == [g.name for g in made.graphs]
    assert opened.get_modelmeta().graph_name == made.get_modelmeta().graph_name
    assert opened.saved is None


@pytest.mark.parametrize("backend", ["cpu", "htp"])
@pytest.mark.parametrize("embed", [True, False])
def test_the_compiler_makes_contexts_of_every_backend(tmp_path: Path, backend: str, embed: bool) -> None:
    options = {"backend_type": backend}
    source = tmp_path / "m.onnx"
    source.write_bytes(dense())
    made = compiler(source, options, embed_compiled_data_into_model=embed)
    made.compile_to_file()
    assert (tmp_path / "m_ctx_qnn.bin").exists() is not embed
    fresh = session(source, options)
    assert_same_bits(fresh, session(tmp_path / "m_ctx.onnx", options))
    if embed:
        data = made.compile_to_bytes()
        assert_same_bits(fresh, session(data, options))
        parts: list[bytes] = []
        made.compile_to_stream(parts.append)
        assert b"".join(parts) == data
    assert made.report is not None
    assert made.report.graphs


def test_attributes_and_metadata(tmp_path: Path) -> None:
    made, path = written(tmp_path / "m.onnx", sandwich(), {"soc_model": "SM8650"}, ep__context_node_name_prefix="p_")
    first, second = nodes_of(path)
    assert attributes(first) == {
        "main_context": 1,
        "embed_mode": 0,
        "ep_cache_context": b"m_ctx_qnn.bin",
        "ep_sdk_version": f"hexforge {hexforge.__version__}".encode(),
        "partition_name": first.name.encode(),
        "source": b"QNNExecutionProvider",
        "is_multi_soc_ep_context": 0,
        "notes": b"SM8650 (v75)",
    }
    assert attributes(second)["main_context"] == 0
    assert "ep_cache_context" not in attributes(second)
    assert first.name.startswith("p_QNNExecutionProvider_QNNExecutionProvider_")
    assert (first.domain, list(first.input), list(first.output)) == ("com.microsoft", ["x"], ["a"])
    opened = session(path)
    assert opened.get_modelmeta().custom_metadata_map[COMPATIBILITY].endswith(":htp:75:57:8")
    assert made.saved is not None
    assert made.saved.graphs == (first.name, second.name)
    assert made.saved.binary == tmp_path / "m_ctx_qnn.bin"
    assert made.saved.context_bytes == (tmp_path / "m_ctx_qnn.bin").stat().st_size
    onnx.checker.check_model(str(path))


def test_what_the_model_says_of_itself_is_kept(tmp_path: Path) -> None:
    proto = onnx.load_model_from_string(mixed())
    proto.producer_name, proto.model_version, proto.doc_string = "me", 7, "words"
    proto.metadata_props.add(key="k", value="v")
    made, path = written(tmp_path / "m.onnx", proto.SerializeToString())
    old, new = made.get_modelmeta(), session(path).get_modelmeta()
    assert (new.producer_name, new.version, new.description) == ("me", 7, "words")
    assert new.custom_metadata_map[COMPATIBILITY]
    assert {**new.custom_metadata_map, **old.custom_metadata_map} == new.custom_metadata_map


def test_placements_of_a_context_model(tmp_path: Path) -> None:
    _, path = written(tmp_path / "m.onnx", sandwich())
    opened = session(path, session__record_ep_graph_assignment_info="1")
    assert [(r.op_type, r.where, r.qnn_ops) for r in opened.placements] == [
        ("EPContext", QNN, ("Relu",)),
        ("Det", CPU, ()),
        ("EPContext", QNN, ("ElementWiseNeg",)),
    ]
    assert opened.placements[1].reason == "the context model leaves it to the CPU"
    assert [s.ep_name for s in opened.get_provider_graph_assignment_info()] == [QNN, CPU, QNN]
    assert [s.part.taken for s in opened.stages] == [True, False, True]


def test_constants_of_cpu_nodes_in_a_file(tmp_path: Path) -> None:
    made, path = written(tmp_path / "m.onnx", dense(), ep__context_model_external_initializers_file_name="c.bin")
    stored = {t.name: t for t in onnx.load(path, load_external_data=False).graph.initializer}
    assert {t.data_location for t in stored.values()} == {onnx.TensorProto.EXTERNAL}
    assert "w" not in stored
    assert_same_bits(made, session(path))
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(path, moved)
    shutil.move(tmp_path / "m_ctx_qnn.bin", moved)
    with pytest.raises(FormatError, match=r"'c\.bin' is missing; put it beside the model"):
        session(moved / "m_ctx.onnx")


def test_constant_outputs_and_unused_inputs(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["y"], name="relu"), node("Identity", ["k"], ["z"], name="same")]
    inputs: dict[str, Any] = {"x": (FLOAT, [2]), "unused": (FLOAT, [3])}
    source = model(nodes, inputs, {"y": (FLOAT, [2]), "z": (FLOAT, [2])}, {"k": np.array([1, 2], np.float32)})
    made, path = written(tmp_path / "m.onnx", source)
    assert_same_bits(made, session(path))


def test_fixed_dimensions_stay_fixed(tmp_path: Path) -> None:
    options = hexforge.SessionOptions()
    options.add_free_dimension_override_by_name("N", 5)
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", str(tmp_path / "c.onnx"))
    made = hexforge.InferenceSession(mixed("N"), options, providers=[QNN])
    opened = session(tmp_path / "c.onnx")
    assert opened.get_inputs()[0].shape == [5, 3]
    assert_same_bits(made, opened)


def test_names_of_tensors_can_be_overridden(tmp_path: Path) -> None:
    made, path = written(tmp_path / "m.onnx", MODELS["quantized"])
    proto = onnx.load(path)
    for found in proto.graph.node:
        for names in (found.input, found.output):
            for i, name in enumerate(names):
                names[i] = {"xq": "outer in", "rq": "outer out"}.get(name, name)
    for info in proto.graph.value_info:
        info.name = {"xq": "outer in", "rq": "outer out"}.get(info.name, info.name)
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="reads 'outer in', its graph 'xq'; io_name_overrides"):
        session(path)
    edited(path, io_name_overrides="xq=outer in;rq=outer out")
    assert_same_bits(made, session(path))
    edited(path, io_name_overrides="xq")
    with pytest.raises(ModelError, match="io_name_overrides has 'xq'"):
        session(path)


def test_opening_imports_no_onnx_ir(tmp_path: Path) -> None:
    _, path = written(tmp_path / "m.onnx", sandwich())
    code = (
        "import sys, hexforge, numpy as np\n"
        f"s = hexforge.InferenceSession({str(path)!r}, providers=['QNNExecutionProvider'])\n"
        "s.run(None, {'x': np.zeros((2, 3, 3), np.float32)}), s.placements, s.get_inputs()\n"
        "print([m for m in ('sympy', 'onnx_ir', 'onnxscript') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_functions_instead_of_files(tmp_path: Path) -> None:
    """A context that is changed on its way to the disk and back, as one that is encrypted would be."""
    kept: dict[str, bytes] = {}

    def write(name: str, data: Any) -> None:
        whole = data.read(0, 100) + data.read(100)
        assert len(whole) == data.size
        kept[name] = bytes(b ^ 0x5A for b in whole)

    made = compiler(dense(), entries={"ep.context_file_path": str(tmp_path / "a_ctx.onnx")})
    made.set_ep_context_data_write_func(write)
    made.compile_to_file()
    assert [p.name for p in tmp_path.iterdir()] == ["a_ctx.onnx"]
    assert list(kept) == ["a_ctx_qnn.bin"]

    def read(name: str, buffer: Any) -> None:
        buffer.allocate(len(kept[name]))
        buffer.write(bytes(b ^ 0x5A for b in kept[name]))

    options = hexforge.SessionOptions()
    options.set_ep_context_data_read_func(read, 1 << 30)
    opened = hexforge.InferenceSession(tmp_path / "a_ctx.onnx", options, providers=[QNN])
    assert_same_bits(session(dense()), opened)
    options.set_ep_context_data_read_func(read, 10)
    with pytest.raises(CallError, match="at most 10 were announced"):
        hexforge.InferenceSession(tmp_path / "a_ctx.onnx", options, providers=[QNN])
    options.set_ep_context_data_read_func(lambda name, buffer: None, 10)
    with pytest.raises(CallError, match="gave no data"):
        hexforge.InferenceSession(tmp_path / "a_ctx.onnx", options, providers=[QNN])
    options.clear_ep_context_data_read_func()
    with pytest.raises(FormatError, match=r"a_ctx_qnn\.bin' is missing"):
        hexforge.InferenceSession(tmp_path / "a_ctx.onnx", options, providers=[QNN])
    made.clear_ep_context_data_write_func()
    made.compile_to_file()
    assert (tmp_path / "a_ctx_qnn.bin").exists()


def test_bytes_of_a_context_model_whose_context_is_a_file(tmp_path: Path) -> None:
    made, path = written(tmp_path / "m.onnx", sandwich())
    data = path.read_bytes()
    with pytest.raises(ModelError, match=r"given as bytes: set ep\.context_file_path"):
        session(data)
    assert_same_bits(made, session(data, ep__context_file_path=str(path)))


@pytest.mark.feature("Prepare only", guide="219-225")
def test_prepare_only_and_prepare_and_load(tmp_path: Path) -> None:
    fresh = session(sandwich())
    made, path = written(tmp_path / "m.onnx", sandwich(), {"enable_htp_prepare_only": "1"})
    with pytest.raises(CallError, match="only prepares the model; run its context model"):
        made.run(None, feeds(made))
    assert_same_bits(fresh, session(path))
    assert_same_bits(fresh, session(sandwich(), {"enable_htp_prepare_and_load": "1"}))
    with pytest.raises(CallError, match=r"needs the session config key ep\.context_enable=1"):
        session(sandwich(), {"enable_htp_prepare_only": "1"})


def test_a_context_for_several_chips(tmp_path: Path) -> None:
    made, path = written(tmp_path / "m.onnx", quantized(), {"soc_model": "SM8550,SM8650"})
    assert attributes(nodes_of(path)[0])["is_multi_soc_ep_context"] == 1
    assert attributes(nodes_of(path)[0])["notes"] == b"SM8550 (v73), SM8650 (v75)"
    for soc in ("SM8550", "SM8650"):
        opened = session(path, {"soc_model": soc}, session__fail_on_suboptimal_compiled_model="1")
        assert_same_bits(made, opened)
    assert session(path).get_modelmeta().custom_metadata_map[COMPATIBILITY].endswith(":htp:73,75:43,57:8,8")
    float_model, _ = written(tmp_path / "f.onnx", sandwich(), {"soc_model": "SM8650,QCS6490"})
    assert {r.reason for r in float_model.placements if r.node == "relu"} != {None}
    assert "on QCS6490: " in str(float_model.placements[0].reason)


def test_the_spill_fill_buffer_is_told(tmp_path: Path) -> None:
    """A tensor of 8 MB cannot stay in 2 MB of VTCM, and a softmax needs all of what is before it."""
    nodes = [node("Relu", ["x"], ["a"], name="relu"), node("Softmax", ["a"], ["m"], name="softmax", axis=1),
             node("Mul", ["a", "m"], ["y"], name="scale")]  # fmt: skip
    shape = [1, 32, 256, 512]
    source = model(nodes, {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)})
    options = {"soc_model": "SM8650", "vtcm_mb": "2"}
    _, path = written(tmp_path / "m.onnx", source, {**options, "enable_htp_spill_fill_buffer": "1"})
    assert attributes(nodes_of(path)[0])["max_size"] > 1 << 20
    _, path = written(tmp_path / "n.onnx", source, options)
    assert "max_size" not in attributes(nodes_of(path)[0])


# -- what is refused --------------------------------------------------------------------------------------------------


def test_files_that_are_there_stay(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    source.write_bytes(sandwich())
    for name in ("m_ctx.onnx", "m_ctx_qnn.bin", "c.bin"):
        file = tmp_path / name
        file.write_bytes(b"precious")
        with pytest.raises(CallError, match=f"{name}: is there already"):
            session(source, ep__context_enable="1", ep__context_model_external_initializers_file_name="c.bin")
        assert file.read_bytes() == b"precious"
        file.unlink()
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"ep__context_file_path": "."}, r"\. is a folder"),
        ({"ep__context_file_path": "no/such/c.onnx"}, "folder no/such does not exist"),
        ({}, "given as bytes; set ep.context_file_path"),
        (
            {"ep__context_file_path": "c.onnx", "ep__context_embed_mode": "1", "ep__share_ep_contexts": "1"},
            "embed_mode=0",
        ),
        (
            {"ep__context_file_path": "c.onnx", "ep__context_model_external_initializers_file_name": "a/b"},
            "give a file name without a folder",
        ),
    ],
)
def test_outputs_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: dict[str, Any], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CallError, match=words):
        session(sandwich(), ep__context_enable="1", **entries)
    assert list(tmp_path.iterdir()) == []


def test_nothing_compiled_nothing_written(tmp_path: Path) -> None:
    source = model([node("Det", ["x"], ["y"], name="det")], {"x": (FLOAT, [2, 3, 3])}, {"y": (FLOAT, [2])})
    made, path = written(tmp_path / "m.onnx", source)
    assert not path.exists()
    assert "no context model is written: no node was compiled" in made.notes
    compiler(source, entries={"ep.context_file_path": str(path)}).compile_to_file()
    assert_same_bits(made, session(path))
    flags = onnxruntime.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED
    with pytest.raises(CallError, match="ERROR_IF_NO_NODES_COMPILED"):
        compiler(source, flags=flags).compile_to_file(path)


def test_the_compiler_replaces_files_unless_told_not_to(tmp_path: Path) -> None:
    path = tmp_path / "c.onnx"
    compiler(sandwich()).compile_to_file(path)
    compiler(mixed()).compile_to_file(path)
    assert_same_bits(session(mixed()), session(path))
    before = path.read_bytes()
    flags = onnxruntime.OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS
    with pytest.raises(CallError, match="is there already") as caught:
        compiler(sandwich(), flags=flags).compile_to_file(path)
    assert isinstance(caught.value, onnxruntime.capi.onnxruntime_pybind11_state.Fail)
    assert path.read_bytes() == before


def test_the_compilers_arguments(tmp_path: Path) -> None:
    with pytest.raises(CallError, match=r"embed_compiled_data_into_model=True"):
        compiler(mixed()).compile_to_bytes()
    with pytest.raises(CallError, match="give the path to write"):
        compiler(mixed()).compile_to_file()
    with pytest.raises(CallError, match="not both"):
        compiler(mixed(), external_initializers_file_path="a", get_initializer_location_func=lambda *_: None)
    with pytest.raises(CallError, match="by path or as bytes, not as int"):
        compiler(7)
    with pytest.raises(CallError, match="the model is empty"):
        compiler(b"")
    with pytest.raises(CallError, match="is not in the model's folder"):
        compiler(dense(), external_initializers_file_path="/elsewhere/c.bin").compile_to_file(tmp_path / "c.onnx")
    with pytest.raises(CallError, match="is the name of another file"):
        compiler(dense(), external_initializers_file_path="c_qnn.bin").compile_to_file(tmp_path / "c.onnx")
    source = tmp_path / "m.onnx"
    source.write_bytes(mixed())
    with pytest.raises(CallError, match="is the model that is to be compiled"):
        compiler(source).compile_to_file(source)
    assert source.read_bytes() == mixed()
    context = compiler(mixed(), embed_compiled_data_into_model=True).compile_to_bytes()
    with pytest.raises(CallError, match="is compiled already"):
        compiler(context, embed_compiled_data_into_model=True).compile_to_bytes()
    assert hexforge.ModelCompiler(hexforge.SessionOptions(), mixed()).compile_to_bytes()  # onnxruntime's own


def test_the_compiler_puts_constants_where_it_is_told(tmp_path: Path) -> None:
    path = tmp_path / "c.onnx"
    beside = path.with_name("k.bin")
    compiler(dense(), external_initializers_file_path=beside, external_initializers_size_threshold=60).compile_to_file(
        path
    )
    stored = {t.name: t.data_location for t in onnx.load(path, load_external_data=False).graph.initializer}
    assert [name for name, where in stored.items() if where] == ["added"]
    assert_same_bits(session(dense()), session(path))
    compiler(dense(), external_initializers_file_path="k.bin").compile_to_file(path)
    with (tmp_path / "own.bin").open("wb") as file:

        def place(name: str, value: Any, info: Any) -> Any:
            if name != "added":
                return None
            file.write(b"before")
            file.write(value.numpy().tobytes())
            return onnxruntime.OrtExternalInitializerInfo("own.bin", 6, value.tensor_size_in_bytes())

        compiler(dense(), get_initializer_location_func=place).compile_to_file(path)
    assert_same_bits(session(dense()), session(path))


# -- what is not believed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"ep_cache_context": "gone.bin"}, FormatError, "Failed to load from EpContext model.*'gone.bin' is missing"),
        ({"ep_cache_context": "/etc/passwd"}, FormatError, "leaves the model's folder"),
        ({"ep_cache_context": "../m_ctx_qnn.bin"}, FormatError, "leaves the model's folder"),
        ({"ep_cache_context": "a/../m_ctx_qnn.bin"}, FormatError, "leaves the model's folder"),
        ({"ep_cache_context": "C:\\m_ctx_qnn.bin"}, FormatError, "leaves the model's folder"),
        ({"ep_cache_context": ""}, FormatError, "leaves the model's folder"),
        ({"ep_cache_context": "."}, FormatError, "is not a file"),
        ({"ep_cache_context": None}, ModelError, "no attribute 'ep_cache_context'"),
        ({"main_context": 0}, ModelError, "none of its EPContext nodes is the main one"),
        ({"main_context": "1"}, ModelError, "'main_context' is not an integer"),
        ({"partition_name": 3}, ModelError, "'partition_name' is not a text"),
        ({"partition_name": "other"}, ModelError, "stands for graph 'other', which its context has not; it has QNN"),
        ({"partition_name": b"\xff"}, FormatError, "not valid UTF-8"),
        ({"source": "OtherExecutionProvider"}, UnsupportedError, "compiled for OtherExecutionProvider"),
        ({"source": None}, UnsupportedError, "compiled for an unnamed provider"),
        ({"ep_context_type": "dlc"}, UnsupportedError, "Genie model"),
        ({"embed_mode": 1}, FormatError, "is not a hexforge context"),
        ({"embed_mode": 1, "ep_sdk_version": "2.31"}, UnsupportedError, r"SDK 2.31\).*onnxruntime-qnn"),
    ],
)
def test_load_checks(tmp_path: Path, changes: dict[str, Any], error: type[HexforgeError], words: str) -> None:
    _, path = written(tmp_path / "m.onnx", sandwich())
    edited(path, **changes)
    with pytest.raises(error, match=words):
        session(path)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    _, path = written(inner / "m.onnx", sandwich())
    binary = inner / "m_ctx_qnn.bin"
    binary.rename(tmp_path / "other.bin")
    binary.symlink_to(tmp_path / "other.bin")
    with pytest.raises(FormatError, match="links to a file outside the model's folder"):
        session(path)


@pytest.mark.parametrize("blob", [b"\x02\x00\x00\x00 a binary of other tools" * 400, b"short", b""])
def test_blobs_of_other_tools_are_refused(tmp_path: Path, blob: bytes) -> None:
    with pytest.raises(UnsupportedError, match=r"was not made by hexforge; .* \(the onnxruntime-qnn package\)"):
        session(ep_context(ep_cache_context=blob))
    path = tmp_path / "m.onnx"
    path.write_bytes(ep_context(embed_mode=0, ep_cache_context="other.bin"))
    (tmp_path / "other.bin").write_bytes(blob)
    with pytest.raises(UnsupportedError, match=r"other\.bin: was not made by hexforge"):
        session(path)


@pytest.mark.parametrize("embed", ["0", "1"])
def test_damage_is_found(tmp_path: Path, embed: str) -> None:
    _, path = written(tmp_path / "m.onnx", quantized(), ep__context_embed_mode=embed)
    file = path if embed == "1" else tmp_path / "m_ctx_qnn.bin"
    whole = file.read_bytes()
    start = whole.index(MAGIC)
    for at in (start + 9, start + 4097, start + 8192 + 3):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        file.write_bytes(damaged)
        with pytest.raises(FormatError, match="compile the model again"):
            session(path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"backend_type": "cpu"}, "made for the htp backend, not cpu"),
        ({"soc_model": "SM8550"}, r"made for SM8650 \(v75\), newer than SM8550"),
        ({"vtcm_mb": "2"}, "prepared for 4 MB of VTCM, and vtcm_mb=2 allows less"),
    ],
)
def test_options_that_do_not_suit_the_context(tmp_path: Path, options: dict[str, str], words: str) -> None:
    _, path = written(tmp_path / "m.onnx", quantized(), {"soc_model": "SM8650"})
    with pytest.raises(UnsupportedError, match=words):
        session(path, options)


def test_a_suboptimal_context(tmp_path: Path) -> None:
    made, path = written(tmp_path / "m.onnx", quantized(), {"soc_model": "SM8650"})
    opened = session(path, {"soc_model": "SM8750"})
    assert "older than SM8750" in " ".join(opened.notes)
    assert_same_bits(made, opened)
    with pytest.raises(UnsupportedError, match=r"sub-optimal.*older than SM8750"):
        session(path, {"soc_model": "SM8750"}, session__fail_on_suboptimal_compiled_model="1")
    assert_same_bits(made, session(path, session__fail_on_suboptimal_compiled_model="1"))


def test_session_keys_on_a_context_model(tmp_path: Path) -> None:
    made, path = written(tmp_path / "m.onnx", sandwich())
    assert_same_bits(made, session(path, session__disable_model_compile="1"))
    with pytest.raises(UnsupportedError, match=r"leaves 1 of its 3 nodes to the CPU: 'det' \(Det\)"):
        session(path, session__disable_cpu_ep_fallback="1")
    with pytest.raises(CallError, match="is a context model, so it is compiled already"):
        session(path, ep__context_enable="1")


# -- several at once --------------------------------------------------------------------------------------------------


def test_sessions_that_write_one_file_do_not_tear_it(tmp_path: Path) -> None:
    source = tmp_path / "m.onnx"
    source.write_bytes(quantized())
    outcomes: list[str] = []

    def work() -> None:
        try:
            session(source, ep__context_enable="1")
        except CallError as error:
            outcomes.append(str(error))
        else:
            outcomes.append("")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bool(o) for o in outcomes) == [False, True, True, True]
    assert all("is there already" in o for o in outcomes if o)
    assert_same_bits(session(source), session(tmp_path / "m_ctx.onnx"))
    assert {p.name for p in tmp_path.iterdir()} == {"m.onnx", "m_ctx.onnx", "m_ctx_qnn.bin"}


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    real = os.fsync

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    source = tmp_path / "m.onnx"
    source.write_bytes(quantized())
    with pytest.raises(CallError, match=r"m_ctx\.onnx: cannot be written: No space left"):
        session(source, ep__context_enable="1")
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]


# -- the walker -------------------------------------------------------------------------------------------------------


def test_embedded_contexts_are_taken_out_and_nothing_else(tmp_path: Path) -> None:
    data = compiler(dense(), embed_compiled_data_into_model=True).compile_to_bytes()
    model, embedded = detach_contexts(memoryview(data))
    assert [bytes(v[: len(MAGIC)]) for v in embedded.values()] == [MAGIC]
    assert len(model) + sum(map(len, embedded.values())) < len(data)
    proto, whole = onnx.load_model_from_string(model), onnx.load_model_from_string(data)
    for index in embedded:
        cache = next(a for a in whole.graph.node[index].attribute if a.name == "ep_cache_context")
        assert cache.s == bytes(embedded[index])
        cache.s = b""
    assert proto.SerializeToString(deterministic=True) == whole.SerializeToString(deterministic=True)
    assert not has_contexts(memoryview(dense()))
    assert detach_contexts(memoryview(dense()))[0] == dense()


@settings(max_examples=40, deadline=None)
@example(at=3, value=0, cut=True)  # a graph with nothing in it
@given(at=st.integers(0, 2000), value=st.integers(0, 255), cut=st.booleans())
def test_damaged_models_are_errors(at: int, value: int, cut: bool) -> None:
    data = bytearray(ep_context())
    at %= len(data)
    data[at] = value
    try:
        session(bytes(data[: at + 1] if cut else data))
    except HexforgeError:
        pass
    else:
        raise AssertionError("a model without a context of ours cannot be opened")


# -- the demo ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("embed", ["0", "1"])
def test_the_demo_reads_digits_from_a_context(tmp_path: Path, embed: str) -> None:
    path = tmp_path / "digits_ctx.onnx"
    made = session(MODEL, ep__context_enable="1", ep__context_file_path=str(path), ep__context_embed_mode=embed)
    opened = session(path, session__disable_model_compile="1")
    assert_same_bits(made, opened)
    pictures, labels = held_out()
    name = opened.get_inputs()[0].name
    answers = [int(np.argmax(opened.run(None, {name: picture})[0])) for picture in pictures[:50]]
    assert np.mean(np.array(answers) == labels[:50]) > 0.9
