# SPDX-License-Identifier: Apache-2.0
"""Translators: units of an ONNX model become QNN ops, by families of ops. Importing this fills the registry."""

from hexforge.frontends.onnx.translate import (  # noqa: F401
    control,
    moves_gather,
    moves_layout,
    pointwise_activation,
    pointwise_elementwise,
    products_attention,
    products_conv,
    products_group_query,
    products_matmul,
    products_recurrent,
    reductions_norm,
    reductions_windows,
    vision_regions,
    vision_resize,
)
