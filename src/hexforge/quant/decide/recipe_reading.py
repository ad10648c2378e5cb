# SPDX-License-Identifier: Apache-2.0
"""Recipe reading: a recipe out of a line of text or a small file.

w8a8                  8-bit weights and activations; w8a16, w16a16, w4a16 alike
w8a8_channel          a weight scale for every output channel; w4a16_block[64]: one for every 64 inputs of a channel
fp16                  nothing is quantized: float16 math
w8a8+percentile=99.9+equalize+bias      how ranges are found, and what betters the encodings
w16a16+steps=-0x8000:0x7f7f             the integers that weights may have: restrict_quantization_steps of QNN's tools
w8a8; MatMul=w8a16; /encoder/*=w8a16; tensor:logits=a16; /head/*=float       exceptions, the last that fits wins
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hexforge.errors import CallError
from hexforge.formats.json_text import read_yaml
from hexforge.ir import DType
from hexforge.options import did_you_mean
from hexforge.quant.decide.ranges import INT16_WEIGHT_RANGE
from hexforge.quant.decide.recipe import FLOAT_WORDS, Override, Recipe, per_channel_by_default

METHODS = ("minmax", "moving_average", "percentile", "entropy", "mse")
WEIGHT_METHODS = ("minmax", "mse")
IMPROVEMENTS = ("equalize", "bias", "adaround", "seqmse", "range")
BLOCK = 32

_ACTIVATIONS = {8: DType.UINT8, 16: DType.UINT16}
_WEIGHTS = {4: DType.INT4, 8: DType.INT8, 16: DType.INT16}
_BITS = re.compile(r"(?:w(?P<w>\d+))?(?:a(?P<a>\d+))?(?P<tail>_[a-z]+(?:\[\d+\])?)?")
_SECTIONS = {"ops": "op", "nodes": "node", "tensors": "tensor"}
_KEYS = ("recipe", "method", "weight_method", "improve", *_SECTIONS)
_TENSOR_KEYS = ("type", "min", "max", "symmetric", "method")


def recipe(text_or_path: str | Path) -> Recipe:
    """The recipe of a line of text, or of a .yaml or .json file; CallError that names every fault."""
    text = str(text_or_path).strip()
    if isinstance(text_or_path, Path) or text.lower().endswith((".yaml", ".yml", ".json")):
        return _from_file(Path(text))
    faults: list[str] = []
    parsed = _from_text(text, faults)
    _raise(f"recipe {text!r}", faults)
    assert parsed is not None
    return parsed


def _raise(where: str, faults: list[str]) -> None:
    if faults:
        raise CallError(f"{where}: " + "; ".join(faults))


# -- text -----------------------------------------------------------------------------------------------------------


def _from_text(text: str, faults: list[str]) -> Recipe | None:
    first, *rest = (part.strip() for part in text.split(";"))
    base = _base(first, text, faults)
    rules = [_rule(part, faults) for part in rest if part]
    return None if base is None else replace(base, rules=tuple(r for r in rules if r is not None))


def _base(text: str, name: str, faults: list[str]) -> Recipe | None:
    precision, *words = (word.strip() for word in text.split("+"))
    settings = _precision(precision, faults, "a recipe starts with its precision")
    if settings is None:
        return None
    if not settings.get("leave_float") and ("weight" not in settings or "activation" not in settings):
        faults.append(f"{precision!r} says the bits of one side only; write both, such as w8a8")
        return None
    weight = settings.get("weight", DType.INT8)
    if weight is DType.INT16 and settings.get("activation") is DType.UINT8:
        faults.append(f"{precision!r}: HTP multiplies 16-bit weights by 16-bit activations only; write w16a16 or w8a8")
    method, improve = "minmax", []
    weight_method, steps = "minmax", None
    for word in words:
        if word in IMPROVEMENTS:
            improve.append(word)
        elif word.startswith("steps="):
            steps = _steps(word.removeprefix("steps=").replace(":", " "), weight, faults)
        elif word.startswith("weight="):
            weight_method = word.removeprefix("weight=")
            _check_word(weight_method, WEIGHT_METHODS, "method for weights", faults)
        else:
            method = word
            _check_method(word, faults, (*IMPROVEMENTS, *METHODS))
    return Recipe(
        name, settings.get("activation"), weight, bool(settings.get("per_channel", per_channel_by_default(weight))),
        settings.get("block") or 0, method, weight_method, tuple(improve),
        weight_steps=steps,
    )  # fmt: skip


def restricted(chosen: Recipe, text: str) -> Recipe:
    """A recipe with the integers of its weights restricted as QNN's tools spell it: "-0x8000 0x7F7F"."""
    faults: list[str] = []
    steps = _steps(text, chosen.weight, faults)
    _raise("restrict_quantization_steps", faults)
    return replace(chosen, weight_steps=steps)


