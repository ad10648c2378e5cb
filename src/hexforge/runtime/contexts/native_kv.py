# SPDX-License-Identifier: Apache-2.0
"""Native KV caches: inputs and outputs of a context whose bytes lie as the matrix unit reads them (formats/hmx_layout).

A context says in its metadata which tensors do. Its programs take and give them so, and compute what they compute.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping

import numpy as np

from hexforge.backend import ContextBackend, Program, WrappedProgram
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.hmx_layout import KEY_TILE, TILES, VALUE_TILE, fits, from_hmx, to_hmx
from hexforge.ir import Array, DType, Graph, Node, ScaleOffset, Value
from hexforge.options import did_you_mean

DATA_FORMATS = "data_formats"
"""The metadata's key; its value is JSON: graph -> tensor -> columns of a tile."""
FIRST_ARCH = 69
SYMMETRIC = -128
ROWS_TOGETHER = 32
"""New tokens are written into a native cache by so many."""
CONTEXT_PER_VTCM_MB = 8192
"""Assumed, from the one example there is: 2 MB of VTCM do not hold a context of 16384 tokens."""
_JOIN, _PRODUCT, _NORMALIZED = "ScatterElements", "MatMul", "Softmax"
_MOVES = (_JOIN, "Reshape", "Transpose", "Concat", "Convert", "Quantize")


class NativeKvProgram(WrappedProgram):
    """A program some of whose inputs and outputs lie in the HMX layout."""

    def __init__(self, program: Program, tiles: Mapping[str, int]) -> None:
        super().__init__(program)
        self._tiles = tiles

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name for inputs by name."""
        flat = {n: from_hmx(np.asarray(a), self._tiles[n]) if n in self._tiles else a for n, a in feeds.items()}
        outputs = self._program.run(flat)
        return {n: to_hmx(a, self._tiles[n]) if n in self._tiles else a for n, a in outputs.items()}


def recorded_tiles(metadata: Mapping[str, str], graph: str, where: str) -> dict[str, int]:
    """The tensors of a graph that lie in the HMX layout, by what a context's metadata say."""
    if DATA_FORMATS not in metadata:
        return {}
    try:
        formats = json.loads(metadata[DATA_FORMATS]).get(graph, {})
        tiles = {str(name): int(tile) for name, tile in formats.items()}
    except (ValueError, TypeError, AttributeError):
        raise FormatError(f"{where}: what it says of data formats is malformed") from None
    if any(tile not in TILES for tile in tiles.values()):
        raise FormatError(f"{where}: a data format has tiles of other than {' or '.join(map(str, TILES))} columns")
    return tiles


def native_tiles(graph: Graph, wanted: Collection[str], backend: object) -> dict[str, int]:
    """The tiles of tensors that are to be native; UnsupportedError naming the one that cannot be, and why."""
    caches = {value.name: tile for value in graph.inputs if (tile := _tile(value))}
    tiles: dict[str, int] = {}
    known = {value.name: value for value in (*graph.inputs, *graph.outputs)}
    for name in wanted:
        if name not in known:
            near = did_you_mean(name, known)
            raise CallError(f"tensor {name!r}: graph {graph.name!r} has no input or output of that name{near}")
        value = known[name]
        source = value if value in graph.inputs else _cache_of(value)
        if source is None or source.name not in caches:
            raise UnsupportedError(
                f"tensor {name!r}: is no key or value cache: one goes through {_JOIN} into a product of attention"
            )
        tiles[name] = caches[source.name]
        _require_form(value, tiles[name], backend)
    if left := [name for name in caches if name not in wanted]:
        raise UnsupportedError(f"tensor {left[0]!r}: stays flat, and others do not; caches are native all or none")
    for value in graph.outputs:
        if value.name in wanted and (rows := _new_tokens(value, tiles[value.name])) % ROWS_TOGETHER:
            raise UnsupportedError(
                f"tensor {value.name!r}: gets {rows} tokens a run, and a native output a multiple of {ROWS_TOGETHER}; "
                "leave the outputs flat"
            )
    return tiles


