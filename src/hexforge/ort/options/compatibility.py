# SPDX-License-Identifier: Apache-2.0
"""Compatibility: options as the QNN EP takes them, where a session asks for that (hexforge.compatibility=ep).

What the EP does with each kind of fault was seen by giving it to onnxruntime-qnn 2.7.0: a key that nobody knows is
ignored; a value that is none of an option's is told, and the default taken; some faults keep the provider from being
made, and the session falls back to the CPU provider; a bad priority keeps its backend from starting, and every node
stays with the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hexforge.errors import CallError, HexforgeError
from hexforge.ort.options.config import KEY, LIKE_THE_EP, PROVIDER_PREFIX, Entries, sort_entries, sort_run_entries
from hexforge.ort.options.provider_options import ProviderOptions

_MUST_BE_NUMBERS = ("rpc_control_latency", "device_id")
"""Options whose text the EP reads as a number without a guard: the provider is not made."""


class ProviderNotMadeError(HexforgeError):
    """The EP would not be made, and a session in Python falls back to the CPU provider."""


@dataclass(slots=True)
class _Default:
    compatibility: str = ""


_DEFAULT = _Default()


def be_like_the_ep() -> None:
    """Let every session of this process that does not say otherwise have hexforge.compatibility=ep."""
    _DEFAULT.compatibility = LIKE_THE_EP


def wants_the_ep(given: Mapping[str, str]) -> bool:
    """True where session config entries, or the process, ask for the EP's own habits."""
    return given.get(KEY, _DEFAULT.compatibility).strip().lower() == LIKE_THE_EP


@dataclass(frozen=True, slots=True)
class ParsedOptions:
    """The options of a session."""

    entries: Entries
    options: ProviderOptions
    warnings: tuple[str, ...] = ()
    """What is wrong with them, where that is tolerated."""
    no_backend: str = ""
    """Why the EP's backend would not start, so that every node stays with the CPU."""


def tolerate(given: Mapping[str, str], provider: Mapping[str, str]) -> ParsedOptions:
    """Options as the EP would understand them, and what is wrong with what was given.

    ProviderNotMadeError where the EP is not made.
    """
    warnings: list[str] = []
    entries = dict(given) | {KEY: LIKE_THE_EP}
    sorted_entries = sort_entries(_without_faults(entries, warnings, sort_entries))
    if provider.get("backend_type") and provider.get("backend_path"):
        raise ProviderNotMadeError("Only one of 'backend_type' and 'backend_path' can be given")
    for key in _MUST_BE_NUMBERS:
        text = provider.get(key, "0").strip()
        if not text.lstrip("+-").isdigit():
            raise ProviderNotMadeError(f"provider option {key!r} is {text!r}, which is no number")
    known = {option.key: option for option in ProviderOptions.table()}
    kept: dict[str, str] = {}
    no_backend = ""
    for key, text in provider.items():
        if key not in known:
            warnings.append(f"unknown provider option {key!r} is ignored")
            continue
        try:
            known[key].read(str(text).strip())
        except ValueError as error:
            warnings.append(f"provider option {key!r} is {text!r}: {error}; the default is taken")
            if key == "qnn_context_priority":
                no_backend = f"QNN SetupBackend failed: invalid QNN context priority {text!r}"
            continue
        kept[key] = text
    try:
        options = ProviderOptions.parse(kept)
    except CallError as error:  # of a library's name, or options that exclude each other: the EP would not start
        options, no_backend = ProviderOptions(), no_backend or f"QNN SetupBackend failed: {error}"
    if no_backend:
        warnings.append(f"{no_backend}; every node runs on the CPU")
    return ParsedOptions(sorted_entries, options, tuple(warnings), no_backend)


def tolerated_run_entries(entries: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Run config entries without those that are unknown or have a value that is none, and what was left out."""
    faults: list[str] = []
    return _without_faults(entries, faults, sort_run_entries), faults


def _without_faults(
    entries: Mapping[str, str], faults: list[str], read: Callable[[Mapping[str, str]], object]
) -> dict[str, str]:
    kept: dict[str, str] = {}
    for key, text in entries.items():
        try:
            read({key: text})
        except CallError as error:
            faults.append(f"{error}: ignored")
        else:
            kept[key] = text
    return kept


def provider_entries(given: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """The provider's options of a call, and those under its prefix among the session config entries."""
    prefixed = {k.removeprefix(PROVIDER_PREFIX): v for k, v in given.items() if k.startswith(PROVIDER_PREFIX)}
    return {**prefixed, **wanted}
