# SPDX-License-Identifier: Apache-2.0
"""How near hexforge is to the vendor's emulator: single QDQ ops, groups of float ops, whole float models.

    python -m benchmarks.fidelity [--only qdq | groups | models]

Needs `make peers`, and for the models `make models`. Exits with 1 where a tolerance is exceeded, or where hexforge has
a NaN and the emulator none.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.accuracy import vendor_fidelity, vendor_float_models
from benchmarks.peers import vendor


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("qdq", "groups", "models"), help="one of the tables")
    wanted = parser.parse_args().only
    if why := vendor.missing():
        print(f"no vendor emulator: {why}", file=sys.stderr)
        return 2
    out, kept = Console(width=150), True
    if wanted in (None, "qdq"):
        fixed = vendor_fidelity.differences()
        out.print(vendor_fidelity.table(fixed))
        kept &= all(row.kept or row.lsb < 0 for row in fixed)
    for name, models in (("groups", vendor_float_models.GROUPS), ("models", vendor_float_models.MODELS)):
        if wanted in (None, name):
            with tempfile.TemporaryDirectory() as folder:
                rows = vendor_float_models.differences(models, Path(folder))
            out.print(vendor_float_models.table(f"float {name}", rows))
            kept &= not any(row.nan and not row.their_nan for row in rows)
    return 0 if kept else 1


if __name__ == "__main__":
    raise SystemExit(main())
