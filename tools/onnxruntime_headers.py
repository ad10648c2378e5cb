# SPDX-License-Identifier: Apache-2.0
"""onnxruntime's C and C++ headers, from Debian's package libonnxruntime-dev.

`python -m tools.onnxruntime_headers FOLDER`; no wheel of onnxruntime's has them. The package is looked up by name in
the index of Debian's testing suite, its bytes are checked against the index, and only its headers are unpacked (MIT
licence). onnxruntime's API is stable, so headers that are older than the library serve.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import sys
import tarfile
import urllib.request
from pathlib import Path

ARCHIVE = "http://deb.debian.org/debian"
SUITE = "testing"
PACKAGE = "libonnxruntime-dev"
INSIDE = "./usr/include/onnxruntime/"


def found(index: str) -> tuple[str, str]:
    """Where the archive has the package, and the digest of its bytes."""
    entry = re.search(rf"^Package: {PACKAGE}\n(?:.+\n)*", index, re.MULTILINE)
    if entry is None:
        raise SystemExit(f"{ARCHIVE}: there is no {PACKAGE} in {SUITE}")
    fields = dict(line.split(": ", 1) for line in entry[0].splitlines() if ": " in line)
    return fields["Filename"], fields["SHA256"]


def headers(package: bytes) -> dict[str, bytes]:
    """The headers of a Debian package, by their names: an `ar` archive of which data.tar is one member."""
    at = len(b"!<arch>\n")
    while at < len(package):
        name, size = package[at : at + 16].decode().strip(), int(package[at + 48 : at + 58])
        content = package[at + 60 : at + 60 + size]
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content)) as tar:
                files = [m for m in tar.getmembers() if m.isfile() and m.name.startswith(INSIDE)]
                opened = {m.name.removeprefix(INSIDE): tar.extractfile(m) for m in files}
                return {name: file.read() for name, file in opened.items() if file is not None}
        at += 60 + size + size % 2
    raise SystemExit(f"{PACKAGE}: holds no data.tar")


def main() -> None:
    """Put the headers into the folder that is named."""
    folder = Path(sys.argv[1])
    try:
        index = f"{ARCHIVE}/dists/{SUITE}/main/binary-amd64/Packages.xz"
        with urllib.request.urlopen(index, timeout=120) as page:
            place, digest = found(lzma.decompress(page.read()).decode())
        with urllib.request.urlopen(f"{ARCHIVE}/{place}", timeout=120) as page:
            package = page.read()
    except OSError as error:
        raise SystemExit(f"{ARCHIVE}: {error}; without it there are no headers of onnxruntime's") from None
    if hashlib.sha256(package).hexdigest() != digest:
        raise SystemExit(f"{place}: is not what the index says")
    for name, content in headers(package).items():
        path = folder / name
        if ".." not in path.parts:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    print(f"{place.rpartition('/')[2]}: headers into {folder}")


if __name__ == "__main__":
    main()
