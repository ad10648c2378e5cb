# SPDX-License-Identifier: Apache-2.0
"""adbutils, pure-python-adb, adb-shell and Debian's adb, unchanged, over virtual phones: `make adb-clients`."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hexforge.addons.phone.phones import add_phone
from hexforge.addons.phone.protocol.serving import serving

ROOT = Path(__file__).parents[3]
CLIENTS = ROOT / ".venv-adb" / "bin"
FILES, FILE_BYTES = 10, 5_000_000


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.adb
@pytest.mark.skipif(not (CLIENTS / "adb").exists(), reason="make adb-clients")
@pytest.mark.parametrize("client", ["adbutils", "ppadb", "adb_shell", "debian"])
def test_a_client_pushes_runs_pulls_and_forwards(phones: Path, client: str, tmp_path: Path) -> None:
    add_phone("one", "SM8650")
    add_phone("two", "SM8750")
    folder = tmp_path / "folder"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"{number}.bin").write_bytes(os.urandom(FILE_BYTES))
    with serving(0, 0, ask_keys=client == "adb_shell") as served:
        ports = [served.server.rpartition(":")[2], served.phones["one"].rpartition(":")[2]]
        environment = {**os.environ, "PATH": f"{CLIENTS}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}
        done = subprocess.run(
            [CLIENTS / "python", ROOT / "tests/addons/phone/adb_clients.py", client, *ports, folder],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert done.stdout.endswith("ok\n"), done.stdout + done.stderr
    backs = sorted(p for p in tmp_path.glob("folder.*") if p.is_dir())
    assert backs
    assert all(contents(back) == contents(folder) for back in backs)
