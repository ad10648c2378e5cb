# SPDX-License-Identifier: Apache-2.0
"""Names that Windows has not are used only where the system was asked for, so that every import works there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests import ROOT

MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "select", "syslog", "termios", "tty"}
NAMES = {
    "os": {"fork", "getuid", "geteuid", "getpgid", "killpg", "mkfifo", "sched_getaffinity", "setsid", "sysconf",
           "uname", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "WIFSIGNALED", "posix_spawn", "getloadavg"},
    "signal": {"SIGALRM", "SIGHUP", "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGPIPE", "setitimer", "pthread_sigmask"},
    "socket": {"AF_UNIX"},
    "time": {"clock_gettime", "tzset"},
}  # fmt: skip
"""What Windows' Python has not, by module; `socket.AF_UNIX` not before Python 3.13."""
ASKED = re.compile(r"sys\.platform|os\.name|hasattr\(|except \(?(ImportError|AttributeError)")
ASKED_BEFORE = {
    "addons/device/shared/connection.py",  # an address with a Unix socket is refused (addons/device/shared/address.py)
    "addons/phone/sandbox.py",  # waits for pipes of a sandbox, which it makes on Linux alone
    "addons/phone/sandbox_start.py",  # started by the sandbox alone
}
"""Files whose caller asked."""


def unguarded(source: str) -> Iterator[tuple[int, str]]:
    """Lines with a name of Unix, in code whose function (or module) does not ask which system it is on."""
    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]

    def asked(line: int) -> bool:
        around = [f for f in functions if f.lineno <= line <= (f.end_lineno or line)]
        texts = [ast.get_source_segment(source, f) or "" for f in around] or [source.splitlines()[line - 1]]
        return any(ASKED.search(text) for text in texts)

    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names if alias.name in MODULES]
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            names = [node.module]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names = [f"{node.value.id}.{node.attr}"] if node.attr in NAMES.get(node.value.id, ()) else []
        line = int(getattr(node, "lineno", 0))
        yield from ((line, name) for name in names if not asked(line))


def test_unix_names_have_a_branch() -> None:
    source = ROOT / "src" / "hexforge"
    rows = [
        f"{path.relative_to(source).as_posix()}:{line}: {name}"
        for path in sorted(source.rglob("*.py"))
        if path.relative_to(source).as_posix() not in ASKED_BEFORE
        for line, name in unguarded(path.read_text("utf-8"))
    ]
    assert rows == []


def test_what_would_be_seen() -> None:
    assert list(unguarded("import fcntl\n")) == [(1, "fcntl")]
    assert list(unguarded("import os\ndef f():\n    return os.getuid()\n")) == [(3, "os.getuid")]
    assert list(unguarded("import os\ndef f():\n    if hasattr(os, 'getuid'):\n        return os.getuid()\n")) == []


def test_native_code_asks_too() -> None:
    """A header of one system is included behind a branch; files that are one system's alone are named so."""
    headers = re.compile(r"#include <(unistd|sys/\w+|dlfcn|fcntl|link|poll|pthread|spawn|signal|mach|windows)\b")
    rows = []
    for path in sorted(Path(ROOT / "native").rglob("*")):
        if path.suffix not in (".c", ".cpp", ".h") or path.stem in ("unix", "windows") or path.parent.name == "amx":
            continue
        depth = 0
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            text = line.replace(" ", "")
            system = re.search(r"_WIN32|__linux__|__APPLE__|__unix__", text)
            if text.startswith("#if") and (depth or system):
                depth += 1
            elif depth and text.startswith("#endif"):
                depth -= 1
            if headers.match(line) and not depth:
                rows.append(f"{path.relative_to(ROOT).as_posix()}:{number}: {line}")
    assert rows == []
