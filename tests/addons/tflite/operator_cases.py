# SPDX-License-Identifier: Apache-2.0
"""The rows: every builtin operator that is translated, with shapes, options and types."""

from __future__ import annotations

from typing import Any

from tests.addons.tflite.cases import (
    BOOL,
    FLOAT,
    INT8,
    INT16,
    INT32,
    INT64,
    NUMBERS,
    QUANTIZED,
    REAL,
    SAME,
    UINT8,
    Case,
    Given,
    State,
    Value,
)

_X = Value((2, 5, 7, 3))
_ROW = Value((3,))
_POSITIVE = Value((2, 5, 7, 3), 0.1, 2.0)
_WIDE = Value((2, 5, 7, 3), -9.0, 9.0)
_WHOLE = Value((2, 5, 7, 3), 1.0, 9.0)
_ANY = Value((2, 5, 7, 3), -1.0, 1.0)
_INTEGERS = (INT32, INT64)
_UNIT = {INT8: (1 / 256, -128), UINT8: (1 / 256, 0), INT16: (1 / 32768, 0)}
_SIGNED_UNIT = {INT8: (1 / 128, 0), UINT8: (1 / 128, 128), INT16: (1 / 32768, 0)}

_UNARY = [
    Case(name, (value,), types=types)
    for name, value, types in (
        ("ABS", _WIDE, (FLOAT, INT8, INT16, INT32)),
        ("CEIL", _WIDE, (FLOAT,)),
        ("COS", _WIDE, (FLOAT,)),
        ("ELU", _WIDE, (FLOAT, INT8)),
        ("EXP", _X, (FLOAT, INT8, INT16)),
        ("FLOOR", _WIDE, (FLOAT,)),
        ("HARD_SWISH", _WIDE, (FLOAT, INT8, UINT8)),
        ("LOG", _POSITIVE, (FLOAT, INT8)),
        ("LOGICAL_NOT", _ANY, (BOOL,)),
        ("NEG", _WIDE, (FLOAT, INT32, INT64)),
        ("RELU", _WIDE, REAL),
        ("RELU6", _WIDE, (FLOAT, INT8, UINT8)),
        ("RELU_0_TO_1", _WIDE, (FLOAT, INT8, UINT8)),
        ("RELU_N1_TO_1", _WIDE, (FLOAT, INT8, UINT8)),
        ("ROUND", _WIDE, (FLOAT,)),
        ("RSQRT", _POSITIVE, (FLOAT, INT8)),
        ("SIGN", _WIDE, (FLOAT, INT32)),
        ("SIN", _WIDE, (FLOAT,)),
        ("SQRT", _POSITIVE, (FLOAT, INT8)),
        ("SQUARE", _WIDE, (FLOAT,)),
        ("ZEROS_LIKE", _WIDE, (FLOAT, INT32, INT64)),
    )
]
_BINARY = [
    Case(name, (left, right), {"activation": activation} if activation is not None else {}, types=types)
    for name, types, activations, first, second in (
        ("ADD", NUMBERS, (0, 1, 3), (2, 5, 7, 3), (2, 5, 7, 3)),
        ("ADD", NUMBERS, (0,), (2, 5, 7, 3), (3,)),
        ("SUB", NUMBERS, (0, 1), (2, 5, 7, 3), (1, 5, 1, 3)),
        ("MUL", NUMBERS, (0, 1), (2, 5, 7, 3), (2, 5, 7, 3)),
        ("MUL", REAL, (0,), (5, 3), (3,)),
        ("SQUARED_DIFFERENCE", (FLOAT, INT8, INT32), (None,), (2, 5, 7, 3), (2, 5, 7, 3)),
    )
    for activation in activations
    for left, right in ((Value(first, -3.0, 3.0), Value(second, -2.0, 2.0)),)
]
_LARGEST = [
    Case(name, (Value(first), Value(second)), types=NUMBERS, scale=SAME)
    for name, first, second in (("MAXIMUM", (2, 5, 7, 3), (2, 5, 7, 3)), ("MINIMUM", (2, 5, 7, 3), (3,)))
]
_DIVISIONS = [
    Case("DIV", (_X, _POSITIVE), {"activation": 0}, types=(FLOAT, UINT8)),
    Case("DIV", (Given([[7, -7, 9]], INT32, True), Given([[2, 2, 4]])), {"activation": 0}, types=(INT32,)),
    Case("FLOOR_DIV", (_WIDE, _POSITIVE), types=(FLOAT,)),
    Case("FLOOR_DIV", (_WHOLE, Given([2, -3, 4])), types=(INT32,)),
    Case("FLOOR_MOD", (_WIDE, _POSITIVE), types=(FLOAT,)),
    Case("FLOOR_MOD", (_WHOLE, Given([2, -3, 4])), types=(INT32,)),
    Case("POW", (_POSITIVE, _X), types=(FLOAT,)),
    Case("ATAN2", (_X, Value((2, 5, 7, 3), -2, 2)), types=(FLOAT,)),
    Case("BITWISE_XOR", (_WHOLE, _WHOLE), types=(INT32,)),
    Case("RIGHT_SHIFT", (Value((3, 4), -99, 99), Value((3, 4), 0, 3)), types=(INT32,)),
    Case("ADD_N", (_X, _X, _X), types=(FLOAT, INT32)),
]
_LOGICAL = [
    *(Case(name, (_ANY, _ANY), types=(BOOL,)) for name in ("LOGICAL_AND", "LOGICAL_OR")),
    *(
        Case(
            name,
            (Value((2, 5, 3), -2, 2), Value((2, 5, 3), -2, 2)),
            types=(FLOAT, INT8, UINT8, INT32, INT64),
            outputs=(BOOL,),
        )
        for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
    ),
    Case("SELECT", (Given([[True, False, True]], BOOL, True), Value((1, 3)), Value((1, 3))), types=(FLOAT, INT32)),
    Case("SELECT", (Given([True, False], BOOL, True), Value((2, 3)), Value((2, 3))), types=(FLOAT,)),
    Case("SELECT_V2", (Given([[True], [False]], BOOL, True), Value((2, 3)), Value((1, 3))), types=(FLOAT, INT32)),
]
_ACTIVATIONS = [
    Case("LOGISTIC", (_WIDE,), scale=_UNIT),
    Case("TANH", (_WIDE,), scale=_SIGNED_UNIT),
    Case("GELU", (_WIDE,), {"approximate": False}, types=(FLOAT, INT8)),
    Case("GELU", (_WIDE,), {"approximate": True}, types=(FLOAT, INT8)),
    Case("LEAKY_RELU", (_WIDE,), {"alpha": 0.2}),
    Case("PRELU", (_WIDE, Value((1, 1, 3), -0.5, 0.5, constant=True)), types=(FLOAT, INT8, UINT8)),
    Case("SOFTMAX", (Value((2, 9), -4, 4),), {"beta": 1.0}, types=(FLOAT, INT8, UINT8, INT16), scale=_UNIT),
    Case("SOFTMAX", (Value((1, 3, 2, 9), -4, 4),), {"beta": 2.0}, types=(FLOAT, INT8), scale=_UNIT),
    Case("LOG_SOFTMAX", (Value((2, 9), -4, 4),), types=(FLOAT, INT8), scale={INT8: (16 / 256, 127)}),
    Case("FAKE_QUANT", (_X,), {"min": -0.7, "max": 0.9, "bits": 8, "narrow": False}, types=(FLOAT,)),
]
_CONVOLUTIONS = [
    Case(
        "CONV_2D",
        (Value((1, 9, 8, 3)), Value((5, *window, 3), -0.5, 0.5, True, 0), Value((5,), -0.3, 0.3, True, bias=True)),
        {
            "padding": padding,
            "stride_w": stride,
            "stride_h": stride,
            "activation": activation,
            "dilation_w": dilation,
            "dilation_h": dilation,
        },
        label=f"{window} padding {padding} stride {stride} activation {activation} dilation {dilation}",
    )
    for window, padding, stride, activation, dilation in (
        ((3, 3), 0, 1, 0, 1),
        ((3, 3), 1, 1, 0, 1),
        ((3, 3), 0, 2, 1, 1),
        ((1, 1), 1, 1, 3, 1),
        ((2, 3), 0, 2, 0, 1),
        ((3, 2), 0, 1, 0, 2),
        ((5, 5), 1, 3, 3, 1),
    )
]
_DEPTHWISE = [
    Case(
        "DEPTHWISE_CONV_2D",
        (
            Value((1, 9, 8, 4)),
            Value((1, 3, 3, 4 * multiplier), -0.5, 0.5, True, 3),
            Value((4 * multiplier,), -0.3, 0.3, True, bias=True),
        ),
        {
            "padding": padding,
            "stride_w": stride,
            "stride_h": stride,
            "multiplier": multiplier,
            "activation": activation,
            "dilation_w": dilation,
            "dilation_h": dilation,
        },
        label=f"padding {padding} stride {stride} times {multiplier} activation {activation} dilation {dilation}",
    )
    for padding, stride, multiplier, activation, dilation in (
        (0, 1, 1, 0, 1),
        (1, 1, 1, 3, 1),
        (0, 2, 1, 1, 1),
        (0, 1, 2, 0, 1),
        (1, 1, 1, 0, 2),
    )
]
_PRODUCTS = [
    *_CONVOLUTIONS,
    *_DEPTHWISE,
    Case(
        "CONV_2D",
        (Value((2, 6, 6, 4)), Value((6, 3, 3, 2), -0.5, 0.5, True, 0), Value((6,), -1, 1, True, bias=True)),
        {"padding": 0, "stride_w": 1, "stride_h": 1, "activation": 0},
        types=(FLOAT, INT8),
        label="two groups",
    ),
    Case(
        "CONV_2D",
        (Value((1, 5, 5, 2)), Value((3, 3, 3, 2)), Value((3,))),
        {"padding": 0, "stride_w": 1, "stride_h": 1, "activation": 0},
        types=(FLOAT,),
        label="computed filter",
    ),
    *(
        Case(
            "TRANSPOSE_CONV",
            (
                Given([1, size, size, 4]),
                Value((4, 3, 3, 3), -0.5, 0.5, True, 0),
                Value((1, 4, 4, 3)),
                Value((4,), -0.3, 0.3, True),
            ),
            {"padding": padding, "stride_w": 2, "stride_h": 2, "activation": 0},
            types=(FLOAT,),
        )
        for size, padding in ((8, 0), (9, 1), (7, 0))
    ),
    *(
        Case(
            "FULLY_CONNECTED",
            (Value(shape), Value((5, 12), -0.5, 0.5, True), Value((5,), -0.3, 0.3, True, bias=True)),
            {"activation": activation, "weights_format": 0, "keep_dims": keep},
            types=(FLOAT, INT8, UINT8, INT16),
        )
        for shape, activation, keep in (((2, 12), 0, False), ((1, 2, 2, 3), 1, False), ((2, 3, 12), 0, True))
    ),
    Case(
        "FULLY_CONNECTED",
        (Value((2, 12)), Value((5, 12), constant=True), None),
        {"activation": 3, "weights_format": 0, "keep_dims": False},
        types=(FLOAT, INT8),
        label="without bias",
    ),
    *(
        Case("BATCH_MATMUL", (Value(left), Value(right)), {"adj_x": x, "adj_y": y}, types=(FLOAT, INT8, INT16))
        for left, right, x, y in (
            ((2, 3, 4), (2, 4, 5), False, False),
            ((2, 3, 4), (2, 5, 4), False, True),
            ((1, 2, 4, 3), (1, 2, 4, 5), True, False),
            ((2, 1, 3, 4), (4, 5), False, False),
        )
    ),
    Case(
        "CONV_3D",
        (Value((1, 5, 6, 7, 2)), Value((3, 3, 3, 2, 4), constant=True), Value((4,), constant=True)),
        {"padding": 0, "stride_d": 1, "stride_w": 2, "stride_h": 1, "activation": 1},
        types=(FLOAT,),
    ),
    Case(
        "CONV_3D_TRANSPOSE",
        (
            Given([1, 4, 6, 6, 2]),
            Value((2, 3, 3, 2, 3), constant=True),
            Value((1, 2, 3, 3, 3)),
            Value((2,), constant=True),
        ),
        {"padding": 0, "stride_d": 2, "stride_w": 2, "stride_h": 2, "activation": 0},
        types=(FLOAT,),
    ),
    Case("EMBEDDING_LOOKUP", (Given([1, 0, 3], INT32, True), Value((4, 3, 2), constant=True)), types=(FLOAT,)),
]
_REDUCTIONS = [
    *(
        Case(name, (Value((2, 5, 7, 3), 0.5, 1.5), Given(axes)), {"keep_dims": keep}, types=types)
        for name, types in (
            ("MEAN", (FLOAT, INT8, UINT8, INT16, INT32)),
            ("SUM", (FLOAT, INT8, UINT8, INT32)),
            ("REDUCE_PROD", (FLOAT,)),
        )
        for axes, keep in (([1, 2], True), ([1, 2], False), ([-1], False), ([0, 3], True))
    ),
    *(
        Case(name, (_X, Given(axes)), {"keep_dims": keep}, types=NUMBERS, scale=SAME)
        for name in ("REDUCE_MAX", "REDUCE_MIN")
        for axes, keep in (([1, 2], True), ([-1], False))
    ),
    *(Case(name, (_ANY, Given([1])), {"keep_dims": False}, types=(BOOL,)) for name in ("REDUCE_ANY", "REDUCE_ALL")),
    *(
        Case(
            name,
            (_WIDE, Given([axis])),
            {"output_type": 2 if out == INT32 else 4},
            types=(FLOAT, INT8, UINT8, INT32),
            outputs=(out,),
        )
        for name in ("ARG_MAX", "ARG_MIN")
        for axis, out in ((3, INT32), (1, INT64), (-1, INT32))
    ),
    *(
        Case(
            name,
            (Value((1, 8, 9, 3)),),
            {
                "padding": padding,
                "stride_w": stride,
                "stride_h": stride,
                "filter_w": 3,
                "filter_h": 2,
                "activation": activation,
            },
            types=types,
            scale=SAME,
        )
        for name, types in (("AVERAGE_POOL_2D", REAL), ("MAX_POOL_2D", REAL), ("L2_POOL_2D", (FLOAT,)))
        for padding, stride, activation in ((0, 1, 0), (1, 2, 0), (0, 2, 1))
    ),
    Case("L2_NORMALIZATION", (_X,), {"activation": 0}, types=(FLOAT, INT8, UINT8), scale=_SIGNED_UNIT),
    Case(
        "LOCAL_RESPONSE_NORMALIZATION",
        (Value((1, 3, 3, 8)),),
        {"radius": 2, "bias": 1.0, "alpha": 0.5, "beta": 0.75},
        types=(FLOAT,),
    ),
    *(
        Case("CUMSUM", (Value((2, 5, 3)), Given([1])), {"exclusive": a, "reverse": b}, types=(FLOAT, INT32))
        for a, b in ((False, False), (True, False), (False, True))
    ),
    Case("TOPK_V2", (_WIDE, Given(2)), types=(FLOAT, INT8, UINT8, INT32), outputs=(None, INT32), scale=SAME),
    Case("SEGMENT_SUM", (Value((4, 3)), Given([0, 0, 1, 2])), types=(FLOAT, INT32)),
    *(
        Case(f"UNSORTED_SEGMENT_{name}", (Value((4, 3), -3, 3), Given([0, 2, 0, 2]), Given(3)), types=(FLOAT, INT32))
        for name in ("SUM", "PROD", "MAX", "MIN")
    ),
]
_ALL = (FLOAT, INT8, UINT8, INT16, INT32, INT64, BOOL)
_MOVES = [
    Case("RESHAPE", (_X, Given([2, 35, 3])), {}, types=_ALL, scale=SAME),
    Case("RESHAPE", (_X, Given([-1, 21])), {}, types=(FLOAT,), scale=SAME),
    *(Case("TRANSPOSE", (_X, Given(order)), types=_ALL, scale=SAME) for order in ([0, 3, 1, 2], [3, 1, 0, 2])),
    *(
        Case("CONCATENATION", (_X, _X), {"axis": axis, "activation": 0}, types=NUMBERS, scale=SAME)
        for axis in (3, 1, -1)
    ),
    *(
        Case("PACK", (Value((2, 3)), Value((2, 3))), {"count": 2, "axis": axis}, types=NUMBERS, scale=SAME)
        for axis in (0, 1, -1)
    ),
    *(
        Case(
            "UNPACK",
            (Value((2, 3)),),
            {"count": 3, "axis": 1},
            types=(FLOAT, INT8, UINT8, INT32, BOOL),
            scale=SAME,
            outputs=(None,) * 3,
        )
        for _ in (0,)
    ),
    *(
        Case(
            "SPLIT",
            (Given(axis), Value((2, 4, 6))),
            {"count": 2},
            types=(FLOAT, INT8, UINT8, INT16, INT32),
            scale=SAME,
            outputs=(None, None),
        )
        for axis in (1, -1)
    ),
    Case(
        "SPLIT_V",
        (Value((2, 6)), Given([1, 2, -1]), Given(1)),
        {"count": 3},
        types=(FLOAT, INT8, UINT8, INT16, INT32),
        scale=SAME,
        outputs=(None,) * 3,
    ),
    *(
        Case("SLICE", (_X, Given(begin), Given(size)), types=_ALL, scale=SAME)
        for begin, size in (([0, 1, 2, 0], [2, 3, 4, 2]), ([1, 0, 0, 1], [-1, -1, 5, -1]))
    ),
    *(
        Case(
            "STRIDED_SLICE",
            (_X, Given(begin), Given(end), Given(step)),
            {
                "begin_mask": masks[0],
                "end_mask": masks[1],
                "ellipsis": masks[2],
                "new_axis": masks[3],
                "shrink": masks[4],
            },
            types=types,
            scale=SAME,
        )
        for begin, end, step, masks, types in (
            ([0, 1, 2, 0], [2, 5, 7, 3], [1, 2, 3, 1], (0, 0, 0, 0, 0), _ALL),
            ([1, 1], [2, 4], [1, 1], (0, 2, 0, 0, 1), (FLOAT, INT8)),
            ([0, 4, 6, 2], [2, -9, 0, 0], [1, -1, -2, -1], (1, 2, 0, 0, 0), (FLOAT,)),
            ([0, 0, 1], [0, 0, 2], [1, 1, 1], (0, 0, 1, 2, 0), (FLOAT,)),
            ([-1, 0], [0, 2], [1, 1], (0, 0, 0, 0, 1), (FLOAT,)),
        )
    ),
    *(
        Case(
            "STRIDED_SLICE",
            (_X, Given(begin, INT32, True), Given(end, INT32, True), Given([1, 2])),
            {"begin_mask": masks[0], "end_mask": masks[1], "shrink": masks[2]},
            types=(FLOAT,),
            scale=SAME,
            label="computed",
        )
        for begin, end, masks in (
            ([1, 1], [2, 4], (0, 0, 0)),
            ([1, 0], [0, 3], (2, 1, 0)),
            ([-1, 1], [0, 5], (0, 0, 1)),
        )
    ),
    *(Case("PAD", (_X, Given([[0, 0], [1, 2], [0, 3], [1, 0]])), types=NUMBERS, scale=SAME) for _ in (0,)),
    Case("PADV2", (_X, Given([[0, 0], [1, 2], [0, 3], [0, 0]]), Value((), 0.5, 0.6, True)), types=(FLOAT, INT32)),
    *(
        Case(
            "MIRROR_PAD",
            (_X, Given([[0, 0], [1, 2], [2, 3], [0, 0]])),
            {"mode": mode},
            types=(FLOAT, INT8, INT32),
            scale=SAME,
        )
        for mode in (0, 1)
    ),
    *(
        Case("GATHER", (_X, Given([1, 0, 1], INT32, computed)), {"axis": axis, "batch": 0}, types=_ALL, scale=SAME)
        for axis, computed in ((0, False), (1, True), (3, False))
    ),
    Case(
        "GATHER", (Value((2, 5, 3)), Given([[1, 0], [2, 4]])), {"axis": 1, "batch": 1}, types=(FLOAT, INT8), scale=SAME
    ),
    Case("GATHER_ND", (_X, Given([[0, 1], [1, 4]])), types=(FLOAT, INT8, INT32), scale=SAME),
    Case("SCATTER_ND", (Given([[4], [1], [4]]), Value((3, 2)), Given([6, 2])), types=(FLOAT, INT32)),
    Case(
        "SPARSE_TO_DENSE",
        (Given([[0, 1], [2, 0]]), Given([4, 5]), Value((2,)), Value((), constant=True)),
        types=(FLOAT, INT32),
    ),
    Case(
        "DYNAMIC_UPDATE_SLICE",
        (Value((4, 5)), Value((2, 3)), Given([1, 1], INT32, True)),
        types=(FLOAT, INT8, INT32),
        scale=SAME,
    ),
    Case("TILE", (_X, Given([1, 2, 1, 3])), types=(FLOAT, INT8, INT32, BOOL), scale=SAME),
    *(Case("EXPAND_DIMS", (_X, Given(axis)), types=_ALL, scale=SAME) for axis in (0, -1)),
    *(Case("SQUEEZE", (Value((1, 3, 1, 2)),), {"axes": axes}, types=_ALL, scale=SAME) for axes in ([0], [2], [-2, 0])),
    Case("BROADCAST_TO", (Value((1, 3)), Given([2, 4, 3])), types=(FLOAT, INT8, INT32, BOOL), scale=SAME),
    Case("BROADCAST_ARGS", (Given([1, 3]), Given([4, 1])), types=(FLOAT,), outputs=(INT32,)),
    Case("SHAPE", (_X,), {"output_type": 2}, types=(FLOAT, INT8), outputs=(INT32,)),
    Case("RANK", (_X,), types=(FLOAT, INT8), outputs=(INT32,)),
    Case("RANGE", (Given(2, FLOAT), Given(9, FLOAT), Given(2, FLOAT)), types=(FLOAT,)),
    Case("FILL", (Given([2, 3]), Value((), 0.5, 0.7)), types=(FLOAT, INT32)),
    *(
        Case(
            "ONE_HOT",
            (Given([1, 0, 3], INT32, True), Given(4), Value((), 1, 1, True), Value((), 0, 0, True)),
            {"axis": axis},
            types=(FLOAT, INT32),
        )
        for axis in (-1, 0)
    ),
    *(
        Case("REVERSE_V2", (_X, Given([axis])), types=(FLOAT, INT8, UINT8, INT16, INT32, INT64, BOOL), scale=SAME)
        for axis in (1, 3)
    ),
    Case("REVERSE_SEQUENCE", (Value((4, 2, 3)), Given([2, 4])), {"time": 0, "batch": 1}, types=(FLOAT, INT32)),
    Case(
        "SPACE_TO_BATCH_ND",
        (Value((1, 4, 6, 3)), Given([2, 3]), Given([[0, 0], [2, 1]])),
        types=(FLOAT, INT8, UINT8),
        scale=SAME,
    ),
    Case(
        "BATCH_TO_SPACE_ND",
        (Value((6, 2, 3, 2)), Given([2, 3]), Given([[0, 1], [2, 1]])),
        types=(FLOAT, INT8, UINT8),
        scale=SAME,
    ),
    Case("WHERE", (_ANY,), types=(BOOL, FLOAT), outputs=(INT64,)),
    Case("UNIQUE", (Value((9,), 0, 3),), {"index_type": 2}, types=(FLOAT, INT32), outputs=(None, INT32)),
    Case("MATRIX_DIAG", (Value((2, 3)),), types=(FLOAT, INT32)),
    *(
        Case("MATRIX_SET_DIAG", (Value((2, *shape)), Value((2, 3))), types=(FLOAT, INT32))
        for shape in ((3, 3), (3, 4), (4, 3))
    ),
    Case("DEPTH_TO_SPACE", (Value((1, 2, 3, 12)),), {"block": 2}, types=(FLOAT, INT8, UINT8, INT32), scale=SAME),
    Case("SPACE_TO_DEPTH", (Value((1, 4, 6, 3)),), {"block": 2}, types=(FLOAT, INT8, UINT8, INT32), scale=SAME),
]
_RESIZES = [
    Case(
        name,
        (Value((1, 4, 5, 2)), Given(size)),
        {"align_corners": align, "half_pixel": half},
        types=(FLOAT, INT8, UINT8, INT16),
        scale=SAME,
    )
    for name in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
    for size in ([8, 10], [3, 7], [2, 2])
    for align, half in ((False, False), (True, False), (False, True))
] + [
    Case(
        name, (Value((1, 4, 5, 2)), Given([7, 9], INT32, True)), {"half_pixel": True}, types=(FLOAT,), label="computed"
    )
    for name in ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")
]
_CASTS = [
    Case("CAST", (Value((3, 4), 0 if other == UINT8 else -5, 5),), types=(kind,), outputs=(other,))
    for kind in (FLOAT, INT32, INT64, BOOL)
    for other in (FLOAT, INT32, INT64, BOOL, INT8, UINT8)
    if kind != other
]
_QUANTIZE = [
    Case("DEQUANTIZE", (_WIDE,), types=QUANTIZED, outputs=(FLOAT,)),
    *(Case("QUANTIZE", (Value((2, 3), -4, 4),), types=(kind,), scale={kind: (0.05, 0)}) for kind in (INT8, INT16)),
]
_HELD = {"activation": 4, "cell_clip": 0.0, "proj_clip": 0.0}


