# SPDX-License-Identifier: Apache-2.0
"""The text of QnnOpDef.h, which tools/qnn_headers.py writes: ops, their parameters and these' values, from the ops."""

from __future__ import annotations

import re

from hexforge.addons.capi.library import include_path
from hexforge.ops import BUILT_IN

HEADER = include_path() / "QnnOpDef.h"
_HEAD = """// SPDX-License-Identifier: Apache-2.0
// Names of the ops that hexforge has, and of their parameters: written by tools/qnn_headers.py from the table of ops.
#ifndef QNNOPDEF_H
#define QNNOPDEF_H

#define QNN_OP_PACKAGE_NAME_QTI_AISW "qti.aisw"
"""


_GATES = ("input_gate", "forget_gate", "cell_gate", "output_gate", "hidden_state")
_ALSO_NAMED = {
    "L2Norm": ("axis",),
    "Lstm": (*(f"{gate}_qscale" for gate in _GATES), "hidden_state_offset"),
    "ResizeBilinear": ("antialias",),
}
"""Parameters that callers name and the table of ops has by another name, or only at what asks for nothing."""


def upper(name: str) -> str:
    """Conv2d is CONV_2D, ElementWiseAdd is ELEMENT_WISE_ADD, pad_amount is PAD_AMOUNT."""
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[a-z])(?=\d+[a-z]\b)", "_", name)
    return parted.upper()


def header() -> str:
    """The text of the header."""
    lines = [_HEAD]
    for op in sorted(BUILT_IN, key=lambda each: each.name):
        own = f"QNN_OP_{upper(op.name)}"
        lines.append(f'#define {own} "{op.name}"\n')
        for name in _ALSO_NAMED.get(op.name, ()):
            lines.append(f'#define {own}_PARAM_{upper(name)} "{name}"\n')
        for param in op.params:
            lines.append(f'#define {own}_PARAM_{upper(param.name)} "{param.name}"\n')
            for choice, number in (param.choices or {}).items():
                lines.append(f"#define {own}_{upper(param.name)}_{upper(choice)} {number}\n")
    return "".join([*lines, "\n#endif\n"])
