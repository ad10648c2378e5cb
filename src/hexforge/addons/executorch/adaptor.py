# SPDX-License-Identifier: Apache-2.0
"""Everything that executorch.backends.qualcomm.python.PyQnnManagerAdaptor has, from hexforge."""

from __future__ import annotations

from hexforge.addons.executorch.blob import ALIGNMENT
from hexforge.addons.executorch.qnn_manager import QnnManager, strip_protocol
from hexforge.addons.executorch.qnn_types import (
    Error,
    Qnn_BlockwiseExpansionBlockScaleStorageType_t,
    Qnn_DataType_t,
    Qnn_Definition_t,
    Qnn_QuantizationEncoding_t,
    Qnn_TensorType_t,
)
from hexforge.addons.executorch.wrappers import PyQnnOpWrapper, PyQnnTensorWrapper, TensorWrapper

SDK_BUILD_ID = "v2.48.0.hexforge"
"""The version of the QNN SDK whose ops and rules hexforge follows, as ExecuTorch's version checks read it."""

StripProtocol = strip_protocol
OpWrapper = PyQnnOpWrapper


def GetQNNCtxBinAlignment() -> int:  # noqa: N802 - the stock name
    """What context binaries are aligned to in a .pte file."""
    return ALIGNMENT


def GetQnnSdkBuildId(library: str = "") -> str:  # noqa: N802 - the stock name
    """The version that stands for the SDK's; no library is opened."""
    return SDK_BUILD_ID


__all__ = [
    "Error",
    "GetQNNCtxBinAlignment",
    "GetQnnSdkBuildId",
    "OpWrapper",
    "PyQnnOpWrapper",
    "PyQnnTensorWrapper",
    "QnnManager",
    "Qnn_BlockwiseExpansionBlockScaleStorageType_t",
    "Qnn_DataType_t",
    "Qnn_Definition_t",
    "Qnn_QuantizationEncoding_t",
    "Qnn_TensorType_t",
    "StripProtocol",
    "TensorWrapper",
]
