# SPDX-License-Identifier: Apache-2.0
"""`python -m hexforge.capi FD` answers a QNN library of hexforge on an open socket."""

from __future__ import annotations

import os
import signal
import socket
import sys


def main() -> None:
    """Answer on the socket whose number is the argument, until the other side closes it."""
    if len(sys.argv) != 2 or not sys.argv[1].isdigit():
        sys.exit("python -m hexforge.capi is started by libQnnHtp.so and its siblings, with the number of a socket")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program that is served decides when it ends
    os.dup2(2, 1)  # nobody reads what a library prints
    from hexforge.addons.capi.compiler_process import serve

    with socket.socket(fileno=int(sys.argv[1])) as connection, connection.makefile("rwb") as stream:
        serve(stream)


if __name__ == "__main__":
    main()
