# SPDX-License-Identifier: Apache-2.0
"""Encodings files: AIMET's JSON, versions 0.6.1 (lists by name), 1.0.0 (records) and 2.0.0, to and from encodings.

In the first two integers count from 0: real = scale * (q + offset) with q in 0..2**bits - 1 and offset not above 0. So
a signed type's offset is ours less half its range. What is symmetric among the parameters is signed here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hexforge.errors import CallError, FormatError
from hexforge.formats.encodings_2_0 import SECTION, VERSION, EncodingFault, entry_of, read_entry
from hexforge.formats.files import write_atomically
from hexforge.ir import AxisScaleOffset, Block, BlockwiseExpansion, DType, Encoding, ScaleOffset

Encodings = Mapping[str, tuple[DType, Encoding] | None]
"""Type and encoding of tensors by name; None: the tensor stays float."""

VERSIONS = ("0.6.1", "1.0.0", VERSION)
_SECTIONS = ("activation_encodings", "param_encodings")
_BITS = (4, 8, 16, 32)
_TYPES = ("PER_TENSOR", "PER_CHANNEL", "PER_BLOCK", "LPBQ")
_SHOWN = 8


def load(
    path: Path, axes: Mapping[str, int] | None = None, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> dict[str, tuple[DType, Encoding] | None]:
    """Encodings of a file; `axes` says which axis of a parameter its scales run along (0 where it does not)."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise CallError(f"{path}: cannot be read: {error.strerror or error}") from None
    return parse(text, axes, shapes, str(path))


