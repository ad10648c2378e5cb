# SPDX-License-Identifier: Apache-2.0
"""`adb` for tests that ask for a phone: its storage is a folder of this computer, and what is started there runs here.

`Phone(...)` puts a program called adb on the path, which knows `push`, `pull` and `shell`, and empty files where an SDK
and a build have the libraries that a phone would be given. The runner that tests push is `hexforge executor-runner`, so
what they see is hexforge's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

STORAGE = "/data/local/tmp"
NAME = "hexforge"
"""What `adb -s` calls it."""
_TARGET = "aarch64-android"
_LIBRARIES = "libQnnSystem.so libQnnHtp.so libQnnHtpPrepare.so libQnnHtpV{arch}Stub.so"


class Phone:
    """A phone with a chip of an architecture; lasts as long as its folder."""

    def __init__(self, folder: Path, sdk: Path, build: Path, arch: int) -> None:
        tools, storage = folder / "tools", folder / "phone"
        for place in (tools, storage, *(library.parent for library in _libraries(sdk, build, arch))):
            place.mkdir(parents=True, exist_ok=True)
        for library in _libraries(sdk, build, arch):
            library.touch()
        script = tools / "adb"
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I "{Path(__file__)}" "{storage}" "$@"\n')
        script.chmod(0o755)
        os.environ["PATH"] = f"{tools}{os.pathsep}{os.environ['PATH']}"


def _libraries(sdk: Path, build: Path, arch: int) -> list[Path]:
    of_phone = [sdk / "lib" / _TARGET / name for name in _LIBRARIES.format(arch=arch).split()]
    of_hexagon = sdk / "lib" / f"hexagon-v{arch}" / "unsigned" / f"libQnnHtpV{arch}Skel.so"
    return [*of_phone, of_hexagon, build / "backends" / "qualcomm" / "libqnn_executorch_backend.so"]


def adb(storage: str, words: Sequence[str]) -> int:
    """Do what adb would; the exit code."""
    left = list(words)
    while left and left[0] in ("-s", "-H", "-P"):
        del left[:2]
    kind, *left = left
    if kind == "shell":
        command = " ".join(left).replace(STORAGE, storage)
        return subprocess.run(["sh", "-c", command], check=False).returncode
    if kind not in ("push", "pull"):
        print(f"adb: {kind}: this phone knows push, pull and shell", file=sys.stderr)
        return 1
    source, target = (Path(word.replace(STORAGE, storage)) for word in left if word != "-a")
    if target.is_dir():
        target = target / source.name
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)
    return 0


if __name__ == "__main__":
    sys.exit(adb(sys.argv[1], sys.argv[2:]))