def _lstm(
    cells: int = 4, outputs: int = 4, coupled: bool = False, sees_cell: bool = False, norms: bool = False
) -> tuple[Value | State | None, ...]:
    """Weights, biases and states of an LSTM of 3 inputs, with a projection where it has fewer outputs than cells."""

    def gates(*shape: int) -> list[Value | None]:
        return [None if coupled and gate == 0 else Value(shape, constant=True) for gate in range(4)]

    peepholes = [
        None if not sees_cell or (coupled and gate == 0) else Value((cells,), constant=True) for gate in range(3)
    ]
    projection = [Value((outputs, cells), constant=True), Value((outputs,), constant=True)]
    return (
        *gates(cells, 3), *gates(cells, outputs), *peepholes, *gates(cells),
        *(projection if outputs != cells else (None, None)),
    ) + ((State((2, outputs)), State((2, cells))) + (tuple(gates(cells)) if norms else ()))  # fmt: skip


_LSTMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "coupled": {"coupled": True},
    "peepholes": {"sees_cell": True},
    "coupled peepholes": {"coupled": True, "sees_cell": True},
    "projected": {"outputs": 3},
    "norms": {"norms": True},
    "norms coupled projected": {"norms": True, "coupled": True, "outputs": 3, "sees_cell": True},
}
_SEQUENCE = {True: Value((6, 2, 3), -2, 2), False: Value((2, 6, 3), -2, 2)}
_RNN = (Value((4, 3), constant=True), Value((4, 4), constant=True), Value((4,), constant=True))
_RECURRENT = [
    *(
        Case(
            "UNIDIRECTIONAL_SEQUENCE_LSTM",
            (_SEQUENCE[time_major], *_lstm(**how)),
            {**_HELD, "time_major": time_major, **clips},
            types=(FLOAT,),
            label=f"{name}, {clips}",
        )
        for name, how in _LSTMS.items()
        for time_major in (False, True)
        for clips in ({}, {"cell_clip": 0.3, "proj_clip": 0.2})
    ),
    *(
        Case("LSTM", (Value((2, 3)), *_lstm(**how)), {**_HELD, "kernel": 0}, types=(FLOAT,), label=name)
        for name, how in _LSTMS.items()
    ),
    Case(
        "LSTM",
        (Value((2, 3)), Value((2, 4)), Value((16, 7), constant=True), Value((16,), constant=True), Value((2, 4))),
        {**_HELD, "kernel": 1},
        types=(FLOAT,),
        outputs=(None, None, None, None),
        shapes=((2, 4), (2, 4), (2, 7), (2, 16)),
        label="basic",
    ),
    *(
        Case(
            "BIDIRECTIONAL_SEQUENCE_LSTM",
            (_SEQUENCE[time_major], *_lstm(**how)[:17], *_lstm(**how)[:17], *(_lstm(**how)[17:] * 2), *(None,) * 9),
            {**_HELD, "time_major": time_major, "merge": merge},
            types=(FLOAT,),
            outputs=(None,) if merge else (None, None),
            label=name,
        )
        for name, how in (("plain", {}), ("peepholes", {"sees_cell": True}))
        # LiteRT reads memory that nothing wrote where a batch that comes first is merged
        for time_major, merge in ((False, False), (True, False), (True, True))
    ),
    *(
        Case(
            "UNIDIRECTIONAL_SEQUENCE_RNN",
            (_SEQUENCE[time_major], *_RNN, State((2, 4))),
            {"time_major": time_major, "activation": activation},
            types=(FLOAT,),
        )
        for time_major in (False, True)
        for activation in (1, 4)
    ),
    *(Case("RNN", (Value((2, 3)), *_RNN, State((2, 4))), {"activation": a}, types=(FLOAT,)) for a in (0, 1, 4)),
    *(
        Case(
            "BIDIRECTIONAL_SEQUENCE_RNN",
            (_SEQUENCE[time_major], *_RNN, State((2, 4)), *_RNN, State((2, 4)), None, None, None),
            {"time_major": time_major, "activation": 4, "merge": merge},
            types=(FLOAT,),
            outputs=(None,) if merge else (None, None),
        )
        for time_major in (False, True)
        for merge in (False, True)
    ),
    *(
        Case(
            "SVDF",
            (
                Value((2, 3)),
                Value((4 * rank, 3), constant=True),
                Value((4 * rank, 5), constant=True),
                Value((4,), constant=True) if biased else None,
                State((2, 5 * 4 * rank)),
            ),
            {"rank": rank, "activation": activation},
            types=(FLOAT,),
        )
        for rank, biased, activation in ((1, True, 0), (2, True, 1), (2, False, 0))
    ),
]
CASES = (
    *_UNARY,
    *_BINARY,
    *_LARGEST,
    *_DIVISIONS,
    *_LOGICAL,
    *_ACTIVATIONS,
    *_PRODUCTS,
    *_REDUCTIONS,
    *_MOVES,
    *_RESIZES,
    *_CASTS,
    *_QUANTIZE,
    *_RECURRENT,
)
