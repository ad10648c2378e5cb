# SPDX-License-Identifier: Apache-2.0
"""Commands of the phone's shell that look at files and change them."""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from hexforge.addons.phone.shell import CommandCall, CommandFunction

_CHUNK = 1 << 20


def split_flags(arguments: Sequence[str], valued: str = "") -> tuple[dict[str, str], list[str]]:
    """Single letters given as flags, those of `valued` with their values, and the other arguments."""
    flags: dict[str, str] = {}
    rest: list[str] = []
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            rest += left
            break
        if not word.startswith("-") or word == "-" or word.startswith("--"):
            rest.append(word)
            continue
        for number, letter in enumerate(word[1:], 1):
            if letter in valued:
                flags[letter] = word[number + 1 :] or (left.pop(0) if left else "")
                break
            flags[letter] = ""
    return flags, rest


def _each(call: CommandCall, paths: Sequence[str], act: Callable[[str, Path], None]) -> int:
    """Do something with each path; errors are said and the others done all the same."""
    if not paths:
        return call.fail("Needs 1 argument")
    code = 0
    for path in paths:
        try:
            act(path, call.host(path))
        except OSError as error:
            code = call.fail(f"{path}: {error.strerror or error}")
    return code


def ls(call: CommandCall) -> int:
    """List files: -l, -a, -A, -1, -d, -R, -h."""
    flags, paths = split_flags(call.arguments)
    code = 0
    given = paths or ["."]
    for number, path in enumerate(given):
        host = call.host(path)
        if not os.path.lexists(host):
            code = call.fail(f"{path}: No such file or directory")
            continue
        if not host.is_dir() or "d" in flags:
            _listed(call, path, host, flags)
            continue
        for shown, folder in _folders(path, host) if "R" in flags else [(path, host)]:
            if len(given) > 1 or "R" in flags:
                if number or shown != path:
                    call.print("")
                call.print(f"{shown}:")
            if "l" in flags:
                total = sum(-(-p.stat().st_size // 4096) * 4 for p in folder.iterdir() if p.exists())
                call.print(f"total {total}")
            hidden = "a" in flags or "A" in flags
            names = sorted(p.name for p in folder.iterdir() if hidden or not p.name.startswith("."))
            for name in ([".", ".."] if "a" in flags else []) + names:
                _listed(call, name, folder if name in (".", "..") else folder / name, flags)
    return code


def _folders(path: str, host: Path) -> Iterator[tuple[str, Path]]:
    yield path, host
    for child in sorted(host.iterdir()):
        if child.is_dir() and not child.is_symlink():
            yield from _folders(f"{path.rstrip('/')}/{child.name}", child)


def _listed(call: CommandCall, shown: str, host: Path, flags: dict[str, str]) -> None:
    if "l" not in flags:
        call.print(shown)
        return
    facts = host.lstat()
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(facts.st_mtime))
    size = _human(facts.st_size) if "h" in flags else str(facts.st_size)
    call.print(f"{stat.filemode(facts.st_mode)} {facts.st_nlink} shell shell {size:>10} {when} {shown}")


def _human(size: float) -> str:
    for unit in ("", "K", "M", "G"):
        if size < 1024 or unit == "G":
            return f"{size:.1f}{unit}" if unit and size < 10 else f"{size:.0f}{unit}"
        size /= 1024
    raise AssertionError


def mkdir(call: CommandCall) -> int:
    """Make folders; -p makes those above them, too."""
    flags, paths = split_flags(call.arguments, "m")
    parents = "p" in flags
    return _each(call, paths, lambda path, host: host.mkdir(parents=parents, exist_ok=parents))


def rmdir(call: CommandCall) -> int:
    """Remove empty folders."""
    return _each(call, split_flags(call.arguments)[1], lambda path, host: host.rmdir())


def rm(call: CommandCall) -> int:
    """Remove files; -r folders, too; -f without a word where there is none."""
    flags, paths = split_flags(call.arguments)
    if not paths and "f" in flags:
        return 0

    def remove(path: str, host: Path) -> None:
        if host == call.shell.phone.storage.folder:
            raise OSError(16, "Device or resource busy")
        if "f" in flags and not os.path.lexists(host):
            return
        if host.is_dir() and not host.is_symlink():
            if not {"r", "R"} & flags.keys():
                raise OSError(21, "is directory")
            shutil.rmtree(host)
        else:
            host.unlink()

    return _each(call, paths, remove)


def _into(call: CommandCall, copy: Callable[[Path, Path], None]) -> int:
    """What cp and mv have in common: several sources, and a folder or a name as the last argument."""
    _, paths = split_flags(call.arguments)
    if len(paths) < 2:
        return call.fail("Needs 2 arguments")
    target = call.host(paths[-1])
    if len(paths) > 2 and not target.is_dir():
        return call.fail(f"'{paths[-1]}' not directory")

    def act(path: str, host: Path) -> None:
        if not host.exists():
            raise OSError(2, "No such file or directory")
        place = target / host.name if target.is_dir() else target
        if place == host or place.is_relative_to(host):
            raise OSError(22, f"'{paths[-1]}' is the same, or inside it")
        copy(host, call.shell.phone.storage.host(call.shell.phone.storage.phone_path(place)))

    return _each(call, paths[:-1], act)


def cp(call: CommandCall) -> int:
    """Copy files; -r folders."""
    recursive = {"r", "R", "a"} & split_flags(call.arguments)[0].keys()

    def copy(source: Path, target: Path) -> None:
        if source.is_dir():
            if not recursive:
                raise OSError(21, "Is a directory")
            storage = call.shell.phone.storage
            for inner in source.rglob("*"):  # a link that is there already may lead out of the phone
                storage.host(storage.phone_path(target / inner.relative_to(source)))
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        else:
            shutil.copy2(source, target)

    return _into(call, copy)


def mv(call: CommandCall) -> int:
    """Move files and folders."""

    def move(source: Path, target: Path) -> None:
        shutil.move(source, target)

    return _into(call, move)


def cat(call: CommandCall) -> int:
    """Write files, or what comes in."""
    _, paths = split_flags(call.arguments)
    if not paths:
        call.streams.out.write(call.streams.read())
        return 0

    def write(path: str, host: Path) -> None:
        if path == "-":
            call.streams.out.write(call.streams.read())
            return
        with host.open("rb") as file:
            while chunk := file.read(_CHUNK):
                call.shell.phone.require_plugged()
                call.streams.out.write(chunk)

    return _each(call, paths, write)


def touch(call: CommandCall) -> int:
    """Make empty files, or let them be of now."""
    return _each(call, split_flags(call.arguments)[1], lambda path, host: host.touch())


def chmod(call: CommandCall) -> int:
    """Change what may be done with files: octal, or [ugoa][+-=][rwx]; -R folders with what is in them."""
    words = list(call.arguments)
    recursive = "-R" in words
    words = [word for word in words if word != "-R"]
    if len(words) < 2:
        return call.fail("Needs 2 arguments")
    mode = words[0]
    octal = re.fullmatch(r"[0-7]{3,4}", mode)
    parts = [re.fullmatch(r"([ugoa]*)([+=-])([rwxX]*)", part) for part in mode.split(",")]
    if not octal and not all(parts):
        return call.fail(f"bad mode '{mode}'")

    def changed(before: int) -> int:
        if octal:
            return int(mode, 8) & 0o777
        for part in parts:
            assert part is not None
            bits = sum({"r": 0o4, "w": 0o2, "x": 0o1, "X": 0o1}[letter] for letter in set(part[3]))
            who = part[1].replace("a", "ugo") or "ugo"
            mask = sum(bits << shift for letter, shift in (("u", 6), ("g", 3), ("o", 0)) if letter in who)
            whole = sum(0o7 << shift for letter, shift in (("u", 6), ("g", 3), ("o", 0)) if letter in who)
            before = {"+": before | mask, "-": before & ~mask, "=": (before & ~whole) | mask}[part[2]]
        return before & 0o777

    def change(path: str, host: Path) -> None:
        for file in [host, *(host.rglob("*") if recursive and host.is_dir() else ())]:
            if not file.is_symlink():
                # The owner of the folder keeps access to it: this is a file of this computer, too.
                file.chmod(changed(stat.S_IMODE(file.stat().st_mode)) | (0o700 if file.is_dir() else 0o600))

    return _each(call, words[1:], change)


def _digest(name: str) -> CommandFunction:
    def digest(call: CommandCall) -> int:
        """The digest of files, or of what comes in."""

        def write(path: str, host: Path) -> None:
            made = hashlib.new(name, usedforsecurity=False)
            with host.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    made.update(chunk)
            call.print(made.hexdigest() if "b" in flags else f"{made.hexdigest()}  {path}")

        flags, paths = split_flags(call.arguments)
        if not paths:
            call.print(f"{hashlib.new(name, call.streams.read(), usedforsecurity=False).hexdigest()}  -")
            return 0
        return _each(call, paths, write)

    return digest


def stat_command(call: CommandCall) -> int:
    """Sizes and names of files: -c with %s, %n, %a, %Y."""
    flags, paths = split_flags(call.arguments, "c")

    def write(path: str, host: Path) -> None:
        facts = host.stat()
        known = {"s": facts.st_size, "n": path, "a": oct(stat.S_IMODE(facts.st_mode))[2:], "Y": int(facts.st_mtime)}
        form = flags.get("c", "  File: %n\n  Size: %s\tAccess: %a")
        call.print(re.sub(r"%([snaY])", lambda m: str(known[m[1]]), form))

    return _each(call, paths, write)


def du(call: CommandCall) -> int:
    """How much files and folders hold: -s, -h, -k, -b."""
    flags, paths = split_flags(call.arguments)

    def write(path: str, host: Path) -> None:
        files = [p for p in host.rglob("*") if p.is_file()] if host.is_dir() else [host]
        size = sum(p.stat().st_size for p in files)
        shown = _human(size) if "h" in flags else str(size if "b" in flags else -(-size // 1024))
        call.print(f"{shown}\t{path}")

    return _each(call, paths or ["."], write)


def df(call: CommandCall) -> int:
    """How much room there is; it is this computer's."""
    facts = shutil.disk_usage(call.shell.phone.storage.folder)
    human = "h" in split_flags(call.arguments)[0]
    sizes = [_human(n) if human else str(n // 1024) for n in (facts.total, facts.used, facts.free)]
    call.print("Filesystem 1K-blocks Used Available Use% Mounted on")
    call.print(f"/dev/block/dm-0 {' '.join(sizes)} {100 * facts.used // max(1, facts.total)}% /data")
    return 0


def find(call: CommandCall) -> int:
    """Names of files below folders: -name PATTERN, -type f or d, -maxdepth N."""
    words = list(call.arguments)
    starts: list[str] = []
    while words and not words[0].startswith("-"):
        starts.append(words.pop(0))
    name, kind, depth = "*", "", -1
    while words:
        test = words.pop(0)
        value = words.pop(0) if words and test in ("-name", "-type", "-maxdepth") else ""
        if test == "-name":
            name = value
        elif test == "-type" and value in ("f", "d"):
            kind = value
        elif test == "-maxdepth" and value.isdecimal():
            depth = int(value)
        elif test != "-print":
            return call.fail(f"bad arg '{test} {value}'")

    def walk(path: str, host: Path, level: int) -> None:
        folder = host.is_dir() and not host.is_symlink()
        if fnmatch.fnmatchcase(host.name, name) and kind in ("", "d" if folder else "f"):
            call.print(path)
        if folder and level != depth:
            for child in sorted(host.iterdir()):
                walk(f"{path.rstrip('/')}/{child.name}", child, level + 1)

    def begin(path: str, host: Path) -> None:
        if not host.exists():
            raise OSError(2, "No such file or directory")
        walk(path, host, 0)

    return _each(call, starts or ["."], begin)


def _lines(call: CommandCall, paths: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        yield path, call.host(path).read_bytes()
    if not paths:
        yield "", call.streams.read()


def wc(call: CommandCall) -> int:
    """Count lines, words and bytes: -l, -w, -c."""
    flags, paths = split_flags(call.arguments)
    for path, data in _lines(call, paths):
        counts = {"l": data.count(b"\n"), "w": len(data.split()), "c": len(data)}
        shown = [str(n) for letter, n in counts.items() if letter in flags or not flags]
        call.print(" ".join([*shown, *([path] if path else [])]))
    return 0


def _part(last: bool) -> CommandFunction:
    def part(call: CommandCall) -> int:
        """The first or last lines: -n N."""
        words = [f"-n{w[1:]}" if re.fullmatch(r"-\d+", w) else w for w in call.arguments]
        flags, paths = split_flags(words, "nc")
        count = int(flags.get("n", "10").lstrip("+-") or 10) if flags.get("n", "10").lstrip("+-").isdecimal() else 10
        for _, data in _lines(call, paths):
            lines = data.splitlines(keepends=True)
            call.streams.out.write(b"".join((lines[-count:] if count else []) if last else lines[:count]))
        return 0

    return part


def grep(call: CommandCall) -> int:
    """Lines with a text or pattern: -i, -v, -c, -q, -F, -E, -o, -n."""
    flags, words = split_flags(call.arguments, "e")
    pattern = flags.get("e") or (words.pop(0) if words else "")
    try:
        wanted = re.compile(
            (re.escape(pattern) if "F" in flags else pattern).encode("utf-8", "surrogateescape"),
            re.IGNORECASE if "i" in flags else 0,
        )
    except re.error as error:
        return call.fail(f"bad pattern '{pattern}': {error}", 2)
    count = 0
    for path, data in _lines(call, words):
        for number, line in enumerate(data.splitlines(), 1):
            match = wanted.search(line)
            if bool(match) == ("v" in flags):
                continue
            count += 1
            if "q" in flags or "c" in flags:
                continue
            before = (f"{path}:" if len(words) > 1 else "") + (f"{number}:" if "n" in flags else "")
            shown = match.group() if match and "o" in flags else line
            call.streams.out.write(before.encode("utf-8", "surrogateescape") + shown + b"\n")
    if "c" in flags:
        call.print(str(count))
    return int(not count)


def sort(call: CommandCall) -> int:
    """Lines in order: -r, -u, -n."""
    flags, paths = split_flags(call.arguments)
    lines = [line for _, data in _lines(call, paths) for line in data.splitlines()]
    lines = list(dict.fromkeys(lines)) if "u" in flags else lines

    def number(line: bytes) -> float:
        match = re.match(rb"\s*-?\d+(\.\d+)?", line)
        return float(match.group()) if match else 0.0

    lines.sort(reverse="r" in flags)
    if "n" in flags:
        lines.sort(key=number, reverse="r" in flags)
    call.streams.out.write(b"".join(line + b"\n" for line in lines))
    return 0


def tee(call: CommandCall) -> int:
    """Write what comes in to files, and on; -a appends."""
    flags, paths = split_flags(call.arguments)
    data = call.streams.read()
    call.streams.out.write(data)

    def write(path: str, host: Path) -> None:
        with host.open("ab" if "a" in flags else "wb") as file:
            file.write(data)

    return _each(call, paths, write) if paths else 0


FILE_COMMANDS: dict[str, CommandFunction] = {
    "cat": cat, "chmod": chmod, "cp": cp, "df": df, "du": du, "find": find, "grep": grep, "head": _part(False),
    "ls": ls, "md5sum": _digest("md5"), "mkdir": mkdir, "mv": mv, "rm": rm, "rmdir": rmdir,
    "sha1sum": _digest("sha1"), "sha256sum": _digest("sha256"), "sort": sort, "stat": stat_command,
    "tail": _part(True), "tee": tee, "touch": touch, "wc": wc,
}  # fmt: skip
"""By name."""