def parse(
    text: bytes,
    axes: Mapping[str, int] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    where: str = "encodings",
) -> dict[str, tuple[DType, Encoding] | None]:
    """Encodings of a file's bytes; FormatError that names every fault."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{where}: not JSON: {error}") from None
    if not isinstance(data, dict) or not any(section in data for section in (*_SECTIONS, SECTION)):
        raise FormatError(f"{where}: no encodings file; it has {' and '.join(_SECTIONS)}, or {SECTION}")
    encodings: dict[str, tuple[DType, Encoding] | None] = {}
    faults = []
    for section in (*_SECTIONS, SECTION):
        parameter = section == "param_encodings"
        try:
            for name, records in _records(data.get(section) or {}, section):
                try:
                    axis, shape = (axes or {}).get(name, 0), (shapes or {}).get(name)
                    if section == SECTION:
                        encodings[name] = read_entry(records, (axes or {}).get(name), shape)
                    elif isinstance(records, dict):
                        encodings[name] = _read_version_1_0(records, parameter, axis, shape)
                    else:
                        encodings[name] = _read_version_0_6(records, parameter, axis)
                except EncodingFault as fault:
                    faults.append(f"{section}, {name!r}: {fault}")
        except EncodingFault as fault:
            faults.append(str(fault))
    if faults:
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise FormatError(f"{where}: {'; '.join(faults[:_SHOWN])}{more}")
    return encodings


def _records(section: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(section, dict):  # 0.6.1: a list for each tensor
        yield from section.items()
    elif isinstance(section, list):  # 1.0.0: each record has a name
        for record in section:
            if not isinstance(record, dict) or not isinstance(record.get("name"), str):
                raise EncodingFault(f"{name}: a record without a name")
            yield record["name"], record
    else:
        raise EncodingFault(f"{name}: expected tensors by name or a list of records")


# -- reading --------------------------------------------------------------------------------------------------------


def _number(record: Mapping[str, Any], key: str) -> float:
    value = record.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise EncodingFault(f"{key} is {value!r}, not a number")
    return float(value)


def _bits(record: Mapping[str, Any], key: str) -> int:
    bits = record.get(key)
    if isinstance(bits, bool) or not isinstance(bits, int) or bits not in _BITS:
        raise EncodingFault(f"{key} is {bits!r}; 4, 8, 16 and 32 are known")
    return bits


def _is_true(value: Any) -> bool:
    return value is True or str(value).lower() == "true"


def _is_float(record: Mapping[str, Any]) -> bool:
    kind = str(record.get("dtype", "int")).lower()
    if kind not in ("int", "float"):
        raise EncodingFault(f"dtype is {record['dtype']!r}; int and float are known")
    return kind == "float"


def _read_version_0_6(records: Any, parameter: bool, axis: int) -> tuple[DType, Encoding] | None:
    """0.6.1: a record for each channel, or one for the tensor."""
    if not isinstance(records, list) or not records or not all(isinstance(r, dict) for r in records):
        raise EncodingFault("expected a list of encodings, one for each channel")
    if _is_float(records[0]):
        return None
    bits = _bits(records[0], "bitwidth")
    if any(_bits(r, "bitwidth") != bits for r in records):
        raise EncodingFault("its channels differ in bitwidth")
    symmetric = all(_is_true(r.get("is_symmetric")) for r in records)
    pairs = [_scale_offset(r, bits) for r in records]
    return _encoding([p[0] for p in pairs], [p[1] for p in pairs], bits, symmetric, parameter, axis)


def _scale_offset(record: Mapping[str, Any], bits: int) -> tuple[float, float]:
    if record.get("scale") is not None:
        return _number(record, "scale"), _number(record, "offset") if "offset" in record else 0.0
    low, high = _number(record, "min"), _number(record, "max")
    scale = (high - low) / (2**bits - 1)
    return scale, round(low / scale) if scale > 0 else 0.0


def _read_version_1_0(
    record: Mapping[str, Any], parameter: bool, axis: int, shape: Any
) -> tuple[DType, Encoding] | None:
    """1.0.0: one record for the tensor."""
    if _is_float(record):
        return None
    kind = record.get("enc_type", "PER_TENSOR")
    if kind not in _TYPES:
        raise EncodingFault(f"enc_type is {kind!r}; {', '.join(_TYPES)} are known")
    bits = _bits(record, "compressed_bw" if kind == "LPBQ" else "bw")
    scales, offsets = _numbers(record, "scale"), _numbers(record, "offset", "scale")
    symmetric = _is_true(record.get("is_sym"))
    if kind in ("PER_TENSOR", "PER_CHANNEL"):
        if kind == "PER_TENSOR" and len(scales) != 1:
            raise EncodingFault(f"PER_TENSOR with {len(scales)} scales")
        return _encoding(scales, offsets, bits, symmetric, parameter, axis, kind == "PER_CHANNEL")
    size = record.get("block_size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise EncodingFault(f"block_size is {size!r}, not a positive number")
    if kind == "LPBQ":
        steps = _numbers(record, "per_block_int_scale")
        if not steps or len(steps) % len(scales) or any(s != int(s) or not 1 <= s <= 256 for s in steps):
            raise EncodingFault("per_block_int_scale are whole numbers from 1 to 256, as many for each channel")
        whole = tuple(int(s) for s in steps)
        scale_bits = 4 if max(whole) <= 16 else 8
        zeros = (0,) * len(scales)
        dtype = DType[f"INT{bits}"]
        return dtype, BlockwiseExpansion(axis, 1 - axis, tuple(scales), zeros, whole, bits, scale_bits)
    if shape is None or len(shape) != 2:
        raise EncodingFault("PER_BLOCK is for matrices of the model")
    block = tuple(1 if i == axis else size for i in range(2))
    dtype, uniform = _signed(scales, offsets, bits, symmetric, parameter)
    return dtype, Block(block, tuple(scales), uniform)


def _numbers(record: Mapping[str, Any], key: str, like: str = "") -> list[float]:
    values = record.get(key)
    if values is None and like:
        return [0.0] * len(_numbers(record, like))
    values = values if isinstance(values, list) else [values]
    numbers = [_number({key: v}, key) for v in values]
    if not numbers or (like and len(numbers) != len(_numbers(record, like))):
        raise EncodingFault(f"{len(numbers)} of {key}{f', which differs from {like}' if like else ''}")
    return numbers


def _signed(
    scales: list[float], offsets: list[float], bits: int, symmetric: bool, parameter: bool
) -> tuple[DType, tuple[int, ...]]:
    """The type, and offsets in it."""
    if any(o != int(o) for o in offsets) or any(not s > 0 for s in scales):
        raise EncodingFault("scales are positive and offsets whole numbers")
    half = 1 << bits - 1
    whole = [int(o) for o in offsets]
    if symmetric:
        if any(o not in (0, -half, 1 - half) for o in whole):
            raise EncodingFault(f"symmetric, but with offset {whole[0]}; expected {-half}")
        return (DType[f"INT{bits}"], (0,) * len(whole)) if parameter else (DType[f"UINT{bits}"], (-half,) * len(whole))
    if any(not 1 - 2 * half <= o <= 0 for o in whole):
        raise EncodingFault(f"an offset outside {1 - 2 * half}..0")
    return DType[f"UINT{bits}"], tuple(whole)


def _encoding(
    scales: list[float], offsets: list[float], bits: int, symmetric: bool, parameter: bool, axis: int,
    channels: bool = False,
) -> tuple[DType, Encoding]:  # fmt: skip
    dtype, whole = _signed(scales, offsets, bits, symmetric, parameter)
    if not parameter and (len(scales) != 1 or bits == 4):
        raise EncodingFault("an activation has one scale and 8 or 16 bits")
    if len(scales) == 1 and not channels:
        return dtype, ScaleOffset(scales[0], whole[0])
    return dtype, AxisScaleOffset(axis, tuple(scales), whole)


# -- writing --------------------------------------------------------------------------------------------------------


def save(
    path: Path,
    activations: Encodings,
    parameters: Encodings,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    version: str = "1.0.0",
) -> None:
    """Write a file, whole or not at all."""
    write_atomically(path, dump(activations, parameters, shapes, version))


def check_version(version: str) -> None:
    """CallError for a version that cannot be written."""
    if version not in VERSIONS:
        raise CallError(f"encodings version {version!r}; {', '.join(VERSIONS)} can be written")


def dump(
    activations: Encodings,
    parameters: Encodings,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    version: str = "1.0.0",
) -> bytes:
    """The bytes of an encodings file; the size of blocks follows from the parameters' `shapes`."""
    check_version(version)
    if version == VERSION:
        fixed_tensors = {**activations, **parameters}
        entries = [entry_of(name, fixed, (shapes or {}).get(name)) for name, fixed in fixed_tensors.items()]
        return json.dumps({"version": version, "producer": "hexforge", SECTION: entries}, indent=1).encode()
    old = version == "0.6.1"
    sections: dict[str, Any] = {}
    for section, tensors in zip(_SECTIONS, (activations, parameters), strict=True):
        if old:
            sections[section] = {name: _version_0_6(name, fixed) for name, fixed in tensors.items()}
        else:
            sections[section] = [
                {"name": name, **_version_1_0(name, fixed, (shapes or {}).get(name))} for name, fixed in tensors.items()
            ]
    return json.dumps({"version": version, "producer": "hexforge", **sections}, indent=1).encode()


