# SPDX-License-Identifier: Apache-2.0
"""Quantization rules as records; each op names one."""

from __future__ import annotations

from hexforge.ir import DType, QuantRule, ScaleOffset

OWN = QuantRule()
"""The output has an encoding of its own."""

SAME = QuantRule("input")
"""Data movement: the output has the input's encoding, the integers are moved."""

SAME_FIRST = QuantRule("input", data=(0,))
"""Data movement where only the first input is data (the rest are indices)."""

NEVER = QuantRule("never")
"""The output is not real-valued: indices, booleans, shapes."""

SELECT = QuantRule(data=(1, 2))
"""Inputs 1 and 2 are data, input 0 a condition."""

# reference, section 2.2: 16-bit rules of the QNN EP
SIGMOID = QuantRule(fixed={DType.UINT16: ScaleOffset(1 / 65536, 0), DType.INT16: ScaleOffset(1 / 32768, 0)})
TANH = QuantRule(fixed={DType.UINT16: ScaleOffset(1 / 32768, -32768), DType.INT16: ScaleOffset(1 / 32768, 0)})
