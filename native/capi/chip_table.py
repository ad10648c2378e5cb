# SPDX-License-Identifier: Apache-2.0
"""Writes the chips of hexforge.chips.soc as C initialisers: chip_table.py src/hexforge chip_table.inc."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

source, target = map(Path, sys.argv[1:])
package = ModuleType("hexforge")  # its own __init__ needs what a build has not
package.__path__ = [str(source)]
sys.modules["hexforge"] = package
chips = importlib.import_module("hexforge.chips.soc").SOCS
target.write_text(
    "".join(
        f"    {{{soc.soc_model}, {soc.htp_arch}, {soc.vtcm_mb}, {soc.nsp_cores}, {soc.hvx_threads}, "
        f"{'true' if soc.dlbc else 'false'}}},  // {soc.name}\n"
        for soc in chips
    ),
    encoding="ascii",
)
