# SPDX-License-Identifier: Apache-2.0
"""Validated: records out of data that somebody else wrote, checked by the types of their fields, every fault at once.

A record is a frozen dataclass, or a pydantic model where its fields are described for a schema. Its annotations say
all: which keys there are, what each may hold, and which may be left out. `Within`, `OneOf`, `ByName` and `OneOrMore`
say what types alone cannot. Nothing is taken for something else: "1" is no number, and true is no whole number.

pydantic is loaded when something is first validated, so declaring a record costs nothing when a program starts.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
import re
import reprlib
import typing
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args, get_origin

from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.options import did_you_mean

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import CoreSchema, ErrorDetails

Record = TypeVar("Record")
MOST_FAULTS = 20
"""Faults that a message lists; of more it says how many."""
_RULES = {"extra": "forbid", "strict": True, "allow_inf_nan": False}
"""What holds for every record: no key that nobody reads, no number written as a text, neither NaN nor infinities."""
_WANTED = {
    "string_type": "a text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "dataclass_type": "an object",
    "model_type": "an object",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "multiple_of": "a multiple of {multiple_of}",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
    "literal_error": "{expected}",
}
"""What would work, by what pydantic calls the fault."""
_UNKNOWN, _MISSING = ("extra_forbidden", "unexpected_keyword_argument"), ("missing", "missing_argument")


def validated(kind: type[Record], data: Any, where: str, error: type[HexforgeError] = CallError) -> Record:
    """The record that plain data make, as JSON and YAML give them; `error` with every fault and its place otherwise.

    Data that are no object at all are a FormatError: the file is another one.
    """
    from pydantic_core import PydanticSerializationError, to_json

    try:
        raw = to_json(data)
    except (PydanticSerializationError, ValueError) as problem:
        raise error(f"{where}: holds what no JSON does: {problem}") from None
    return validated_json(kind, raw, where, error)


def validated_json(kind: type[Record], raw: bytes, where: str, error: type[HexforgeError] = CallError) -> Record:
    """The record that the bytes of a JSON text make; `error` with every fault and its place otherwise."""
    from pydantic import ValidationError
    from pydantic_core import from_json

    try:
        record: Record = _adapter(cast(Any, kind)).validate_json(raw)
    except ValidationError as problem:
        faults = problem.errors(include_url=False)
        if faults[0]["type"] == "json_invalid":
            raise error(f"{where}: is no JSON: {faults[0]['ctx']['error']}") from None
        if not faults[0]["loc"]:
            shown, known = reprlib.repr(faults[0]["input"]), ", ".join(_known_keys(kind, ()))
            raise FormatError(f"{where}: is {shown}: expected an object with {known}") from None
        lines = [f"{where}: {line}" for line in _fault_lines(kind, from_json(raw), faults)]
        more = [f"{where}: and {len(lines) - MOST_FAULTS} more"] if len(lines) > MOST_FAULTS else []
        raise error("\n".join(lines[:MOST_FAULTS] + more)) from None
    return record


def arguments(
    made: Callable[..., Any], data: Any, where: str, *, without: Sequence[str] = (), **types: Any
) -> dict[str, Any]:
    """The keyword arguments that data give for a function, a method or a record, checked by their annotations.

    `without` are parameters that do not come from data; `types` says for some what they are in data. What the data
    leave out is left out, for the own default. CallError with every fault and its place otherwise.
    """
    function = getattr(made, "__func__", made)  # of a method, so that no object is kept
    record = validated(_parameters(function, tuple(without), tuple(types.items())), data, where)
    given = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    return {name: value for name, value in given.items() if value is not _LEFT_OUT}


_LEFT_OUT: Any = object()


def _without_result(function: Callable[..., Any]) -> type:
    """The annotations of a function but that of its result, which may name what only type checkers know."""
    own = {name: hint for name, hint in function.__annotations__.items() if name != "return"}
    return type("Parameters", (), {"__annotations__": own, "__module__": function.__module__})


@functools.cache
def _parameters(made: Callable[..., Any], without: tuple[str, ...], types: tuple[tuple[str, Any], ...]) -> Any:
    """The parameters of a function as a record."""
    annotated = made if isinstance(made, type) else _without_result(made)
    hints = {**typing.get_type_hints(annotated, include_extras=True), **dict(types)}
    fields = []
    for name, parameter in inspect.signature(made).parameters.items():
        if name != "self" and name not in without:
            default = dataclasses.MISSING if parameter.default is parameter.empty else _LEFT_OUT
            fields.append((name, hints[name], dataclasses.field(default=default)))
    return dataclasses.make_dataclass(made.__name__, fields, frozen=True, slots=True, kw_only=True)


def size_of(record: Any, name: str, default: int = 0) -> int:
    """A size that a record has as `<name>_bytes`, or as `<name>_mb`; CallError where it has both."""
    return one_size(name, getattr(record, f"{name}_bytes"), getattr(record, f"{name}_mb"), default)


def one_size(name: str, size_bytes: int | None, megabytes: float | None, default: int = 0) -> int:
    """A size that is given in bytes, or in megabytes of 2**20; CallError where it is given twice."""
    if size_bytes is not None and megabytes is not None:
        raise CallError(f"give {name}_mb or {name}_bytes, not both")
    return round(megabytes * (1 << 20)) if megabytes is not None else default if size_bytes is None else size_bytes


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    if not hasattr(kind, "model_config"):
        kind.__pydantic_config__ = _RULES  # records in it have them, too
    return TypeAdapter(kind)


# -- what types alone cannot say --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Within:
    """A number from `low` to `high`, or a list of so many entries: `Annotated[int, Within(1, 64)]`."""

    low: float
    high: float = math.inf
    above: bool = False
    """Whether `low` itself is too little."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        """For pydantic: the bounds of the type's own check, told together."""
        from pydantic_core import core_schema

        schema: Any = handler(source)
        if schema["type"] not in ("int", "float"):
            return {**schema, "min_length": self.low, **({"max_length": self.high} if self.high < math.inf else {})}
        kind = "whole number" if schema["type"] == "int" else "number"
        wanted = f"a {kind} {'above' if self.above else 'of at least'} {_figure(self.low)}"
        wanted += f" and at most {_figure(self.high)}" if self.high < MOST else ""
        bounded: Any = {**schema, "gt" if self.above else "ge": self.low}
        bounded |= {"le": self.high} if self.high < math.inf else {}
        return core_schema.custom_error_schema(bounded, "not_within", custom_error_message=wanted)


