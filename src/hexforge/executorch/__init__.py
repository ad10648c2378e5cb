# SPDX-License-Identifier: Apache-2.0
"""ExecuTorch's Qualcomm backend on hexforge: importing this module switches it on, where ExecuTorch is installed.

    import hexforge.executorch  # before executorch.backends.qualcomm is imported

`python -m hexforge.executorch SCRIPT ARGS` does the same for a script that is left as it is.
"""

from hexforge.executorch.stand_in import TESTED, enable, is_enabled, is_installed

if is_installed():
    enable()

__all__ = ["TESTED", "enable", "is_enabled", "is_installed"]
