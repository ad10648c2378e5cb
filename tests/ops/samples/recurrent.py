# SPDX-License-Identifier: Apache-2.0
"""Samples of recurrent ops: one or two units, worked out gate by gate."""

from __future__ import annotations

import numpy as np

from tests.ops.sample import Sample, f32


def _s(x: float) -> float:
    return float(1 / (1 + np.exp(-x)))


_X = f32([[[1.0], [2.0]]])  # batch 1, two steps
_W = {"f": 0.5, "c": 1.0, "o": -0.5, "i": 0.25}
_R = {"f": -1.0, "c": 0.5, "o": 1.0, "i": 0.75}
_B = {"f": 0.1, "c": -0.2, "o": 0.3, "i": 0.0}


def _steps(xs: list[float], h: float = 0.0, c: float = 0.0, coupled: bool = False) -> tuple[list[float], float]:
    out = []
    for x in xs:
        g = {k: _W[k] * x + _R[k] * h + _B[k] for k in "fcoi"}
        c = _s(g["f"]) * c + (1 - _s(g["f"]) if coupled else _s(g["i"])) * np.tanh(g["c"])
        h = _s(g["o"]) * np.tanh(c)
        out.append(h)
    return out, c


_GATES = [_X, *(f32([[w[g]]]) for w in (_W, _R) for g in "fco"), *(f32([_B[g]]) for g in "fco")]
_NONE = [None] * 4
_INPUT_GATE = [f32([[_W["i"]]]), f32([[_R["i"]]]), None, None, None, f32([_B["i"]])]
_FORWARD, _C = _steps([1.0, 2.0], 0.5, -0.5)
_REVERSE, _C_REVERSE = _steps([2.0, 1.0])
_COUPLED, _C_COUPLED = _steps([1.0, 2.0], coupled=True)


def _gru(xs: list[float], h: float, linear: bool) -> list[float]:
    out = []
    for x in xs:
        z, r = _s(0.5 * x - h + 0.1), _s(-0.5 * x + h + 0.3)
        n = np.tanh(x + 0.2 + (r * (0.5 * h - 0.4) if linear else 0.5 * (r * h) - 0.4))
        h = (1 - z) * n + z * h
        out.append(h)
    return out


_GRU = [
    _X, f32([[0.5]]), f32([[-0.5]]), f32([[1]]), f32([[-1]]), f32([[1]]), f32([[0.5]]),
    f32([0.1]), f32([0.3]), f32([0.2]), None, None, f32([-0.4]),
]  # fmt: skip
_G, _G_LINEAR = _gru([1.0, 2.0], 0.5, False), _gru([1.0, 2.0], 0.5, True)
_G_REVERSE = _gru([2.0, 1.0], 0.0, False)

SAMPLES = [
    Sample(
        "Lstm",
        [*_GATES, f32([[0.5]]), f32([[-0.5]]), *_NONE, *_INPUT_GATE],
        [f32(_FORWARD).reshape(1, 2, 1), f32([[_C]]), f32([[_FORWARD[-1]]])],
    ),
    Sample(
        "Lstm",
        [*_GATES, None, None, *_NONE, *_INPUT_GATE],
        [f32(_REVERSE[::-1]).reshape(1, 2, 1), f32([[_C_REVERSE]]), f32([[_REVERSE[-1]]])],
        {"direction": 1},
        id="-reverse",
    ),
    Sample(
        "Lstm",
        [_X.reshape(2, 1, 1), *_GATES[1:]],
        [f32(_COUPLED).reshape(2, 1, 1), f32([[_C_COUPLED]]), f32([[_COUPLED[-1]]])],
        {"time_major": True},
        id="-coupled_time_major",
    ),
    Sample("Gru", [*_GRU, f32([[0.5]])], [f32(_G).reshape(1, 2, 1), f32([[_G[-1]]])]),
    Sample(
        "Gru",
        [*_GRU, f32([[0.5]])],
        [f32(_G_LINEAR).reshape(1, 2, 1), f32([[_G_LINEAR[-1]]])],
        {"linear_before_reset": True},
        id="-linear_before_reset",
    ),
    Sample(
        "Gru",
        [_X.reshape(2, 1, 1), *_GRU[1:]],
        [f32(_G_REVERSE[::-1]).reshape(2, 1, 1), f32([[_G_REVERSE[-1]]])],
        {"direction": 1, "time_major": True},
        id="-reverse_time_major",
    ),
]
