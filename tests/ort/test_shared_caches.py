# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention with one buffer for past and present, as onnxruntime-genai binds it: in place, and right."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import hexforge
from hexforge.backends.htp.numbers.program import HtpProgram
from hexforge.runtime.cpu_part import CpuPart

HEADS, GROUPS, SIZE, ROWS = 4, 2, 32, 2048
KINDS = {0: np.float32, 8: np.int8, 4: np.uint8}
HTP = [("QNNExecutionProvider", {"backend_type": "htp"})]
PAIRS = {"nk": "pk", "nv": "pv"}


def decoder(bits: int, tokens: int, reads_again: str = "") -> bytes:
    """A product and attention over caches of 0 (real numbers), 8 or 4 bits."""
    random = np.random.default_rng(1)
    wide = (HEADS + 2 * GROUPS) * SIZE
    angles = np.arange(ROWS)[:, None] * (1e4 ** -(np.arange(SIZE // 2) / (SIZE // 2)))
    constants = {
        "weight": random.standard_normal((wide, wide)).astype(np.float32) / np.sqrt(wide),
        "cos": np.cos(angles),
        "sin": np.sin(angles),
        "scale": np.array([0.02 if bits == 8 else 0.4]),
    }
    coded: dict[str, Any] = (
        {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": bits} if bits else {}
    )
    names = [
        "qkv",
        "",
        "",
        "pk",
        "pv",
        "seqlens",
        "total",
        "cos",
        "sin",
        *(["", "", "", "scale", "scale"] if bits else []),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["qkv"], "product"),
        helper.make_node("GroupQueryAttention", names, ["y", "nk", "nv"], "attention", domain="com.microsoft",
                         num_heads=HEADS, kv_num_heads=GROUPS, do_rotary=1, **coded),
    ]  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(KINDS[bits]))
    cache = [1, GROUPS, ROWS, SIZE // (2 if bits == 4 else 1)]
    outputs = {"y": (TensorProto.FLOAT, [1, tokens, HEADS * SIZE]), "nk": (kind, cache), "nv": (kind, cache)}
    if reads_again:  # after the attention, and where `reads_again` stays with the CPU, in a part of its own
        nodes += [
            helper.make_node(reads_again, ["y"], ["turned"], "turning"),
            helper.make_node("ReduceMax", ["turned"], ["most"], "most", keepdims=0),
            helper.make_node("Add", ["pk", "most"], ["again"], "reader"),
        ]
        outputs["again"] = (kind, cache)
    inputs = {"x": (TensorProto.FLOAT, [1, tokens, wide]), "pk": (kind, cache), "pv": (kind, cache),
              "seqlens": (TensorProto.INT32, [1]), "total": (TensorProto.INT32, [1])}  # fmt: skip
    sides = [[helper.make_tensor_value_info(n, *t) for n, t in side.items()] for side in (inputs, outputs)]
    tensors = [numpy_helper.from_array(v.astype(np.float32), n) for n, v in constants.items()]
    graph = helper.make_graph(nodes, "decoder", sides[0], sides[1], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def empty(bits: int) -> dict[str, np.ndarray]:
    shape = (1, GROUPS, ROWS, SIZE // (2 if bits == 4 else 1))
    return {name: np.zeros(shape, KINDS[bits]) for name in PAIRS.values()}


def step(tokens: int, before: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(before)
    x = random.standard_normal((1, tokens, (HEADS + 2 * GROUPS) * SIZE)).astype(np.float32)
    return {"x": x, "seqlens": np.array([before + tokens - 1], np.int32), "total": np.array([ROWS], np.int32)}


def bound(session: Any, feeds: dict[str, np.ndarray], caches: dict[str, np.ndarray]) -> Any:
    """A binding of inputs, with caches that are written where they are read."""
    binding = session.io_binding()
    for name, array in (feeds | caches).items():
        binding.bind_cpu_input(name, array)
    binding.bind_output("y")
    for name, past in PAIRS.items():
        array = caches[past]
        binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return binding


@pytest.mark.parametrize("bits", [0, 8, 4])
def test_one_buffer_gives_the_bits_of_two(bits: int) -> None:
    """A prompt and tokens after it; a run makes nothing that is as large as a cache."""
    held, copied, before = empty(bits), empty(bits), 0
    for tokens in (5, 1, 1, 3, 1):
        session = hexforge.InferenceSession(decoder(bits, tokens), providers=HTP)
        (stage,) = session.stages
        program = stage.runner
        assert isinstance(program, HtpProgram)
        assert program.states == PAIRS
        assert not program.facts.references
        feeds = step(tokens, before)
        y, *others = session.run(None, feeds | copied)
        copied = dict(zip(copied, others, strict=True))
        binding = bound(session, feeds, held)
        tracemalloc.start()
        session.run_with_iobinding(binding)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < min(array.nbytes for array in held.values()) / 2
        assert np.array_equal(binding.copy_outputs_to_cpu()[0], y)
        assert all(np.array_equal(held[name], copied[name]) for name in held)
        before += tokens
        assert np.count_nonzero(held["pk"].any((0, 1, 3))) == before
        if not bits:  # no step but the update itself writes as much as a cache
            (segment,) = program._stages
            large = [c.kind for c in segment.calls for t in c.outs if _bytes(segment.tensors[t]) >= held["pk"].nbytes]
            assert large == ["scatter_f32", "scatter_f32"]


def _bytes(tensor: Any) -> int:
    return int(tensor.nbytes if isinstance(tensor, np.ndarray) else tensor[2])


@pytest.mark.parametrize("bits", [0, 8])
def test_where_the_ep_leaves_attention_to_the_cpu(bits: int) -> None:
    """onnxruntime's QNN EP takes the product alone; onnxruntime's own kernel then writes into the buffer."""
    options = hexforge.SessionOptions()
    options.add_session_config_entry("hexforge.obey_ep_limits", "1")
    held, copied, before = empty(bits), empty(bits), 0
    for tokens in (5, 1, 3, 1):
        session = hexforge.InferenceSession(decoder(bits, tokens), options, providers=HTP)
        assert {row.node: row.where for row in session.placements} == {
            "product": "QNNExecutionProvider",
            "attention": "CPUExecutionProvider",
        }
        feeds = step(tokens, before)
        y, *others = session.run(None, feeds | copied)
        copied = dict(zip(copied, others, strict=True))
        part = session.stages[-1]
        assert isinstance(part.runner, CpuPart)
        assert part.runner.states == PAIRS
        binding = bound(session, feeds, held)
        session.run_with_iobinding(binding)
        assert all(binding._results[name] is binding._outputs[name] for name in PAIRS)  # written there, not copied
        before += tokens
        assert np.array_equal(binding.copy_outputs_to_cpu()[0], y)
        assert all(np.array_equal(held[n][:, :, :before], copied[n][:, :, :before]) for n in held)
        copied = {name: np.where(np.arange(ROWS)[:, None] < before, array, 0) for name, array in copied.items()}


@pytest.mark.parametrize("obeys", ["0", "1"])
@pytest.mark.parametrize("between", ["Neg", "Erf"])
def test_not_in_place_where_the_past_is_read_too(between: str, obeys: str) -> None:
    """Another node reads the past as it was, in the same part or in a later one."""
    options = hexforge.SessionOptions()
    options.add_session_config_entry("hexforge.obey_ep_limits", obeys)
    session = hexforge.InferenceSession(decoder(0, 1, between), options, providers=HTP)
    random = np.random.default_rng(3)
    caches = {n: random.standard_normal(a.shape).astype(np.float16).astype(np.float32) for n, a in empty(0).items()}
    names = ("y", "nk", "nv", "again")
    want = dict(zip(names, session.run(None, step(1, 9) | caches), strict=True))
    binding = bound(session, step(1, 9), caches)
    binding.bind_output("again")
    session.run_with_iobinding(binding)
    for name, value in zip(names, binding.copy_outputs_to_cpu(), strict=True):
        rows = slice(None, 10) if name in PAIRS else slice(None)  # behind the tokens onnxruntime leaves anything
        got, expected = (a[:, :, rows] if a.ndim == 4 else a for a in (value, want[name]))
        assert np.array_equal(got, expected), name
