# SPDX-License-Identifier: Apache-2.0
"""Which execution providers a session was asked for, and with what options."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime

from hexforge.errors import CallError
from hexforge.options import did_you_mean
from hexforge.runtime.cpu_part import CPU, QNN

PROVIDERS = (QNN, *onnxruntime.get_available_providers())
"""Execution providers a session can be made with."""
KNOWN_PROVIDERS = (QNN, *onnxruntime.get_all_providers())
"""Those, and the ones onnxruntime knows by name; it warns of those that this build lacks."""


def get_available_providers() -> list[str]:
    """The execution providers a session can be made with, QNNExecutionProvider first."""
    return list(PROVIDERS)


Requested = dict[str, dict[str, str]]
"""Provider -> options, in order of preference."""


def providers_of_call(providers: Any, provider_options: Any) -> Requested:
    """The providers of a call with their options as texts; CallError for what onnxruntime does not allow either."""
    if providers is None:
        if provider_options:
            raise CallError("provider_options is given without providers; give both, one entry for each")
        return {}
    if isinstance(providers, str) or not isinstance(providers, Sequence):
        raise CallError("'providers' must be a sequence, e.g. ['QNNExecutionProvider', 'CPUExecutionProvider']")
    if provider_options is not None:
        _check_options(providers, provider_options)
        providers = list(zip(providers, provider_options, strict=True))
    by_name: Requested = {}
    faults = []
    for provider in providers:
        name, options = (provider, {}) if isinstance(provider, str) else _pair(provider)
        if name not in KNOWN_PROVIDERS:
            listed = ", ".join(PROVIDERS)
            faults.append(f"unknown execution provider {name!r}; available are {listed}{did_you_mean(name, PROVIDERS)}")
        elif name in by_name:
            warnings.warn(f"Duplicate provider {name!r} encountered, ignoring.", stacklevel=4)
        else:
            by_name[name] = {str(key): str(value) for key, value in options.items()}
    if faults:
        raise CallError("\n".join(faults))
    return by_name


def uses_qnn(asked: Requested) -> bool:
    """True where QNNExecutionProvider is asked for before the CPU, which would take every node."""
    names = list(asked)
    return QNN in names and (CPU not in names or names.index(QNN) < names.index(CPU))


def _pair(provider: Any) -> tuple[str, Mapping[Any, Any]]:
    if isinstance(provider, tuple) and len(provider) == 2:
        name, options = provider
        if isinstance(name, str) and isinstance(options, Mapping):
            return name, options
    raise CallError(f"'providers' has {provider!r}; each must be a name or a (name, options dict) tuple")


def _check_options(providers: Sequence[Any], options: Any) -> None:
    if isinstance(options, (str, Mapping)) or not isinstance(options, Sequence):
        raise CallError("'provider_options' must be a sequence of dicts, one for each of 'providers'")
    if len(providers) != len(options):
        counts = f"{len(providers)} entries and 'provider_options' {len(options)}"
        raise CallError(f"'providers' has {counts}; give one for each")
    if not all(isinstance(p, str) for p in providers):
        raise CallError("'providers' must be names where 'provider_options' is given")
    if not all(isinstance(o, Mapping) for o in options):
        raise CallError("'provider_options' must be dicts")