def _require_form(value: Value, tile: int, backend: object) -> None:
    """UnsupportedError where a cache is of a form that has no native layout."""
    encoding = value.encoding
    if value.dtype is not DType.UINT8 or not isinstance(encoding, ScaleOffset) or encoding.offset != SYMMETRIC:
        raise UnsupportedError(f"tensor {value.name!r}: is {value.type}; a native cache is uint8 with zero point 128")
    tokens, head = (value.shape[-1], value.shape[-2]) if tile == KEY_TILE else (value.shape[-2], value.shape[-1])
    if tokens % KEY_TILE or head % VALUE_TILE or not fits(value.shape, tile):
        raise UnsupportedError(
            f"tensor {value.name!r}: holds {tokens} tokens of heads of {head}; a native cache holds a multiple of "
            f"{KEY_TILE} tokens, of heads of a multiple of {VALUE_TILE}"
        )
    if not isinstance(backend, ContextBackend):
        raise UnsupportedError(f"tensor {value.name!r}: native caches are HTP's; use libQnnHtp.so")
    for target in backend.targets:
        if target.facts.get("htp_arch", FIRST_ARCH) < FIRST_ARCH:
            raise UnsupportedError(f"tensor {value.name!r}: {target.label} has no native caches; v{FIRST_ARCH} has")
        megabytes = target.facts.get("vtcm_mb", 0)
        if megabytes and tokens >= CONTEXT_PER_VTCM_MB * megabytes:
            raise UnsupportedError(f"tensor {value.name!r}: {tokens} tokens are too many for {megabytes} MB of VTCM")


def _tile(value: Value) -> int:
    """The columns of a tile, which differ for caches of keys and of values; 0 for a value that is no cache."""
    for product, joined in _products(value, False):
        if not joined:
            continue
        if any(user.op.name == _NORMALIZED for user in _reading_nodes(product.outputs[0])):
            return KEY_TILE
        before = product.inputs[0]
        if before is not None and any(node.op.name == _NORMALIZED for node in _source_nodes(before)):
            return VALUE_TILE
    return 0


def _products(value: Value, joined: bool) -> Iterator[tuple[Node, bool]]:
    """Products that a value goes into as their second operand, moved at most; and whether new tokens came to it."""
    for user in value.users:
        if user.op.name == _PRODUCT and user.inputs[1] is value:
            yield user, joined
        elif user.op.name in _MOVES and user.inputs[0] is value:
            yield from _products(user.outputs[0], joined or user.op.name == _JOIN)


def _reading_nodes(value: Value) -> Iterator[Node]:
    """Nodes that read a value before another product does."""
    for user in value.users:
        if user.op.name != _PRODUCT:
            yield user
            yield from _reading_nodes(user.outputs[0])


def _source_nodes(value: Value) -> Iterator[Node]:
    """Nodes that a value comes from, along their first inputs, up to another product."""
    node = value.producer
    while node is not None and node.op.name != _PRODUCT:
        yield node
        node = None if not node.inputs or node.inputs[0] is None else node.inputs[0].producer


def _cache_of(output: Value) -> Value | None:
    """The input that an output holds, with new tokens in it."""
    last = output
    for node in _source_nodes(output):
        if node.op.name not in _MOVES or node.inputs[0] is None:
            return None
        last = node.inputs[0]
    return last


def _new_tokens(output: Value, tile: int) -> int:
    """How many tokens a run puts into a cache."""
    joined = next(node for node in _source_nodes(output) if node.op.name == _JOIN)
    updates = joined.inputs[2]
    assert updates is not None
    return updates.shape[-1] if tile == KEY_TILE else updates.shape[-2]


def native_tensors_text(native: Mapping[str, Collection[str]], graphs: Mapping[str, Graph], backend: object) -> str:
    """The metadata's value for tensors that are to be native, by the graph's name; "" is every graph."""
    made = {}
    for name, wanted in native.items():
        if name and name not in graphs:
            raise CallError(f"data formats: there is no graph {name!r}; there is {', '.join(graphs)}")
        for each in [name] if name else graphs:
            made[each] = native_tiles(graphs[each], wanted, backend)
    return json.dumps(made, sort_keys=True)
