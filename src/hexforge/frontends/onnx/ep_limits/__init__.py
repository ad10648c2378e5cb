# SPDX-License-Identifier: Apache-2.0
"""What onnxruntime's QNN execution provider refuses though the NPU could do it: rules, each with its reason."""

from hexforge.frontends.onnx.ep_limits.judge import EP_VERSION, LIMITS, ep_departs, ep_refuses
from hexforge.frontends.onnx.ep_limits.subject import Evidence, Refuser

__all__ = ["EP_VERSION", "LIMITS", "Evidence", "Refuser", "ep_departs", "ep_refuses"]
