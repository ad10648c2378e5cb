# SPDX-License-Identifier: Apache-2.0
"""Native KV caches: inputs and outputs of a context whose bytes lie as the matrix unit reads them (formats/hmx_layout).

A context says in its metadata which tensors do. Its programs take and give them so, and compute the same numbers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hexforge.backend import ContextBackend, Program, WrappedProgram
from hexforge.chips.graph_config import VTCM
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.hmx_layout import KEY_TILE, TILES, VALUE_TILE, fits
from hexforge.ir import Array, DType, Graph, Node, ScaleOffset, Value
from hexforge.options import did_you_mean

DATA_FORMATS, LAST_INDICES = "data_formats", "last_scatter_indices"
"""The metadata's keys; the values are JSON: graph -> tensor -> columns of a tile; graph -> input -> its last index."""
FIRST_ARCH = 69
SYMMETRIC = -128
ROWS_TOGETHER = 32
"""New tokens are written into a native cache by so many."""
CONTEXT_PER_VTCM_MB = 8192
"""Assumed, from the one example there is: 2 MB of VTCM do not hold a context of 16384 tokens."""
_JOIN, _PRODUCT, _NORMALIZED = "ScatterElements", "MatMul", ("Softmax", "MaskedSoftmax")
_INDEX_MOVES = ("Reshape", "Transpose", "Cast", "Tile", "Expand")
_MOVES = (_JOIN, "Reshape", "Transpose", "Concat", "Convert", "Quantize")


class NativeKvProgram(WrappedProgram):
    """A program some of whose inputs and outputs lie in the HMX layout, and which takes and gives them so."""

    def __init__(self, program: Program, form: NativeFormat) -> None:
        super().__init__(program)
        self._form = form

    @property
    def graph(self) -> Graph:
        """The graph, whose inputs and outputs say how they lie."""
        graph = self._program.graph
        for value in (*graph.inputs, *graph.outputs):
            value.tile = self._form.tiles.get(value.name, 0)
        return graph

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name for inputs by name; CallError for new tokens that would come too late into a cache."""
        for name, last in self._form.last_index.items():
            places = np.asarray(feeds.get(name, 0))
            if places.size and int(places.min()) > last:
                raise CallError(
                    f"input {name!r}: puts new tokens at {int(places.min())}, and a native cache takes them up to "
                    f"{last}: its context less its new tokens, rounded up to {ROWS_TOGETHER}"
                )
        return self._program.run(feeds)


@dataclass(frozen=True, slots=True)
class NativeFormat:
    """How the caches of a graph lie, and up to where it puts new tokens into them."""

    tiles: dict[str, int]
    """Columns of a piece, by tensor."""
    last_index: dict[str, int]
    """The last place of the first new token, by the input that says it."""


class NativeCaches:
    """What is to be native of a model's graphs, said to each graph before it is compiled."""

    def __init__(
        self, wanted: Mapping[str, Collection[str]], names: Sequence[str], backend: object, settings: Mapping[str, int]
    ) -> None:
        self.formats: dict[str, NativeFormat] = {}
        """By graph, of those that were compiled."""
        self._wanted, self._names, self._backend = wanted, iter(names), backend
        self._vtcm_mb = settings.get(VTCM, 0)

    def mark(self, graph: Graph, part: object) -> None:
        """Say of a graph's inputs and outputs how they lie; UnsupportedError naming one that cannot lie so."""
        name = next(self._names)
        wanted = self._wanted.get(name, self._wanted.get("", ()))
        if not wanted:
            self.formats[name] = NativeFormat({}, {})
            return
        tiles = native_tiles(graph, wanted, self._backend, self._vtcm_mb)
        for value in (*graph.inputs, *graph.outputs):
            value.tile = tiles.get(value.name, 0)
        self.formats[name] = NativeFormat(tiles, _last_indices(graph, tiles))


