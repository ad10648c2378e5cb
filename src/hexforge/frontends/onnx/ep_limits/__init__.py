# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime's QNN execution provider refuses though the NPU could do it: rules, each with its reason."""

from hexforge.frontends.onnx.ep_limits.evidence import Evidence, Refuser
from hexforge.frontends.onnx.ep_limits.judge import EP_VERSION, LIMITS, ep_refuses
from hexforge.frontends.onnx.ep_limits.numbers import ep_departs

__all__ = ["EP_VERSION", "LIMITS", "Evidence", "Refuser", "ep_departs", "ep_refuses"]
