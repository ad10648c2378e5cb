# SPDX-License-Identifier: Apache-2.0
"""GroupQueryAttention in all its forms, against its definition in numpy and onnxruntime's CPU kernel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from hexforge.frontends.onnx.placing import place
from hexforge.model.reader import read
from tests.frontends.onnx.parts import units
from tests.frontends.onnx.single_node import model, placed

INPUTS = (
    "query", "key", "value", "past_key", "past_value", "seqlens_k", "total", "cos", "sin", "position_ids", "bias",
    "sink", "k_scale", "v_scale", "q_norm", "k_norm",
)  # fmt: skip
HEADS, GROUPS, SIZE = 4, 2, 16
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Form:
    """One way to call the op: new tokens, those in the cache, how long that is, and what else is given."""

    tokens: int = 3
    past: int = 5
    buffer: int = 0
    batch: int = 1
    packed: bool = False
    turning: int = 0
    more: Arrays = field(default_factory=dict)
    bits: int = 0
    per_channel: bool = False
    cpu: bool = True
    """Whether onnxruntime's CPU kernel has it."""
    attributes: dict[str, Any] = field(default_factory=dict)

    def feeds(self) -> Arrays:
        random = np.random.default_rng(5)

        def f32(*shape: int) -> np.ndarray:
            return random.standard_normal(shape).astype(np.float32)

        batch, tokens, total = self.batch, self.tokens, self.past + self.tokens
        widths = {"query": HEADS * SIZE, "key": GROUPS * SIZE, "value": GROUPS * SIZE}
        given = {name: f32(batch, tokens, width) for name, width in widths.items()}
        if self.packed:
            given = {"query": np.concatenate(list(given.values()), -1)}
        if rows := self.buffer or self.past:
            for name in ("past_key", "past_value"):
                given[name] = f32(batch, GROUPS, rows, SIZE)
                if self.bits:
                    kind = np.int8 if self.bits == 8 else np.uint8
                    limits = np.iinfo(kind)
                    codes = random.integers(limits.min, limits.max + 1, (batch, GROUPS, rows, SIZE * self.bits // 8))
                    given[name] = codes.astype(kind)
        given |= {"seqlens_k": np.full(batch, total - 1, np.int32), "total": np.array([total], np.int32)}
        if self.turning:
            angles = np.arange(64)[:, None] * (100.0 ** -(np.arange(self.turning) / self.turning))
            given |= {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32)}
        if self.bits:
            shape: tuple[int, ...] = (1, GROUPS, 1, SIZE) if self.per_channel else (1,)
            for name, scale in (("k_scale", 0.02), ("v_scale", 0.03)):
                given[name] = (scale * 16 ** (self.bits == 4) * random.uniform(0.5, 1, shape)).astype(np.float32)
        return given | self.more


FORMS = {
    "first prompt": Form(past=0),
    "prompt with a cache": Form(),
    "one token": Form(tokens=1),
    "one buffer": Form(tokens=1, buffer=12),
    "prompt into a buffer": Form(tokens=4, past=0, buffer=12, attributes={"do_rotary": 1}, turning=8),
    "packed": Form(packed=True, turning=8, attributes={"do_rotary": 1}),
    "neighbours turn": Form(packed=True, turning=8, attributes={"do_rotary": 1, "rotary_interleaved": 1}),
    "window": Form(tokens=6, attributes={"local_window_size": 4}),
    "window, one token": Form(tokens=1, past=9, attributes={"local_window_size": 4}),
    "cap": Form(attributes={"softcap": 1.0}),
    "scale": Form(attributes={"scale": 0.3}),
    "smooth": Form(attributes={"smooth_softmax": 1}),
    "sink": Form(more={"sink": np.array([0.5, -1.0, 2.0, 0.0], np.float32)}),
    "sink and window": Form(
        tokens=6, more={"sink": np.array([0.5, -1.0, 2.0, 0.0], np.float32)}, attributes={"local_window_size": 3}
    ),
    "bias": Form(more={"bias": np.random.default_rng(1).standard_normal((1, HEADS, 3, 8)).astype(np.float32)}),
    "bias in a buffer": Form(
        tokens=1, batch=2, buffer=12,
        more={"bias": np.random.default_rng(1).standard_normal((2, 1, 1, 6)).astype(np.float32)},
    ),
    "cap and bias": Form(
        attributes={"softcap": 1.0},
        more={"bias": np.random.default_rng(1).standard_normal((1, 1, 3, 8)).astype(np.float32)},
    ),
    "positions": Form(turning=8, more={"position_ids": np.array([[9, 4, 7]])}, attributes={"do_rotary": 1}),
    "positions of two": Form(
        tokens=1, batch=2, turning=8, more={"position_ids": np.array([[9], [2]])}, attributes={"do_rotary": 1}
    ),
    "positions of a prompt": Form(
        past=0, batch=2, turning=8, more={"position_ids": np.array([[3, 9, 1], [3, 9, 1]])}, attributes={"do_rotary": 1}
    ),
    "both sides": Form(attributes={"causal": 0}),
    "both sides in a buffer": Form(buffer=12, attributes={"causal": 0}),
    "normalized heads": Form(
        turning=8, cpu=False, attributes={"do_rotary": 1, "qk_norm_epsilon": 1e-5},
        more={n: np.random.default_rng(2).standard_normal(SIZE).astype(np.float32) for n in ("q_norm", "k_norm")},
    ),
    **{
        f"{bits}-bit cache{', per channel' * channel}{', a buffer' * bool(buffer)}": Form(
            bits=bits, per_channel=channel, buffer=buffer, tokens=1 if buffer else 3, turning=8,
            attributes={
                "k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits, "do_rotary": 1,
            },
        )
        for bits in (8, 4)
        for channel, kind in ((False, "PER_TENSOR"), (True, "PER_CHANNEL"))
        for buffer in (0, 12)
    },
}  # fmt: skip


def defined(form: Form, given: Arrays) -> list[np.ndarray]:
    """What the op's description says, one head after the other; caches as real numbers."""
    said = form.attributes
    query, *others = (given[n] for n in ("query", "key", "value") if n in given)
    if not others:
        query, *others = np.split(query, [HEADS * SIZE, (HEADS + GROUPS) * SIZE], -1)
    result = np.zeros((form.batch, form.tokens, HEADS, SIZE), np.float32)
    caches = []
    rows, total = form.buffer or form.past, form.past + form.tokens
    start = form.past
    places = np.arange(start, total)
    for batch in range(form.batch):
        new = [x[batch].reshape(form.tokens, -1, SIZE) for x in (query, *others)]
        if "q_norm" in given:
            for i, name in enumerate(("q_norm", "k_norm")):
                mean = np.square(new[i]).mean(-1, keepdims=True)
                new[i] = new[i] / np.sqrt(mean + said["qk_norm_epsilon"]) * given[name]
        if said.get("do_rotary"):
            at = given["position_ids"][batch] if "position_ids" in given else places
            at = at[0] + np.arange(form.tokens) if form.past == 0 else at
            new[:2] = [turned(x, given["cos"][at][:, None], given["sin"][at][:, None], form) for x in new[:2]]
        kept = []
        for x, name, scale in ((new[1], "past_key", "k_scale"), (new[2], "past_value", "v_scale")):
            whole = np.zeros((GROUPS, max(rows, total), SIZE), np.float32)
            fresh = x.transpose(1, 0, 2)
            if form.bits:
                step = np.broadcast_to(given[scale], (1, GROUPS, 1, SIZE) if form.per_channel else (1, 1, 1, 1))[0]
                top = (1 << form.bits - 1) - 1
                fresh = np.clip(np.rint(fresh / step), -top - 1, top) * step
            if rows:
                old = given[name][batch]
                if form.bits == 4:
                    old = np.stack((old & 15, old >> 4), -1).reshape(GROUPS, rows, SIZE).astype(np.float32) - 8
                whole[:, :rows] = old * step if form.bits else old
            whole[:, start:total] = fresh
            kept.append(whole)
        caches.append(kept)
        for head in range(HEADS):
            key, value = (x[head * GROUPS // HEADS] for x in kept)
            scores = new[0][:, head] @ key.T * said.get("scale", SIZE**-0.5)
            if cap := said.get("softcap", 0.0):
                scores = np.tanh(scores / cap) * cap
            if (bias := given.get("bias")) is not None:
                scores[:, : bias.shape[-1]] += bias[batch % len(bias), head % bias.shape[1]]
            distance = places[:, None] - np.arange(len(key))[None]
            allowed = distance >= 0 if said.get("causal", 1) else (np.arange(len(key)) < total)[None]
            allowed = allowed & (distance < said.get("local_window_size", 1 << 30))
            exponents = np.where(allowed, np.exp(scores), 0)
            sink = np.exp(given["sink"][head]) if "sink" in given else float(said.get("smooth_softmax", 0))
            result[batch, :, head] = exponents / (exponents.sum(-1, keepdims=True) + sink) @ value
    return [result.reshape(form.batch, form.tokens, -1), *(np.stack(x) for x in zip(*caches, strict=True))]


def turned(x: np.ndarray, cosines: np.ndarray, sines: np.ndarray, form: Form) -> np.ndarray:
    result, half = x.copy(), cosines.shape[-1]
    neighbours = form.attributes.get("rotary_interleaved")
    one, two = (slice(0, 2 * half, 2), slice(1, 2 * half, 2)) if neighbours else (slice(half), slice(half, 2 * half))
    result[..., one] = x[..., one] * cosines - x[..., two] * sines
    result[..., two] = x[..., two] * cosines + x[..., one] * sines
    return result


def one_node(form: Form, given: Arrays) -> Any:
    names = [name if name in given else "" for name in INPUTS]
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "nk", "nv"], "node", domain="com.microsoft", num_heads=HEADS,
        kv_num_heads=GROUPS, **form.attributes,
    )  # fmt: skip
    rows = max(form.buffer, form.past + form.tokens)
    cache = given["past_key"].dtype if form.bits else np.dtype(np.float32)
    kept = (cache, (form.batch, GROUPS, rows, SIZE * form.bits // 8 if form.bits else SIZE))
    outputs = {"y": (np.float32, (form.batch, form.tokens, HEADS * SIZE)), "nk": kept, "nv": kept}
    return model([node], given, {}, outputs)


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_its_definition(name: str) -> None:
    form = FORMS[name]
    given = form.feeds()
    proto = one_node(form, given)
    ours, _ = placed(proto, given)
    expected = defined(form, given)
    assert np.abs(ours[0] - expected[0]).max() < 1e-5 * max(1, np.abs(expected[0]).max())
    total = form.past + form.tokens
    if not form.bits:
        for mine, theirs in zip(ours[1:], expected[1:], strict=True):
            assert np.abs(mine[:, :, :total] - theirs[:, :, :total]).max() < 1e-5
    if form.cpu:
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        theirs = session.run(None, given)
        assert np.abs(ours[0] - theirs[0]).max() < 1e-5 * max(1, np.abs(theirs[0]).max())
        for mine, other in zip(ours[1:], theirs[1:], strict=True):
            assert mine.dtype == other.dtype
            if form.bits:
                assert np.array_equal(mine[:, :, :total], other[:, :, :total])
            else:
                assert np.abs(mine[:, :, :total] - other[:, :, :total]).max() < 1e-5


@pytest.mark.parametrize(
    ("change", "more", "reason"),
    [
        ({"sliding_window_cache": 1}, {}, "sliding_window_cache with local_window_size -1"),
        ({"sliding_window_cache": 1, "local_window_size": 6}, {}, "caches of 5 rows for a window of 6"),
        ({}, {"q_norm": np.ones(SIZE, np.float32)}, "must be given together"),
        ({"k_quant_type": "PER_TENSOR"}, {}, "with a scale are known"),
        ({}, {"k_scale": np.ones(1, np.float32)}, "a scale of a cache whose k_quant_type is NONE"),
        ({}, {"bias": np.zeros((1, 1, 3, 9), np.float32)}, "an attention bias for 9 keys of 8"),
        ({"do_rotary": 1}, {"position_ids": np.zeros((2, 3), np.int64)}, "position_ids of shape"),
    ],
)
def test_what_is_not_known_is_refused(change: dict[str, Any], more: Arrays, reason: str) -> None:
    form = Form(turning=8, more=more, attributes=change)
    given = form.feeds()
    taken = place(units(read(one_node(form, given)).ir), lambda node: None)
    refusals = [p.reason for p in taken if not p.taken]
    assert len(refusals) == 1
    assert reason in str(refusals[0])
