# SPDX-License-Identifier: Apache-2.0
"""KV caches that lie as the matrix unit reads them: the layout, contexts that have it, and what cannot have it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import hexforge
from hexforge.errors import CallError, HexforgeError, UnsupportedError
from hexforge.formats.hmx_layout import HMX, KEY_TILE, VALUE_TILE, from_hmx, to_hmx
from tests.cli.test_cli import run
from tests.models.attention import CACHES_IN as INPUTS
from tests.models.attention import CACHES_OUT as OUTPUTS
from tests.models.attention import decoder

pytestmark = pytest.mark.feature("Native KV cache", guide="3242-3341")


def compiled(model: bytes, *native: str, soc: str = "SM8650", **settings: int) -> hexforge.Context:
    request = hexforge.ContextRequest(
        graph_names=("decoder",), native={"decoder": native} if native else {}, settings=settings
    )
    return hexforge.compile(model, None, soc, request).context


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


@pytest.mark.parametrize("wide", [False, True], ids=["8 bits", "16 bits"])
@pytest.mark.parametrize(("tokens", "heads"), [(1, 1), (6, 3), (32, 2)])
def test_a_generation_with_native_caches_gives_the_same_bits(tokens: int, heads: int, wide: bool) -> None:
    """With 32 tokens a run the outputs are native, too; with one the caller converts what comes out."""
    outputs_native = tokens % 32 == 0
    model = decoder(tokens, heads=heads, wide=wide)
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


def test_a_long_context_needs_the_vtcm_that_a_graph_has() -> None:
    """2 MB are too little for 16K tokens on any chip; 4 MB, the default, are not."""
    model = decoder(context=16384)
    with pytest.raises(UnsupportedError, match="16384 tokens are too many for 2 MB of VTCM; give the graph more"):
        compiled(model, *INPUTS, vtcm_mb=2)
    assert compiled(model, *INPUTS).graphs[0].name == "decoder"
    assert compiled(decoder(context=8192), *INPUTS, vtcm_mb=2).graphs[0].name == "decoder"


@pytest.mark.parametrize(("tokens", "last"), [(1, 224), (4, 224), (40, 192)])
def test_new_tokens_come_in_up_to_the_last_place(tokens: int, last: int) -> None:
    """scatter_index <= context - roundup(ARN, 32), where N is no multiple of 32."""
    program = compiled(decoder(tokens, caches_out=False), *INPUTS).program("decoder")
    types = {value.name: value.type for value in program.graph.inputs}
    feeds = {name: np.zeros(type.shape, type.dtype.numpy) for name, type in types.items()}
    for name, along in (("index_k", -1), ("index_v", -2)):
        places = np.arange(tokens).reshape([-1 if axis == along % 4 else 1 for axis in range(4)])
        feeds[name] = np.broadcast_to(places + last, types[name].shape).astype(types[name].dtype.numpy)
    assert program.run(feeds)["out"].shape == (1, 1, tokens, 64)
    feeds["index_v"] = feeds["index_v"] + 1
    with pytest.raises(CallError, match=f"'index_v': puts new tokens at {last + 1}, and a native cache takes them up "):
        program.run(feeds)


def test_the_matrix_unit_reads_native_caches_as_they_lie() -> None:
    """No step brings a cache into another order, here or on the chip: it is faster by what that takes there."""
    times = {}
    for native in ((), INPUTS):
        context = compiled(decoder(context=4096, heads=8, caches_out=False), *native)
        program = context.program("decoder")
        steps = [kind for runner in program._program._runners for kind in runner.kinds] if native else []  # type: ignore[attr-defined]
        assert steps.count("matmul_hmx_u8") == (2 if native else 0)
        assert not any(kind.startswith("matmul_u8") for kind in steps)
        times[native] = hexforge.estimate(program, "SM8650").timeline.accelerator_us
        assert times[native] == hexforge.estimate(program, "SM8650").timeline.accelerator_us
    assert times[INPUTS] < 0.8 * times[()]


def test_a_byte_of_a_cache_is_a_byte_beside_16_bits() -> None:
    """8K tokens of 8 heads are 4 MB of keys, half of VTCM: with two bytes each they would not stay there."""
    wide, narrow = (
        hexforge.estimate(decoder(context=8192, heads=8, wide=wide, caches_out=False), "SM8650").timeline.dram_bytes
        for wide in (True, False)
    )
    assert wide < 1.1 * narrow


@pytest.mark.feature("Native KV cache", guide="3242-3341")
@pytest.mark.parametrize("heads", [1, 2, 3, 4, 8])
def test_a_cache_that_leaves_flat_is_brought_into_rows(heads: int) -> None:
    """What comes in native and goes out flat takes as long as what is flat all the way, and no longer."""
    flat, back = (
        hexforge.estimate(
            compiled(decoder(context=4096, heads=heads), *native).program("decoder"), "SM8650"
        ).timeline.accelerator_us
        for native in ((), INPUTS)
    )
    assert 0.9 * flat < back < 1.01 * flat


@pytest.mark.feature("Native KV cache", guide="3242-3341", door="tools")
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
    from hexforge.runtime.contexts.native_kv import recorded_format

    for text in ("[]", '{"g": {"x": 3}}', '{"g": 3}', "{"):
        with pytest.raises(HexforgeError, match="data format"):
            recorded_format({"data_formats": text}, "g", "c.bin")
