# SPDX-License-Identifier: Apache-2.0
"""`hexforge sdk-root`: a folder for QNN_SDK_ROOT."""

from __future__ import annotations

from typing import Annotated

import typer

from hexforge.cli.say import say


def sdk_root(
    executorch_build: Annotated[
        bool, typer.Option("--executorch-build", help="Print the folder that stands for ExecuTorch's Android build.")
    ] = False,
) -> None:
    """Print a folder for QNN_SDK_ROOT: tools, libraries and headers of hexforge where scripts look for the SDK's."""
    from hexforge.addons.phone.sdk_root import EXECUTORCH_BUILD, sdk_root

    root = sdk_root()
    say(root / EXECUTORCH_BUILD if executorch_build else root)
