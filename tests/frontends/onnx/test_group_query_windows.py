# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention whose caches hold a window alone: step after step as onnxruntime's CPU kernel has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import hexforge
from tests.frontends.onnx.single_node import model, placed

HEADS, GROUPS = 4, 2
Arrays = dict[str, np.ndarray]


def one_node(given: Arrays, window: int, bits: int) -> onnx.ModelProto:
    """The op for arrays of these shapes."""
    names = ["query", "key", "value", "past_key", "past_value", "seqlens_k", "total", "cos", "sin", "", "bias", "sink",
             "k_scale", "v_scale"]  # fmt: skip
    names = [name if name in given else "" for name in names]
    while not names[-1]:
        names.pop()
    coded: dict[str, Any] = (
        {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": bits} if bits else {}
    )
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "nk", "nv"], "node", domain="com.microsoft", num_heads=HEADS,
        kv_num_heads=GROUPS, sliding_window_cache=1, local_window_size=window, do_rotary=1, **coded,
    )  # fmt: skip
    return model([node], given, {}, {"y": np.float32, "nk": given["past_key"].dtype, "nv": given["past_key"].dtype})


def steps(
    counts: list[int], batch: int, capacity: int, bits: int, seed: int, bias: bool, size: int
) -> Iterator[tuple[Arrays, int]]:
    """What goes in at each step but for the caches, and how many tokens there are then."""
    random = np.random.default_rng(seed)
    angles = np.arange(256)[:, None] * (100.0 ** -(np.arange(size // 2) / (size // 2)))
    before = 0
    for count in counts:
        total = before + count
        widths = {"query": HEADS * size, "key": GROUPS * size, "value": GROUPS * size}
        given = {n: random.standard_normal((batch, count, w)).astype(np.float32) for n, w in widths.items()}
        given |= {"seqlens_k": np.full(batch, total - 1, np.int32), "total": np.array([total], np.int32)}
        given |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
        if bias:
            given["bias"] = random.standard_normal((1, HEADS, count, total)).astype(np.float32)
        if bits:
            step = 0.02 * 16 ** (bits == 4)
            for name in ("k_scale", "v_scale"):
                given[name] = random.uniform(step / 2, step, (1, GROUPS, 1, size)).astype(np.float32)
        yield given, total
        before = total


def resident(total: int, window: int, capacity: int) -> int:
    """How many positions the op's description says are kept."""
    spare = capacity - window + 1
    return total if total <= capacity else total - spare * -(-(total - capacity) // spare)


def empty(batch: int, capacity: int, bits: int, size: int) -> Arrays:
    kind = {0: np.float32, 8: np.int8, 4: np.uint8}[bits]
    return {
        n: np.zeros((batch, GROUPS, capacity, size // (2 if bits == 4 else 1)), kind)
        for n in ("past_key", "past_value")
    }


@pytest.mark.parametrize(
    ("window", "capacity", "batch", "bits", "bias"),
    [(4, 4, 1, 0, False), (4, 7, 1, 0, False), (5, 13, 1, 0, True), (4, 6, 2, 0, False), (4, 7, 1, 8, False),
     (4, 4, 1, 8, True), (3, 5, 1, 4, False), (1, 3, 1, 0, False)],
)  # fmt: skip
@pytest.mark.parametrize("seed", [1, 2])
def test_many_steps_are_onnxruntimes(window: int, capacity: int, batch: int, bits: int, bias: bool, seed: int) -> None:
    """A prompt longer than the window, several more in turns, and one token at a time; each from onnxruntime's state.

    A batch of two gets one token at a time after its prompt, as the op demands. Rows that hold no token are what
    onnxruntime left there, no numbers at times.
    """
    random = np.random.default_rng(seed)
    size = 32 if bits == 4 else 16
    turns = [int(n) for n in random.integers(1, 2 * capacity + 3, 6)] if batch == 1 else []
    counts = [capacity + 3, *(n for turn in turns for n in (turn, 1, 1, 1)), *[1] * 12]
    caches = empty(batch, capacity, bits, size)
    for given, total in steps(counts, batch, capacity, bits, seed, bias, size):
        feeds = given | caches
        proto = one_node(feeds, window, bits)
        ours, _ = placed(proto, feeds)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        theirs = session.run(None, feeds)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
        rows = resident(total, window, capacity)
        for mine, other in zip(ours[1:], theirs[1:], strict=True):
            assert mine.shape == other.shape
            if bits:
                assert np.array_equal(mine[:, :, :rows], other[:, :, :rows])
            else:
                np.testing.assert_allclose(mine[:, :, :rows], other[:, :, :rows], rtol=1e-5, atol=1e-6)
        caches = dict(zip(caches, theirs[1:], strict=True))


def test_texts_of_a_batch_keep_windows_of_their_own() -> None:
    """Texts of 9 and 3 tokens, read alone, get more tokens together."""
    window, capacity, size = 4, 6, 16
    lengths, read = [9, 3], []
    for length in lengths:
        (given, _), *_ = steps([length], 1, capacity, 0, length, False, size)
        feeds = given | empty(1, capacity, 0, size)
        read.append(onnxruntime.InferenceSession(one_node(feeds, window, 0).SerializeToString()).run(None, feeds)[1:])
    caches = dict(zip(("past_key", "past_value"), map(np.concatenate, zip(*read, strict=True)), strict=True))
    for given, _ in steps([1] * 9, 2, capacity, 0, 3, False, size):
        lengths = [length + 1 for length in lengths]
        feeds = (
            given | caches | {"seqlens_k": np.array(lengths, np.int32) - 1, "total": np.array(lengths[:1], np.int32)}
        )
        proto = one_node(feeds, window, 0)
        ours, _ = placed(proto, feeds)
        theirs = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, feeds)
        np.testing.assert_allclose(ours[0], theirs[0], rtol=1e-4, atol=1e-5)
        for batch, total in enumerate(lengths):
            rows = resident(total, window, capacity)
            for mine, other in zip(ours[1:], theirs[1:], strict=True):
                np.testing.assert_allclose(mine[batch, :, :rows], other[batch, :, :rows], rtol=1e-5, atol=1e-6)
        caches = dict(zip(caches, theirs[1:], strict=True))


@pytest.mark.parametrize("bits", [0, 8])
def test_steps_on_htp(bits: int) -> None:
    """The same in the NPU's numbers, each step from what the one before left; nothing runs by a reference."""
    window, capacity, size = 4, 7, 16
    caches = {True: empty(1, capacity, bits, size), False: empty(1, capacity, bits, size)}
    for given, total in steps([10, 1, 5, *[1] * 12], 1, capacity, bits, 7, False, size):
        results = {}
        for htp in (True, False):
            feeds = given | caches[htp]
            providers = [("QNNExecutionProvider", {"backend_type": "htp"})] if htp else ["CPUExecutionProvider"]
            session = hexforge.InferenceSession(one_node(feeds, window, bits).SerializeToString(), providers=providers)
            if htp:
                assert [row.where for row in session.placements] == ["QNNExecutionProvider"]
                assert not [node for stage in session.stages for node in stage.runner.facts.references]
            results[htp] = session.run(None, feeds)
            caches[htp] = dict(zip(caches[htp], results[htp][1:], strict=True))
        rows = resident(total, window, capacity)
        assert np.abs(results[True][0] - results[False][0]).max() < 0.02
        for mine, other in zip(results[True][1:], results[False][1:], strict=True):
            assert np.abs(mine[:, :, :rows].astype(float) - other[:, :, :rows]).max() <= (1 if bits else 0.01)
