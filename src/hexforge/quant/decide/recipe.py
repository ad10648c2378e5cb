# SPDX-License-Identifier: Apache-2.0
"""Recipes: how many bits weights and activations get, and what is different for some ops, nodes and tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from hexforge.ir import DType

FLOAT_WORDS = ("float", "fp16")


@dataclass(frozen=True, slots=True)
class Override:
    """An exception: what it speaks of and what is different there; None where it says nothing."""

    kind: Literal["op", "node", "tensor"]
    pattern: str
    activation: DType | None = None
    weight: DType | None = None
    per_channel: bool | None = None
    block: int | None = None
    leave_float: bool | None = None
    method: str | None = None
    symmetric: bool | None = None
    low: float | None = None
    high: float | None = None

    def fits(self, *words: str) -> bool:
        """True where one of the words matches the pattern."""
        return any(word == self.pattern or fnmatchcase(word, self.pattern) for word in words)

    def __str__(self) -> str:
        return f"{self.kind}:{self.pattern}"

    @property
    def says_more(self) -> bool:
        """True where it says more than a precision."""
        return any(setting is not None for setting in (self.method, self.symmetric, self.low, self.high))

    def to_mapping(self) -> dict[str, Any]:
        """What a tensor's exception holds in a file."""
        settings = {"type": _bits(self) or None, "min": self.low, "max": self.high, "symmetric": self.symmetric}
        return {key: value for key, value in (settings | {"method": self.method}).items() if value is not None}


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a model is quantized; `rules` are tried in order, what a later one says wins."""

    name: str
    activation: DType | None
    """None: activations stay float."""
    weight: DType
    per_channel: bool = False
    block: int = 0
    method: str = "minmax"
    weight_method: str = "minmax"
    improve: tuple[str, ...] = ()
    rules: tuple[Override, ...] = ()
    weight_steps: tuple[int, int] | None = None
    """The integers that weights of its own bits may have, where not all that the type has and HTP takes."""

    def at_node(self, op_type: str, name: str) -> Recipe:
        """The recipe of one node, with all rules for that node applied."""
        return self._with(r for r in self.rules if (r.kind == "op" and r.fits(op_type)) or _names(r, name))

    def explicit(self, op_type: str, name: str) -> bool:
        """True where a rule says the precision of this node."""
        return any(
            (r.activation is not None or r.leave_float is not None)
            and ((r.kind == "op" and r.fits(op_type)) or _names(r, name))
            for r in self.rules
        )

    def at_tensor(self, name: str) -> Override | None:
        """What the rules say of one tensor, joined; None where they say nothing."""
        joined: Override | None = None
        for rule in self.rules:
            if rule.kind == "tensor" and rule.fits(name):
                settings = {f.name: v for f in fields(rule) if (v := getattr(rule, f.name)) is not None}
                joined = rule if joined is None else replace(joined, **settings)
        return joined

    def to_mapping(self) -> dict[str, Any]:
        """What a file holds that `recipe` reads as this one, but for its name."""
        line, nodes = [self._line()], {}
        tensors: dict[str, dict[str, Any]] = {}
        for i, rule in enumerate(self.rules):
            before, after = self.rules[:i], self.rules[i + 1 :]
            if rule.kind == "tensor" and any(r.says_more for r in (*before, rule)):
                tensors[rule.pattern] = tensors.get(rule.pattern, {}) | rule.to_mapping()
            elif rule.kind == "node" and not any(r.kind == "op" or r.pattern == rule.pattern for r in after):
                nodes[rule.pattern] = _bits(rule)
            else:  # a file's nodes come after all that the line says
                line.append(f"{rule}={_bits(rule)}")
        mapping: dict[str, Any] = {"recipe": "; ".join(line)}
        return mapping | ({"nodes": nodes} if nodes else {}) | ({"tensors": tensors} if tensors else {})

    def _line(self) -> str:
        """The recipe without its rules, as text."""
        words = [_bits(self) if self.activation is not None else FLOAT_WORDS[0]]
        words += [self.method] if self.method != "minmax" else []
        words += [f"weight={self.weight_method}"] if self.weight_method != "minmax" else []
        words += ["steps={}:{}".format(*map(hex, self.weight_steps))] if self.weight_steps is not None else []
        return "+".join((*words, *self.improve))

    def _with(self, rules: Iterable[Override]) -> Recipe:
        changed = replace(self, rules=())
        for rule in rules:
            if rule.leave_float:
                changed = replace(changed, activation=None)
            if rule.activation is not None:
                changed = replace(changed, activation=rule.activation)
            if rule.weight is not None:
                changed = replace(changed, weight=rule.weight)
            if rule.per_channel is not None:
                changed = replace(changed, per_channel=rule.per_channel, block=rule.block or 0)
            if rule.method is not None:
                changed = replace(changed, method=rule.method)
        return changed


def _bits(precision: Recipe | Override) -> str:
    """The precision as text; an exception's says all of it: `w8a8_tensor` has one scale, `w8a8` as many as before."""
    if isinstance(precision, Override) and precision.leave_float:
        return FLOAT_WORDS[0]
    text = "" if precision.weight is None else f"w{precision.weight.bits}"
    text += "" if precision.activation is None else f"a{precision.activation.bits}"
    if precision.per_channel is None or (
        isinstance(precision, Recipe)
        and not precision.block
        and precision.per_channel == per_channel_by_default(precision.weight)
    ):
        return text
    return text + (
        f"_block[{precision.block}]" if precision.block else "_channel" if precision.per_channel else "_tensor"
    )


def per_channel_by_default(weight: DType) -> bool:
    """Whether weights have a scale per channel where a recipe does not say so."""
    return weight.bits == 4


def _names(rule: Override, name: str) -> bool:
    return rule.kind == "node" and rule.fits(name)
