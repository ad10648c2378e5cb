# SPDX-License-Identifier: Apache-2.0
"""`hexforge sdk-root`: a folder for QNN_SDK_ROOT."""

from __future__ import annotations

from hexforge.cli.say import say
from hexforge.request_fields import option


def sdk_root(
    executorch_build: bool = option(False, "Print the folder that stands for ExecuTorch's Android build."),
) -> None:
    """Print a folder for QNN_SDK_ROOT: tools, libraries and headers of hexforge where scripts look for the SDK's."""
    from hexforge.addons.phone.sdk_root import EXECUTORCH_BUILD, sdk_root

    root = sdk_root()
    say(root / EXECUTORCH_BUILD if executorch_build else root)