def recorded_format(metadata: Mapping[str, str], graph: str, where: str) -> NativeFormat | None:
    """How tensors of a graph lie, by what a context's metadata say; None where all of them lie row by row."""
    if DATA_FORMATS not in metadata:
        return None
    try:
        tiles, last = (
            {str(name): int(number) for name, number in json.loads(metadata.get(key, "{}")).get(graph, {}).items()}
            for key in (DATA_FORMATS, LAST_INDICES)
        )
    except (ValueError, TypeError, AttributeError):
        raise FormatError(f"{where}: what it says of data formats is malformed") from None
    if any(tile not in TILES for tile in tiles.values()):
        raise FormatError(f"{where}: a data format has tiles of other than {' or '.join(map(str, TILES))} columns")
    return NativeFormat(tiles, last) if tiles else None


def native_tiles(graph: Graph, wanted: Collection[str], backend: object, vtcm_mb: int = 0) -> dict[str, int]:
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
        _require_form(value, tiles[name], backend, vtcm_mb)
    if left := [name for name in caches if name not in wanted]:
        raise UnsupportedError(f"tensor {left[0]!r}: stays flat, and others do not; caches are native all or none")
    for value in graph.outputs:
        if value.name in wanted and (value.producer is None or value.producer.op.name != _JOIN):
            raise UnsupportedError(f"tensor {value.name!r}: is not what {_JOIN} gives; leave it flat")
        if value.name in wanted and (rows := _new_tokens(value, tiles[value.name])) % ROWS_TOGETHER:
            raise UnsupportedError(
                f"tensor {value.name!r}: gets {rows} tokens a run, and a native output a multiple of {ROWS_TOGETHER}; "
                "leave the outputs flat"
            )
    return tiles


def _require_form(value: Value, tile: int, backend: object, vtcm_mb: int) -> None:
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
        megabytes = vtcm_mb or target.facts.get("vtcm_mb", 0)
        if megabytes and tokens >= CONTEXT_PER_VTCM_MB * megabytes:
            raise UnsupportedError(
                f"tensor {value.name!r}: {tokens} tokens are too many for {megabytes} MB of VTCM; give the graph more "
                "of it, or shorten the context"
            )


def _tile(value: Value) -> int:
    """The columns of a tile, which differ for caches of keys and of values; 0 for a value that is no cache."""
    for product, joined in _products(value, False):
        if not joined:
            continue
        if any(user.op.name in _NORMALIZED for user in _reading_nodes(product.outputs[0])):
            return KEY_TILE
        before = product.inputs[0]
        if before is not None and any(node.op.name in _NORMALIZED for node in _source_nodes(before)):
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


def _last_indices(graph: Graph, tiles: Mapping[str, int]) -> dict[str, int]:
    """By input, the last place of the first new token where new tokens are not a multiple of 32."""
    last: dict[str, int] = {}
    for value in graph.inputs:
        tile = tiles.get(value.name, 0)
        for node in value.users if tile else ():
            indices, updates = node.inputs[1], node.inputs[2]
            if node.op.name != _JOIN or indices is None or updates is None:
                continue
            along = -1 if tile == KEY_TILE else -2
            fresh = updates.shape[along]
            while indices.producer is not None and indices.producer.op.name in _INDEX_MOVES:
                indices = indices.producer.inputs[0]
                assert indices is not None
            if fresh % ROWS_TOGETHER and indices.producer is None and not indices.is_static:
                last[indices.name] = value.shape[along] - -(-fresh // ROWS_TOGETHER) * ROWS_TOGETHER
    return last


def native_metadata(wanted: Mapping[str, Collection[str]], formats: Mapping[str, NativeFormat]) -> dict[str, str]:
    """What a context says of native tensors; CallError where a graph was named that is not there."""
    for name in wanted:
        if name and name not in formats:
            raise CallError(f"data formats: there is no graph {name!r}; there is {', '.join(formats)}")
    return {
        DATA_FORMATS: json.dumps({name: form.tiles for name, form in formats.items() if form.tiles}, sort_keys=True),
        LAST_INDICES: json.dumps(
            {n: form.last_index for n, form in formats.items() if form.last_index}, sort_keys=True
        ),
    }
