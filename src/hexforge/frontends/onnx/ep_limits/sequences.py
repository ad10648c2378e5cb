# SPDX-License-Identifier: Apache-2.0
"""Limits of recurrent ops, attention, detection and signal ops."""

from __future__ import annotations

from hexforge.frontends.onnx.ep_limits.limit import EpLimit, Evidence, Refuser, limit
from hexforge.frontends.onnx.ep_limits.subject import Subject

_NONPAD_KV_SEQLEN = 6


def _more_boxes(subject: Subject) -> bool:
    most = subject.numbers(2)
    return most is not None and bool(most.ravel()[:1].sum() > subject.shape(0)[1])


LIMITS: tuple[EpLimit, ...] = (
    limit(
        "LSTM GRU",
        lambda s: bool(s.attr("activations")),
        "the attribute activations, even with its default; leave it out",
        Refuser.BUILDER, Evidence.PUBLIC,
    ),
    limit(
        "LSTM GRU",
        lambda s: s.attr("layout", 0) == 1,
        "layout=1; use 0, with Transpose around it",
        Refuser.BUILDER, Evidence.DOCUMENTED,
    ),
    limit(
        "Attention",
        lambda s: s.plain(3) == "BOOL",
        "a bool attn_mask; give a float one that is added",
        Refuser.BUILDER, Evidence.OBSERVED,
    ),
    limit(
        "Attention",
        lambda s: s.given(_NONPAD_KV_SEQLEN),
        "nonpad_kv_seqlen; mask the padding with attn_mask",
        Refuser.BUILDER, Evidence.OBSERVED,
    ),
    limit(
        "Attention",
        lambda s: s.attr("softmax_precision") is not None,
        "softmax_precision; leave it out",
        Refuser.BUILDER, Evidence.OBSERVED,
    ),
    limit(
        "NonMaxSuppression",
        lambda s: s.attr("center_point_box", 0) != 0,
        "center_point_box=1; give corners",
        Refuser.BUILDER, Evidence.DOCUMENTED,
    ),
    limit(
        "NonMaxSuppression",
        _more_boxes,
        "max_output_boxes_per_class above the number of boxes; lower it",
        Refuser.VALIDATION, Evidence.OBSERVED,
    ),
    limit(
        "STFT",
        lambda s: s.dequantized_bits(2) > 0,
        "a quantized window; leave this node in float",
        Refuser.PREPARATION, Evidence.OBSERVED,
    ),
)  # fmt: skip
