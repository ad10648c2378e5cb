# SPDX-License-Identifier: Apache-2.0
"""Lowering: what each QNN op becomes as native steps, one module per family. Importing this fills the registry."""

from hexforge.backends.htp.numbers.lower import (  # noqa: F401
    moves,
    moves_gather,
    moves_layout,
    pointwise,
    pointwise_logic,
    reductions,
    reductions_windows,
    vision_detection,
    vision_resize,
)
from hexforge.backends.htp.numbers.lower.products import constant_weights, recurrent, wide  # noqa: F401
