# SPDX-License-Identifier: Apache-2.0
"""The fields of requests: each acts, or is refused by its name; one that nobody knows is refused as well.

A field that is refused may still be given as what it is without: `n` as 1, `tools` as an empty list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hexforge.options import did_you_mean

_ACTING = (
    "model", "max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty",
    "frequency_penalty", "logit_bias", "seed", "stop", "stream", "stream_options", "logprobs",
)  # fmt: skip
_ACTING_IN = {
    "chat": ("messages", "max_completion_tokens", "top_logprobs", "chat_template_kwargs"),
    "completion": ("prompt",),
}
_SAYING_WHO = ("user", "metadata", "safety_identifier", "prompt_cache_key")
"""What says who asks or what for; no answer depends on it."""


@dataclass(frozen=True, slots=True)
class RefusedField:
    """A field of OpenAI's that does nothing here, with the values that ask for nothing."""

    name: str
    neutral: tuple[Any, ...]
    instead: str
    """What would work."""


_REFUSED = (
    RefusedField("n", (1,), "ask once for each answer"),
    RefusedField("best_of", (1,), "ask once for each answer"),
    RefusedField("echo", (False,), "the prompt is known to who asks"),
    RefusedField("suffix", ("",), "put it into the prompt"),
    RefusedField("tools", ([],), "describe them in the first message"),
    RefusedField("tool_choice", ("none", "auto"), "there are no tools"),
    RefusedField("parallel_tool_calls", (True, False), "there are no tools"),
    RefusedField("functions", ([],), "describe them in the first message"),
    RefusedField("function_call", ("none", "auto"), "there are no functions"),
    RefusedField("response_format", ({"type": "text"},), "ask for the form in a message"),
    RefusedField("modalities", (["text"],), "answers are texts"),
    RefusedField("audio", (), "answers are texts"),
    RefusedField("prediction", (), "leave it out"),
    RefusedField("reasoning_effort", ("none",), "chat_template_kwargs hands a template's own words to it"),
    RefusedField("verbosity", ("medium",), "ask for it in a message"),
    RefusedField("service_tier", ("auto", "default"), "there is one"),
    RefusedField("store", (False,), "nothing is kept"),
    RefusedField("web_search_options", (), "nothing is searched"),
)


def field_fault(body: Mapping[str, Any], chat: bool) -> tuple[str, str] | None:
    """The first field of a request that would do nothing, and why; None where each acts or asks for nothing."""
    acting = {*_ACTING, *_ACTING_IN["chat" if chat else "completion"], *_SAYING_WHO}
    refused = {row.name: row for row in _REFUSED}
    for name, value in body.items():
        if name in acting:
            continue
        row = refused.get(name)
        if row is None:
            other = _ACTING_IN["completion" if chat else "chat"]
            why = (
                "is of the other endpoint" if name in other else f"is no field{did_you_mean(name, [*acting, *refused])}"
            )
            return name, f"{name!r:.60} {why}"
        if value is not None and not any(value == each and type(value) is type(each) for each in row.neutral):
            return name, f"{name} is not supported here: {row.instead}, and leave it out"
    return None


def fields_table() -> str:
    """The fields as a table for the documentation."""
    both = ", ".join(f"`{name}`" for name in _ACTING)
    lines = ["| fields | what |", "|---|---|", f"| {both} | act |"]
    for where, names in _ACTING_IN.items():
        lines.append(f"| {', '.join(f'`{name}`' for name in names)} | act in {where} requests |")
    lines.append(f"| {', '.join(f'`{name}`' for name in _SAYING_WHO)} | say who asks; no answer depends on them |")
    lines += [f"| `{row.name}` | refused: {row.instead} |" for row in _REFUSED]
    return "\n".join(lines)
