# SPDX-License-Identifier: Apache-2.0
"""Translators: units of an ONNX model become QNN ops, by families of ops. Importing this fills the registry."""

from hexforge.frontends.onnx.translate import (  # noqa: F401
    control,
    moves_gather,
    moves_layout,
    pointwise_activation,
    pointwise_convert,
    pointwise_elementwise,
    reductions_norm,
    reductions_pool,
    reductions_reduce,
    vision_grid_sample,
    vision_regions,
    vision_resize,
)
from hexforge.frontends.onnx.translate.products import (  # noqa: F401
    attention,
    conv,
    einsum,
    group_query_attention,
    matmul,
    matmul_nbits,
    recurrent,
    signal,
)
