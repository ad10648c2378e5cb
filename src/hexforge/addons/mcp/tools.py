# SPDX-License-Identifier: Apache-2.0
"""The tools: which commands an agent can call, what each may change, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from hexforge.addon import import_target
from hexforge.cli.command_forms import CommandForm, command_form
from hexforge.results import schema

KEYS, EVERYTHING = "keys", "everything"
_MOST_ITEMS = 25
"""Of a list in an answer, unless everything is asked for: an agent reads every one of them."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that an agent can call."""

    command: str
    writes: bool = False
    """Whether it writes files, always into new ones that the agent names or below the model's folder."""

    @property
    def name(self) -> str:
        """As the agent calls it."""
        return self.command.replace(" ", "_").replace("-", "_")

    @property
    def form(self) -> CommandForm:
        """What it can be given."""
        return command_form(self.command)

    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of what it can be given, and of how much of the answer is wanted."""
        made = self.form.schema()
        if self.form.prints_json:
            made["properties"][KEYS] = {
                "type": "array", "items": {"type": "string"},
                "description": "Only these keys of the answer, each whole.",
            }  # fmt: skip
            made["properties"][EVERYTHING] = {
                "type": "boolean", "default": False,
                "description": f"The whole answer, lists of more than {_MOST_ITEMS} items too.",
            }  # fmt: skip
        return made

    def output_schema(self) -> dict[str, Any]:
        """The JSON schema of what it answers."""
        gives = self.form.gives
        made = schema(import_target(gives)) if gives else {"type": "object"}
        return made | {"additionalProperties": True}


TOOLS = (
    Tool("check"),
    Tool("estimate"),
    Tool("advise", writes=True),
    Tool("quantize", writes=True),
    Tool("compare"),
    Tool("optimize", writes=True),
    Tool("search", writes=True),
    Tool("compile", writes=True),
    Tool("run", writes=True),
    Tool("convert", writes=True),
    Tool("info"),
    Tool("whatif"),
    Tool("diff"),
    Tool("gate", writes=True),
    Tool("doctor"),
    Tool("explain"),
    Tool("versions"),
    Tool("socs"),
    Tool("ops"),
    Tool("options"),
    Tool("llm estimate"),
    Tool("llm models"),
)
"""In the order in which an agent reads them."""


@cache
def tools() -> dict[str, Tool]:
    """The tools by their names."""
    return {tool.name: tool for tool in TOOLS}


def answer(data: Any, keys: list[str], everything: bool) -> dict[str, Any]:
    """What a tool answers of what its command printed: an object, with the keys that are wanted and short lists."""
    whole = data if isinstance(data, dict) else {"items": data}
    if keys:
        unknown = [key for key in keys if key not in whole]
        return {key: whole[key] for key in keys if key in whole} | ({"no_such_keys": unknown} if unknown else {})
    return whole if everything else {key: _short(value) for key, value in whole.items()}


def _short(value: Any) -> Any:
    """A value whose lists are cut, with a last item that says so where items are texts or objects."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    kept = [_short(item) for item in value[:_MOST_ITEMS]]
    left = len(value) - len(kept)
    if not left or not isinstance(value[0], str | dict):
        return kept
    note = f"{left} more; ask with {KEYS} or {EVERYTHING}"
    return [*kept, note if isinstance(value[0], str) else {"left_out": note}]
