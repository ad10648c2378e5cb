# SPDX-License-Identifier: Apache-2.0
"""`python -m hexforge.executorch SCRIPT ARGS`, or `-m MODULE ARGS`: runs it as it is, hexforge behind ExecuTorch."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from hexforge.addons.executorch.import_hook import enable
from hexforge.errors import HexforgeError

USAGE = "usage: python -m hexforge.executorch SCRIPT [ARGS...] | -m MODULE [ARGS...]"


def main() -> None:
    """Run the script or module that the arguments name."""
    rest = sys.argv[1:]
    if not rest or rest[0] in ("-h", "--help") or rest == ["-m"]:
        sys.exit(USAGE if not rest or rest == ["-m"] else print(USAGE))
    try:
        enable()
    except HexforgeError as error:
        sys.exit(str(error))
    if rest[0] == "-m":
        sys.argv = rest[1:]
        sys.path[0] = ""
        runpy.run_module(rest[1], run_name="__main__", alter_sys=True)
        return
    script = Path(rest[0])
    if not script.is_file():
        sys.exit(f"{script}: no such file; {USAGE}")
    sys.argv = rest
    sys.path[0] = str(script.parent.resolve())
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
