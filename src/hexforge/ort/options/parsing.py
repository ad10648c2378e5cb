# SPDX-License-Identifier: Apache-2.0
"""The options of a session as they were given, parsed; what is wrong with them and what changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hexforge.errors import CallError, UnsupportedError
from hexforge.options import OptionTable
from hexforge.ort.options.compatibility import ParsedOptions, provider_entries, tolerate, wants_the_ep
from hexforge.ort.options.config import (
    ORT_SESSION_KEYS,
    PROVIDER_PREFIX,
    DynamicOptions,
    Entries,
    RunConfig,
    SessionConfig,
    sort_entries,
)
from hexforge.ort.options.provider_options import ProviderOptions
from hexforge.ort.options.providers import Requested
from hexforge.ort.options.session_options import replaced_initializers, session_entries
from hexforge.runtime.cpu_part import QNN

OPTION_TABLES: dict[str, type[OptionTable]] = {
    "provider options": ProviderOptions,
    "session config keys": SessionConfig,
    "run config keys": RunConfig,
    "dynamic options": DynamicOptions,
}
"""Every table of options of a session, by what it is called."""


def given_entries(sess_options: Any) -> dict[str, str]:
    """The session config entries that were given."""
    keys = [o.key for o in SessionConfig.table()] + sorted(ORT_SESSION_KEYS)
    keys += [PROVIDER_PREFIX + o.key for o in ProviderOptions.table()]
    return session_entries(sess_options, keys)


def parse_options(sess_options: Any, wanted: Requested) -> ParsedOptions:
    """Options and config entries, every fault of both at once; or as the EP takes them, where that is asked for."""
    given = given_entries(sess_options)
    provider = provider_entries(given, wanted[QNN])
    parsed = tolerate(given, provider) if wants_the_ep(given) else _parsed(given, provider)
    _refuse(parsed.entries, sess_options)
    return parsed


def _parsed(given: Mapping[str, str], provider: Mapping[str, str]) -> ParsedOptions:
    faults: list[str] = []
    entries = Entries(SessionConfig(), {}, {})
    options = ProviderOptions()
    try:
        entries = sort_entries(given)
    except CallError as error:
        faults.append(str(error))
    try:
        options = ProviderOptions.parse(provider)
    except CallError as error:
        faults.append(str(error))
    if faults:
        raise CallError("\n".join(faults))
    return ParsedOptions(entries, options)


def _refuse(entries: Entries, sess_options: Any) -> None:
    if entries.config.load_model_format == "ORT":
        raise UnsupportedError(f"session.load_model_format=ORT: {QNN} reads ONNX; give the .onnx file")
    if replaced := replaced_initializers(sess_options):
        names = ", ".join(map(repr, replaced))
        raise UnsupportedError(f"SessionOptions replaces initializers {names}: {QNN} does not; save them in the model")


def attribute_notes(sess_options: Any) -> list[str]:
    """One line for each attribute of SessionOptions that was set and changes nothing."""
    notes = []
    if sess_options.optimized_model_filepath:
        notes.append("optimized_model_filepath has no effect: ep.context_enable=1 writes a model that has QNN graphs")
    if sess_options.execution_mode.name != "ORT_SEQUENTIAL":
        notes.append("execution_mode has an effect only inside the CPU parts: the parts run one after another")
    return notes