MOST = (1 << 62) - 1
Count = Annotated[int, Within(0, MOST)]
Positive = Annotated[int, Within(1, MOST)]
Amount = Annotated[float, Within(0, 1e15)]
"""Of times in microseconds, sizes in megabytes and energies: thirty years, and no more than sums of them can hold."""


@dataclasses.dataclass(frozen=True, slots=True)
class OneOf:
    """One of some words that a table has: `Annotated[str, OneOf(PLATFORMS)]`; Literal says those that stand here."""

    words: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        """For pydantic: a literal."""
        from pydantic_core import core_schema

        return core_schema.literal_schema(list(self.words))


@dataclasses.dataclass(frozen=True, slots=True)
class ByName:
    """A member of an enum by its name: `Annotated[Priority, ByName()]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        """For pydantic: one of the names, and then its member."""
        from pydantic_core import core_schema

        names = core_schema.literal_schema(list(source.__members__))
        return core_schema.no_info_after_validator_function(source.__getitem__, names)


@dataclasses.dataclass(frozen=True, slots=True)
class OneOrMore:
    """A list, or one that stands for a list of itself: `Annotated[tuple[str, ...], OneOrMore()]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Callable[[Any], CoreSchema]) -> CoreSchema:
        """For pydantic: the list is made before it is checked."""
        from pydantic_core import core_schema

        made = get_origin(source)
        return core_schema.no_info_before_validator_function(
            lambda given: made(given if isinstance(given, list) else [given]), handler(source)
        )


def _figure(value: Any) -> str:
    """A number of a message: whole ones with all their digits."""
    return f"{value:,.0f}" if abs(value) < 1e15 and value == int(value) else f"{value:g}"


# -- messages ---------------------------------------------------------------------------------------------------------


def _fault_lines(kind: Any, data: Any, faults: Sequence[ErrorDetails]) -> list[str]:
    """A message for each fault: which key it is about, what is wrong, and what would work."""
    lines: dict[str, list[str]] = {}
    for fault in faults:
        if fault["type"] == "too_short" and len(fault["input"]) >= fault["ctx"]["min_length"]:
            continue  # only because entries of it are at fault, which are told themselves
        location, name, context = fault["loc"], fault["type"], _shown_context(fault)
        place, known = _place(location, data, name in _MISSING), _known_keys(kind, location[:-1])
        if name in _UNKNOWN:
            hint = did_you_mean(str(location[-1]), known) or f"; there are {', '.join(known)}"
            lines[f"{place}: unknown key{hint}"] = []
        elif name in _MISSING:
            lines[f"{place}: is missing"] = []
        else:
            wanted = _WANTED[name].format_map(context) if name in _WANTED else fault["msg"]
            if name == "literal_error":
                wanted += did_you_mean(str(fault["input"]), re.findall(r"'([^']*)'", wanted))
            shown = reprlib.repr(fault["input"])  # which may be as long as the file
            lines.setdefault(f"{place} is {shown}: expected ", []).append(wanted)  # one of several, at times
    return [start + " or ".join(wanted) for start, wanted in lines.items()]


def _shown_context(fault: ErrorDetails) -> dict[str, str]:
    """What pydantic says of a fault beside its kind, such as a bound."""
    context = fault.get("ctx", {})
    return {key: _figure(value) if isinstance(value, int | float) else str(value) for key, value in context.items()}


def _place(location: Sequence[int | str], data: Any, missing: bool) -> str:
    """Where in the data: `graphs[0].name`. What pydantic calls an alternative of a type is no place, and left out."""
    text = ""
    for number, part in enumerate(location, 1):
        inside = part in data if isinstance(data, dict) else isinstance(data, list) and isinstance(part, int)
        if inside or (missing and number == len(location)):
            text += f"[{part}]" if isinstance(part, int) else f".{part}"
            data = data[part] if inside else None
    return text.removeprefix(".")


def _known_keys(kind: Any, location: Sequence[int | str]) -> list[str]:
    """The keys of the record at a place of the data; of all records that can be there."""
    records = _records(kind)
    for part in location:
        records = [inner for one in records for inner in _records(_hints(one).get(str(part)))] or records
    return list(dict.fromkeys(key for one in records for key in _hints(one)))


def _records(hint: Any) -> list[Any]:
    """The records in a type: itself, the entries of a list, the alternatives of a union."""
    if isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "model_fields")):
        return [hint]
    return [inner for argument in get_args(hint) for inner in _records(argument)]


def _hints(record: Any) -> dict[str, Any]:
    """The fields of a record with their types."""
    if dataclasses.is_dataclass(record):
        return typing.get_type_hints(record, include_extras=True)
    return {name: field.annotation for name, field in record.model_fields.items()}
