# SPDX-License-Identifier: Apache-2.0
"""Standalone: a part of a model that stands alone, for onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx

from hexforge.ir import Array

RUNTIME_OPSET = 26  # the newest that onnxruntime 1.31 loads, and the newest IR version
RUNTIME_IR = 13
MOST_BYTES = 3 << 29  # 1.5 GB, a safe step below protobuf's 2 GB


@dataclass(frozen=True, slots=True)
class Extract:
    """A model and the constants that do not fit into its protobuf, for SessionOptions.add_external_initializers."""

    proto: onnx.ModelProto
    constants: dict[str, Array] = field(default_factory=dict)