def _file_offsets(dtype: DType, encoding: Encoding) -> list[int]:
    offsets = (encoding.offset,) if isinstance(encoding, ScaleOffset) else encoding.offsets
    return [o - (1 << dtype.bits - 1 if dtype.is_signed else 0) for o in offsets]


def _symmetric(dtype: DType, encoding: Encoding) -> bool:
    return all(o == -(1 << dtype.bits - 1) for o in _file_offsets(dtype, encoding))


def _scales(encoding: Encoding) -> list[float]:
    return [encoding.scale] if isinstance(encoding, ScaleOffset) else list(encoding.scales)


def _version_0_6(name: str, fixed: tuple[DType, Encoding] | None) -> list[dict[str, Any]]:
    if fixed is None:
        return [{"bitwidth": 16, "dtype": "float"}]
    dtype, encoding = fixed
    if isinstance(encoding, (Block, BlockwiseExpansion)):
        raise CallError(f"{name!r} has a scale per block, which version 0.6.1 cannot say; write version 1.0.0")
    most, symmetric = (1 << dtype.bits) - 1, _symmetric(dtype, encoding)
    return [
        {
            "bitwidth": dtype.bits,
            "dtype": "int",
            "is_symmetric": str(symmetric),
            "min": scale * offset,
            "max": scale * (offset + most),
            "offset": offset,
            "scale": scale,
        }
        for scale, offset in zip(_scales(encoding), _file_offsets(dtype, encoding), strict=True)
    ]


def _version_1_0(name: str, fixed: tuple[DType, Encoding] | None, shape: tuple[int, ...] | None) -> dict[str, Any]:
    if fixed is None:
        return {"dtype": "FLOAT", "bw": 16, "enc_type": "PER_TENSOR"}
    dtype, encoding = fixed
    record: dict[str, Any] = {
        "dtype": "INT",
        "bw": dtype.bits,
        "is_sym": _symmetric(dtype, encoding),
        "scale": _scales(encoding),
        "offset": _file_offsets(dtype, encoding),
    }
    match encoding:
        case AxisScaleOffset():
            return {**record, "enc_type": "PER_CHANNEL"}
        case BlockwiseExpansion(block_scales=steps, scales=scales, block_scale_bitwidth=bits, block_axis=axis):
            if shape is None:
                raise CallError(f"{name!r} has a scale per block; its shape is needed to say how large they are")
            wide = {"bw": dtype.bits + bits, "compressed_bw": dtype.bits, "per_block_int_scale": list(steps)}
            return {**record, **wide, "enc_type": "LPBQ", "block_size": shape[axis] * len(scales) // len(steps)}
        case Block(block_shape=block):
            return {**record, "enc_type": "PER_BLOCK", "block_size": max(block)}
        case _:
            return {**record, "enc_type": "PER_TENSOR"}
