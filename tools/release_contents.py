# SPDX-License-Identifier: Apache-2.0
"""Look into what a release uploads: `python -m tools.release_contents FOLDER` (make release-check).

The source archive has what is needed to build and to test, and nothing that was built; the wheel has the package, its
native module and its data, and nothing of the checkout beside it. Both have the version of pyproject.toml.
"""

from __future__ import annotations

import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
IN_SOURCE = ("pyproject.toml", "CMakeLists.txt", "LICENSE", "README.md", "CHANGELOG.md", "src/hexforge/__init__.pyi",
             "tests/wheel/run_readme.py")  # fmt: skip
IN_WHEEL = ("hexforge/__init__.pyi", "hexforge/py.typed", "hexforge/_native.pyi", "hexforge/demo/night.onnx")
BUILT = (".so", ".pyc", ".o", ".onnx.data", ".whl")


def source_faults(names: list[str], version: str) -> list[str]:
    """What is wrong with the names in a source archive."""
    top = f"hexforge-{version}/"
    faults = [f"{name} lies outside {top}" for name in names if not name.startswith(top)]
    inside = {name.removeprefix(top) for name in names}
    faults += [f"{name} is missing" for name in IN_SOURCE if name not in inside]
    faults += [f"{name} was built" for name in sorted(inside) if name.endswith(BUILT)]
    hidden = (".venv", ".models", "build/", "dist/", ".git/")
    return faults + [f"{name} is no source" for name in sorted(inside) if name.startswith(hidden)]


def wheel_faults(names: list[str], version: str) -> list[str]:
    """What is wrong with the names in a wheel."""
    faults = [f"{name} is missing" for name in IN_WHEEL if name not in names]
    faults += (
        [] if any(n.startswith("hexforge/_native.") and n.endswith(".so") for n in names) else ["no native module"]
    )
    known = ("hexforge/", f"hexforge-{version}.dist-info/")
    faults += [f"{name} is not the package's" for name in names if not name.startswith(known)]
    return faults + [f"{name} was built" for name in names if name.endswith((".pyc", ".o"))]


def main(folder: Path) -> int:
    """0 where one source archive and one wheel lie in a folder and are as they should be."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    (source,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    with tarfile.open(source) as archive:
        faults = [f"{source.name}: {fault}" for fault in source_faults(archive.getnames(), version)]
    with zipfile.ZipFile(wheel) as zipped:
        faults += [f"{wheel.name}: {fault}" for fault in wheel_faults(zipped.namelist(), version)]
    for file in (source, wheel):
        print(f"release: {file.name}, {file.stat().st_size / 1e6:.1f} MB")
    for fault in faults:
        print(f"release: {fault}", file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
