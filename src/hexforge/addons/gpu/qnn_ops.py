# SPDX-License-Identifier: Apache-2.0
"""Which ops QNN's own GPU backend has, by Qualcomm's documentation.

The pages are "GPU Backend Op Definition Supplement" of AI Engine Direct 2.25, which lists every op that the backend
has, and "QNN GPU Op Support Revision History" up to 2.46 (docs.qualcomm.com, 80-63442-10). What they say of ranks,
types and single parameters is not followed here: releases widen it, and a phone's validator has the last word.
"""

from __future__ import annotations

_SUPPLEMENT = """
Argmax Argmin Batchnorm BatchToSpace Cast ChannelShuffle Concat Conv2d DepthToSpace DepthWiseConv2d Dequantize
ElementWiseAbs ElementWiseAdd ElementWiseAnd ElementWiseCos ElementWiseDivide ElementWiseEqual ElementWiseExp
ElementWiseFloor ElementWiseFloorDiv ElementWiseGreater ElementWiseGreaterEqual ElementWiseLess ElementWiseLessEqual
ElementWiseLog ElementWiseMaximum ElementWiseMinimum ElementWiseMultiply ElementWiseNeg ElementWiseNeuron
ElementWiseNot ElementWiseNotEqual ElementWiseOr ElementWisePower ElementWiseRound ElementWiseRsqrt ElementWiseSelect
ElementWiseSin ElementWiseSquaredDifference ElementWiseSquareRoot ElementWiseSubtract Elu ExpandDims FullyConnected
Gather Gelu GroupNorm HardSwish InstanceNorm L2Norm L2Pool2d LayerNorm LogSoftmax Lrn Lstm MatMul Pack Pad PoolAvg2d
PoolMax2d Prelu ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Relu1 Relu6 ReluMinMax Reshape ResizeBilinear
ResizeNearestNeighbor RmsNorm RoiAlign Sigmoid Softmax SpaceToBatch SpaceToDepth Split Squeeze StridedSlice Tanh Tile
TopK Transpose TransposeConv2d UnPack
"""
_HISTORY = {
    "CumulativeSum": "2.38",
    "ElementWiseSign": "2.26",
    "ElementWiseSoftplus": "2.32",
    "GatherNd": "2.38",
    "GridSample": "2.34",
    "Resize": "2.28, cubic 2.46",
    "ScatterElements": "up to 2.26",
    "ScatterNd": "up to 2.26",
}
"""Ops that came later, with the release."""

SOURCES: dict[str, str] = {
    **dict.fromkeys(_SUPPLEMENT.split(), "supplement"),
    "ElementWiseCeil": "supplement, as ElementWiseUnary",
    "ReduceSumSquare": "supplement, as ElementWiseMultiply and ReduceSum, which the EP makes of ReduceL2",
    **{name: f"revision history, {release}" for name, release in _HISTORY.items()},
}
"""Op -> where the documentation says that QNN's GPU has it."""

EXCLUDED: dict[str, str] = {
    "ElementWiseAsin": "ElementWiseUnary: ASIN not supported",
    "ElementWiseAtan": "ElementWiseUnary: ATAN not supported",
    "ElementWiseFmod": "ElementWiseBinary: FMOD not supported",
    "ElementWiseMod": "ElementWiseBinary: MOD not supported",
    "ElementWiseUnary": "RECIPROCAL not supported; the other operations are ops of their own here",
    "ElementWiseXor": "ElementWiseBinary: XOR not supported",
    "IsNan": "came for CPU and HTP (op set 2.5)",
    "RandomUniformLike": "came for CPU and HTP (op set 2.6)",
    "Stft": "came for CPU and HTP (op set 2.6)",
}
"""Ops of which the documentation says in words that QNN's GPU has them not; the others are just not listed."""
