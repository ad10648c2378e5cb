# SPDX-License-Identifier: Apache-2.0
"""A program of the phone: listens on one of its ports for one connection; `nc -l -p PORT` in its shell."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

from hexforge.addons.phone.protocol.streams import listening
from hexforge.addons.phone.storage import PhoneStorage


def main() -> int:
    """Carry what is read to who connects, and what comes to what is written."""
    try:
        with listening(PhoneStorage(Path("/")), sys.argv[1]) as server:
            connection = server.accept()[0]
    except OSError as error:
        sys.stderr.write(f"nc: {error.strerror}\n")
        return 1
    with connection, connection.makefile("rwb", buffering=0) as stream:

        def send() -> None:
            while chunk := os.read(0, 1 << 16):
                stream.write(chunk)
            connection.shutdown(1)

        threading.Thread(target=send, daemon=True).start()
        while chunk := connection.recv(1 << 16):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