def _steps(text: str, weight: DType, faults: list[str]) -> tuple[int, int] | None:
    """Two hexadecimal numbers, the least and the most integer that weights may have."""
    least, most = INT16_WEIGHT_RANGE if weight is DType.INT16 else weight.range
    try:
        low, high = (int(word, 16) for word in text.split())
    except ValueError:
        faults.append(f'{text!r} is not two hexadecimal numbers, such as "-0x8000 0x7F7F"')
        return None
    if not least <= low < 0 < high <= most:
        faults.append(f"{low:#x} {high:#x}: {weight.value} weights on HTP are within {least:#x} {most:#x}, around 0")
        return None
    return low, high


def _precision(text: str, faults: list[str], where: str) -> dict[str, Any] | None:
    """What `w8a16_channel`, `a16` or `float` says, as fields of an Override."""
    if text.lower() in FLOAT_WORDS:
        return {"leave_float": True}
    match = _BITS.fullmatch(text.lower())
    if not text or match is None or (match["w"] is None and match["a"] is None):
        known = ("w8a8", "w8a16", "w16a16", "w4a16", "w4a16_block", "w8a8_channel", "fp16", "float")
        faults.append(f"{where}: {text!r} is not one of {', '.join(known)}{did_you_mean(text, known)}")
        return None
    settings: dict[str, Any] = {}
    if match["w"] is not None:
        if int(match["w"]) not in _WEIGHTS:
            faults.append(f"{text!r}: weights have 4, 8 or 16 bits, not {match['w']}")
        settings["weight"] = _WEIGHTS.get(int(match["w"]), DType.INT8)
    if match["a"] is not None:
        if int(match["a"]) not in _ACTIVATIONS:
            faults.append(f"{text!r}: activations have 8 or 16 bits, not {match['a']}")
        settings["activation"] = _ACTIVATIONS.get(int(match["a"]), DType.UINT8)
    tail, _, size = (match["tail"] or "").rstrip("]").partition("[")
    if tail == "_channel" and not size:
        settings["per_channel"], settings["block"] = True, 0
    elif tail == "_tensor" and not size:
        settings["per_channel"], settings["block"] = False, 0
    elif tail == "_block":
        block = int(size or BLOCK)
        settings["per_channel"], settings["block"] = True, block
        if block < 1:
            faults.append(f"{text!r}: a block has at least one element")
        if settings.get("weight") not in (DType.INT4, DType.INT8):
            faults.append(f"{text!r}: block scales are for weights of 4 or 8 bits; write w4 or w8 before them")
    elif tail:
        tails = ("_channel", "_tensor", f"_block[{BLOCK}]")
        faults.append(f"{text!r}: {tail!r} is not one of {', '.join(tails)}{did_you_mean(tail, tails)}")
    return settings


def _rule(text: str, faults: list[str]) -> Override | None:
    key, equals, value = (part.strip() for part in text.rpartition("="))
    if not key or not equals:
        faults.append(f"{text!r}: an exception is written WHAT=PRECISION, such as MatMul=w8a16")
        return None
    prefix, colon, rest = key.partition(":")
    kinds = ("op", "node", "tensor")
    if colon and prefix in kinds:
        return _override(prefix, rest, value, faults)
    if colon and did_you_mean(prefix, kinds):
        faults.append(f"{text!r}: {prefix!r} is none of {', '.join(kinds)}{did_you_mean(prefix, kinds)}")
        return None
    return _override("op" if is_op_type(key) else "node", key, value, faults)


def is_op_type(word: str) -> bool:
    """True for a word that ONNX has an op type of."""
    import onnx

    return onnx.defs.has(word) or onnx.defs.has(word, "com.microsoft") or word in _CONTRIBUTED


_CONTRIBUTED = frozenset("FusedMatMul QuickGelu SimplifiedLayerNormalization Gelu".split())


def _override(kind: str, pattern: str, value: str, faults: list[str]) -> Override | None:
    if not pattern:
        faults.append(f"'{kind}:' names nothing")
        return None
    settings = _precision(value, faults, f"{pattern}={value}")
    return None if settings is None else Override(kind, pattern, **settings)  # type: ignore[arg-type]


def _check_word(word: str, known: Iterable[str], kind: str, faults: list[str]) -> None:
    known = tuple(known)
    if word not in known:
        faults.append(f"{word!r} is no {kind}; there are {', '.join(known)}{did_you_mean(word, known)}")


