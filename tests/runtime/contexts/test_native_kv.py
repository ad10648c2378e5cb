# SPDX-License-Identifier: Apache-2.0
"""KV caches that lie as the matrix unit reads them: the layout, contexts that have it, and what cannot have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.errors import CallError, HexforgeError, UnsupportedError
from hexforge.formats.hmx_layout import HMX, KEY_TILE, VALUE_TILE, from_hmx, to_hmx
from tests.cli.test_cli import run

INPUTS, OUTPUTS = ("past_key_0_in", "past_value_0_in"), ("past_key_0_out", "past_value_0_out")


def decoder(tokens: int = 1, context: int = 256, head: int = 64, zero: int = 128, concat: bool = False) -> bytes:
    """A head of attention that puts new keys and values into its caches."""
    nodes: list[Any] = []
    constants: list[Any] = []

    def scale(name: str, value: float, zero: int) -> list[str]:
        constants.append(numpy_helper.from_array(np.array(value, np.float32), f"{name}_scale"))
        constants.append(numpy_helper.from_array(np.array(zero, np.uint8), f"{name}_zero"))
        return [f"{name}_scale", f"{name}_zero"]

    def add(kind: str, inputs: list[str], output: str = "", **attributes: int) -> str:
        output = output or f"t{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [output], f"n{len(nodes)}", **attributes))  # type: ignore[arg-type]
        return output

    def quantized(name: str, by: list[str], output: str = "") -> str:
        return add("DequantizeLinear", [add("QuantizeLinear", [name, *by], output), *by])

    cache, plain, share = scale("cache", 0.02, zero), scale("plain", 0.05, 128), scale("share", 1 / 255, 0)
    caches = [add("DequantizeLinear", [name, *cache]) for name in INPUTS]
    new = [quantized(name, cache) for name in ("key_new", "value_new")]
    joined = []
    for old, fresh, index, axis in zip(caches, new, ("index_k", "index_v"), (3, 2), strict=True):
        if concat:
            joined.append(add("Concat", [old, fresh], axis=axis))
        else:
            joined.append(add("ScatterElements", [old, index, fresh], axis=axis))
    keys, values = (quantized(name, cache, output) for name, output in zip(joined, OUTPUTS, strict=True))
    scores = quantized(add("MatMul", [quantized("query", plain), keys]), plain)
    shares = quantized(add("Softmax", [scores], axis=-1), share)
    add("QuantizeLinear", [add("MatMul", [shares, values]), *plain], "out")
    total = context + tokens if concat else context
    shapes = {
        "query": [1, 1, tokens, head], "past_key_0_in": [1, 1, head, context], "past_value_0_in": [1, 1, context, head],
        "key_new": [1, 1, head, tokens], "value_new": [1, 1, tokens, head], "index_k": [1, 1, head, tokens],
        "index_v": [1, 1, tokens, head], "out": [1, 1, tokens, head], "past_key_0_out": [1, 1, head, total],
        "past_value_0_out": [1, 1, total, head],
    }  # fmt: skip
    kinds = {"index_k": TensorProto.INT64, "index_v": TensorProto.INT64}
    kinds |= dict.fromkeys((*INPUTS, *OUTPUTS, "out"), TensorProto.UINT8)
    made = {n: helper.make_tensor_value_info(n, kinds.get(n, TensorProto.FLOAT), s) for n, s in shapes.items()}
    if concat:
        del made["index_k"], made["index_v"]
    written = ("out", *OUTPUTS)
    inputs = [value for name, value in made.items() if name not in written]
    graph = helper.make_graph(nodes, "decoder", inputs, [made[name] for name in written], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def compiled(model: bytes, *native: str, soc: str = "SM8650") -> hexforge.Context:
    request = hexforge.ContextRequest(graph_names=("decoder",), native={"decoder": native} if native else {})
    return hexforge.compile(model, None, soc, request).context


@pytest.mark.feature("Native KV cache", seed="004:3242-3341")
def test_the_layout_is_the_published_one() -> None:
    flat = np.arange(64 * 512).reshape(64, 512)
    native = to_hmx(flat, KEY_TILE).reshape(2, 16, 1024)
    assert native[0, 0, :8].tolist() == [0, 512, 1024, 1536, 1, 513, 1025, 1537]
    assert native[0, 1, :4].tolist() == [32, 544, 1056, 1568]
    assert native[1, 0, 0] == 256


@pytest.mark.parametrize("tile", [KEY_TILE, VALUE_TILE])
def test_the_layout_goes_there_and_back(tile: int) -> None:
    flat = np.random.default_rng(0).integers(0, 256, (2, 3, 96, 512)).astype(np.uint8)
    native = to_hmx(flat, tile)
    assert not np.array_equal(native, flat)
    assert np.array_equal(from_hmx(native, tile), flat)
    with pytest.raises(CallError, match="multiples of 32"):
        to_hmx(flat[..., :48, :], tile)


@pytest.mark.feature("Native KV cache", seed="004:3242-3341")
@pytest.mark.parametrize("tokens", [1, 32])
def test_a_generation_with_native_caches_gives_the_same_bits(tokens: int) -> None:
    """With 32 tokens a run the outputs are native, too; with one the caller converts what comes out."""
    outputs_native = tokens % 32 == 0
    model = decoder(tokens)
    flat = compiled(model).program("decoder")
    native = compiled(model, *INPUTS, *(OUTPUTS if outputs_native else ())).program("decoder")
    random = np.random.default_rng(1)
    caches = {name: np.full(value.shape, 128, np.uint8) for name in INPUTS for value in flat.graph.inputs
              if value.name == name}  # fmt: skip
    tiles = dict(zip(INPUTS, (KEY_TILE, VALUE_TILE), strict=True))
    lying = {name: to_hmx(array, tiles[name]) for name, array in caches.items()}
    for step in range(6):
        places = step * tokens + np.arange(tokens)
        fresh = {value.name: value.shape for value in flat.graph.inputs if value.name not in INPUTS}
        feeds: dict[str, Any] = {
            name: random.standard_normal(shape).astype(np.float32)
            for name, shape in fresh.items()
            if not name.startswith("index")
        }
        types = {value.name: value.dtype.numpy for value in flat.graph.inputs}
        feeds["index_k"] = np.broadcast_to(places, fresh["index_k"]).astype(types["index_k"])
        feeds["index_v"] = np.broadcast_to(places[:, None], fresh["index_v"]).astype(types["index_v"])
        expected, found = flat.run({**feeds, **caches}), native.run({**feeds, **lying})
        assert np.array_equal(found["out"], expected["out"])
        for name, output in zip(INPUTS, OUTPUTS, strict=True):
            caches[name] = expected[output]
            lying[name] = found[output] if outputs_native else to_hmx(found[output], tiles[name])
            assert np.array_equal(from_hmx(lying[name], tiles[name]), caches[name])
    assert len(np.unique(expected["out"])) > 2


@pytest.mark.feature("Native KV cache", seed="004:3242-3341")
@pytest.mark.parametrize(
    ("model", "native", "soc", "why"),
    [
        (decoder(zero=127), INPUTS, "SM8650", "'past_key_0_in': is .*uint8 with zero point 128"),
        (decoder(context=128), INPUTS, "SM8650", "'past_key_0_in': holds 128 tokens of heads of 64"),
        (decoder(head=32), INPUTS, "SM8650", "'past_key_0_in': holds 256 tokens of heads of 32"),
        (decoder(), INPUTS[:1], "SM8650", "'past_value_0_in': stays flat, and others do not"),
        (decoder(), (*INPUTS, *OUTPUTS), "SM8650", "'past_key_0_out': gets 1 tokens a run"),
        (decoder(concat=True), INPUTS, "SM8650", "'past_key_0_in': is no key or value cache"),
        (decoder(), (*INPUTS, "query"), "SM8650", "'query': is no key or value cache"),
        (decoder(), INPUTS, "SM8350", "v68.* has no native caches"),
        (decoder(), (*INPUTS, "past_kay_0_in"), "SM8650", "no input or output of that name; did you mean"),
    ],
)
def test_what_cannot_be_native_is_refused_by_its_name(
    model: bytes, native: tuple[str, ...], soc: str, why: str
) -> None:
    with pytest.raises((UnsupportedError, CallError), match=why):
        compiled(model, *native, soc=soc)


def test_the_tools_know_native_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(onnx.load_from_string(decoder()), "decoder.onnx")
    tensors = [{"tensor_name": name, "dataFormat": HMX} for name in INPUTS]
    Path("formats.json").write_text(json.dumps({"graphs": [{"graph_name": ["decoder"], "tensors": tensors}]}))
    line = (
        "--model decoder.onnx --backend libQnnHtp.so --output_dir . --binary_file c --data_format_config formats.json"
    )
    assert run("tool", "qnn-context-binary-generator", *line.split()) == 0
    assert run("tool", "qnn-context-binary-utility", "--context_binary", "c.bin", "--json_file", "c.json") == 0
    info = json.loads(Path("c.json").read_text())["info"]["graphs"][0]["info"]
    formats = {t["info"]["name"]: t["info"]["dataFormat"] for t in (*info["graphInputs"], *info["graphOutputs"])}
    assert {name for name, kind in formats.items() if kind == HMX} == set(INPUTS)


def test_damaged_formats_are_an_error() -> None:
    from hexforge.runtime.contexts.native_kv import recorded_tiles

    for text in ("[]", '{"g": {"x": 3}}', '{"g": 3}', "{"):
        with pytest.raises(HexforgeError, match="data format"):
            recorded_tiles({"data_formats": text}, "g", "c.bin")
