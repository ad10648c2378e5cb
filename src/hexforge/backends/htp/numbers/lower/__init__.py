# SPDX-License-Identifier: Apache-2.0
"""Lowering: what each QNN op becomes as native steps, one module per family. Importing this fills the registry."""

from hexforge.backends.htp.numbers.lower import (  # noqa: F401
    detection,
    elementwise,
    index,
    layout,
    logic,
    move,
    recurrent,
    reduce,
    resize,
    window,
)
from hexforge.backends.htp.numbers.lower.products import constant_weights, wide  # noqa: F401