def _check_method(text: str, faults: list[str], known: tuple[str, ...] = METHODS) -> None:
    """`percentile=99.9`, or another method by its name."""
    name, equals, number = text.partition("=")
    if name not in METHODS:
        kind = "method of finding ranges" if known == METHODS else "method of finding ranges and no improvement"
        _check_word(name, known, kind, faults)
    elif equals and name != "percentile":
        faults.append(f"{text!r}: only percentile takes a number")
    elif equals:
        try:
            fits = 50 < float(number) <= 100
        except ValueError:
            fits = False
        if not fits:
            faults.append(f"{text!r}: a percentile is a number above 50, at most 100")


def check_method(text: str) -> str:
    """`text` where it is a method of finding ranges; CallError otherwise."""
    faults: list[str] = []
    _check_method(text, faults)
    _raise("method", faults)
    return text


# -- files ----------------------------------------------------------------------------------------------------------


def _from_file(path: Path) -> Recipe:
    data = read_yaml(path)
    if not isinstance(data, dict):
        raise CallError(f"recipe {path}: expected keys and values ({', '.join(_KEYS)}), found {type(data).__name__}")
    faults: list[str] = []
    parsed = _from_mapping(data, path.name, faults)
    _raise(f"recipe {path}", faults)
    assert parsed is not None
    return parsed


def _from_mapping(data: Mapping[Any, Any], name: str, faults: list[str]) -> Recipe | None:
    for key in data:
        if key not in _KEYS:
            faults.append(f"key {key!r} is unknown; there are {', '.join(_KEYS)}{did_you_mean(str(key), _KEYS)}")
    base = data.get("recipe", "w8a8")
    parsed = _from_text(base, faults) if isinstance(base, str) else None
    if not isinstance(base, str):
        faults.append(f"recipe: {base!r} is no text such as w8a8")
    method, weight_method = data.get("method"), data.get("weight_method")
    improve = data.get("improve", ())
    if method is not None:
        _check_method(str(method), faults)
    if weight_method is not None:
        _check_word(str(weight_method), WEIGHT_METHODS, "method for weights", faults)
    improve = [improve] if isinstance(improve, str) else improve
    if not isinstance(improve, (list, tuple)):
        faults.append(f"improve: {improve!r} is no list of {', '.join(IMPROVEMENTS)}")
        improve = ()
    for word in improve:
        _check_word(str(word), IMPROVEMENTS, "improvement", faults)
    rules: list[Override] = []
    for section, kind in _SECTIONS.items():
        rules_by_name = data.get(section) or {}
        if not isinstance(rules_by_name, Mapping):
            faults.append(f"{section}: expected names and what is different there, found {rules_by_name!r}")
            continue
        for pattern, value in rules_by_name.items():
            rule = _file_rule(kind, str(pattern), value, faults)
            rules += [] if rule is None else [rule]
    if parsed is None:
        return None
    return replace(
        parsed,
        name=name,
        method=parsed.method if method is None else str(method),
        weight_method=parsed.weight_method if weight_method is None else str(weight_method),
        improve=(*parsed.improve, *map(str, improve)),
        rules=(*parsed.rules, *rules),
    )


def _file_rule(kind: str, pattern: str, value: Any, faults: list[str]) -> Override | None:
    if kind == "op" and not is_op_type(pattern) and "*" not in pattern:
        import onnx

        known = {schema.name for schema in onnx.defs.get_all_schemas()}
        faults.append(f"ops: ONNX has no op type {pattern!r}{did_you_mean(pattern, known)}")
        return None
    if isinstance(value, str):
        return _override(kind, pattern, value, faults)
    if not isinstance(value, Mapping) or kind != "tensor":
        faults.append(f"{pattern}: {value!r} is no precision such as w8a16 or float")
        return None
    for key in value:
        if key not in _TENSOR_KEYS:
            faults.append(
                f"{pattern}: key {key!r} is unknown; there are {', '.join(_TENSOR_KEYS)}"
                f"{did_you_mean(str(key), _TENSOR_KEYS)}"
            )
    settings = _precision(str(value["type"]), faults, pattern) if "type" in value else {}
    low, high, method = value.get("min"), value.get("max"), value.get("method")
    numbers = [n for n in (low, high) if n is not None]
    if any(not isinstance(n, (int, float)) or isinstance(n, bool) for n in numbers) or len(numbers) == 1:
        faults.append(f"{pattern}: min and max are two numbers, found {low!r} and {high!r}")
        return None
    if numbers and not -1e38 < numbers[0] < numbers[1] < 1e38:
        faults.append(f"{pattern}: min {low} is not below max {high}")
    if method is not None:
        _check_method(str(method), faults)
    if not isinstance(value.get("symmetric", False), bool):
        faults.append(f"{pattern}: symmetric is true or false, found {value['symmetric']!r}")
    if settings is None:
        return None
    return Override(
        "tensor", pattern, **settings, method=None if method is None else str(method), symmetric=value.get("symmetric"),
        low=None if low is None else float(low), high=None if high is None else float(high),
    )  # fmt: skip
