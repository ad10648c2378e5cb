# SPDX-License-Identifier: Apache-2.0
"""Keys of adb's clients: which a phone knows, and whether a signature is one of theirs."""

from __future__ import annotations

import base64
import binascii
import hmac
import struct
from pathlib import Path

from hexforge.formats.files import write_atomically

_WORDS = 64
_BYTES = 4 * _WORDS
_KEY = struct.Struct(f"<II{_BYTES}s{_BYTES}sI")
"""Android's public key: words of the modulus, a factor of Montgomery's, the modulus, another factor, the exponent."""
_EXPONENTS = (3, 65537)
_SHA1 = bytes.fromhex("3021300906052b0e03021a05000414")
"""What stands before a SHA-1 digest in a signature (RFC 8017); a token takes the digest's place."""
_MOST_KEYS = 64
TOKEN_BYTES = 20


class KnownKeys:
    """The keys that may connect to a phone, in a file beside its storage, a line each."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "adb_keys"

    def _lines(self) -> list[str]:
        return self._path.read_text("ascii", "replace").splitlines() if self._path.is_file() else []

    def add(self, key: bytes) -> bool:
        """Remember a key, the oldest of too many forgotten; False where it is none."""
        line = key.rstrip(b"\0").decode("ascii", "replace").strip()
        if _numbers(line) is None or "\n" in line or len(line) > 1024:
            return False
        lines = [known for known in self._lines() if known != line][1 - _MOST_KEYS :]
        write_atomically(self._path, "\n".join([*lines, line, ""]).encode("ascii", "replace"))
        return True

    def signed(self, token: bytes, signature: bytes) -> bool:
        """Whether a key that is known signed a token."""
        if len(signature) != _BYTES:
            return False
        digest = _SHA1 + token
        expected = b"\0\1" + b"\xff" * (_BYTES - len(digest) - 3) + b"\0" + digest
        for numbers in map(_numbers, self._lines()):
            if numbers is None:
                continue
            modulus, exponent = numbers
            opened = pow(int.from_bytes(signature, "big"), exponent, modulus).to_bytes(_BYTES, "big")
            if hmac.compare_digest(opened, expected):
                return True
        return False


def _numbers(line: str) -> tuple[int, int] | None:
    """The modulus and exponent of a key, whose owner's name may follow it; None where it is none."""
    try:
        words, _, modulus, _, exponent = _KEY.unpack(base64.b64decode(line.split(" ")[0], validate=True))
    except (binascii.Error, struct.error, ValueError):
        return None
    number = int.from_bytes(modulus, "little")
    return (number, exponent) if words == _WORDS and exponent in _EXPONENTS and number % 2 else None
