# SPDX-License-Identifier: Apache-2.0
"""Making adapters of a context, from models or from low-rank factors, and what one holds."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from hexforge.backend import Program
from hexforge.errors import CallError, ModelError
from hexforge.formats.adapter import Adapter, AdapterGraph, program_changes, writer
from hexforge.formats.container import SLACK, Buffer, Pool, Writer, json_bytes
from hexforge.ir import Array
from hexforge.runtime import registry
from hexforge.runtime.contexts.compile import compiled_programs
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import PRODUCER, is_made_from
from hexforge.runtime.contexts.native_kv import recorded_format

if TYPE_CHECKING:
    from hexforge.frontends.onnx.context_constants import Constants
    from hexforge.model.source import ModelSource

_FACTOR = re.compile(r"(?P<stem>.+?)[._](?P<kind>lora_A|lora_B|lora_down|lora_up)(\.[^.]+)??(\.weight)?")
_IS_FIRST = {"lora_A": True, "lora_down": True, "lora_B": False, "lora_up": False}
_PREFIXES = ("base_model.model.", "base_model.")
_SUFFIXES = ("_quantized", ".weight", ".kernel")


def merge_weights(
    base: Constants, arrays: Mapping[str, Array], alpha: float | None, names: Mapping[str, str]
) -> dict[str, Array]:
    """The constants of the base merged with the given arrays; the error lists every fault at once."""
    factors: dict[str, dict[bool, Array]] = {}
    alphas: dict[str, float] = {}
    whole: dict[str, Array] = {}
    for name, array in arrays.items():
        if match := _FACTOR.fullmatch(name):
            factors.setdefault(match["stem"], {})[_IS_FIRST[match["kind"]]] = array
        elif name.endswith(".alpha") and array.size == 1:
            alphas[name.removesuffix(".alpha")] = float(array.reshape(-1)[0])
        else:
            whole[name] = array
    faults: list[str] = []
    out: dict[str, Array] = {}
    for stem, pair in factors.items():
        try:
            target = _target(base, stem, names)
            scale = _scale(stem, pair, alpha if alpha is not None else alphas.get(stem))
            out[target] = base.stored(target, base.real(target) + scale * _delta(base, target, stem, pair))
        except CallError as error:
            faults.append(str(error))
    for name, array in whole.items():
        try:
            target = _target(base, name, names)
            out[target] = base.stored(target, array.astype(np.float64))
        except CallError as error:
            faults.append(str(error))
    if faults:
        raise CallError("\n".join(faults))
    if not out:
        raise CallError("the adapter weights are empty: there is no lora_A and lora_B, nor a constant of the model")
    return out


def _target(base: Constants, stem: str, names: Mapping[str, str]) -> str:
    """The constant that weights are for."""
    if stem in names:
        base.array(names[stem])
        return names[stem]
    plain = stem
    for prefix in _PREFIXES:
        plain = plain.removeprefix(prefix)
    path = plain.split(".")
    real = [n for n in base.names if base.is_real(n)]
    for accepts in (lambda n: n == stem, lambda n: _plain_name(n) in (plain, _plain_name(plain)),
                    lambda n: re.split(r"[./]", _plain_name(n))[-len(path):] == path):  # fmt: skip
        matching = [n for n in real if accepts(n)]
        if len(matching) == 1:
            return matching[0]
        if matching:
            raise CallError(
                f"{stem}: may be {' or '.join(matching[:4])} of {base.where}; say which with a map ({stem}=<constant>)"
            )
    raise CallError(
        f"{stem}: {base.where} has no constant of that name; say which it is with a map "
        f"({stem}=<constant>); it has {', '.join(real[:8])}{' …' if len(real) > 8 else ''}"
    )


def _plain_name(name: str) -> str:
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix)
    return name


def _scale(stem: str, pair: Mapping[bool, Array], alpha: float | None) -> float:
    if len(pair) != 2:
        raise CallError(f"{stem}: has only {'A' if True in pair else 'B'} of the factors A and B")
    first, second = pair[True], pair[False]
    rank = first.shape[0] if first.ndim else 0
    if first.ndim < 2 or second.ndim < 2 or not rank or second.shape[1] != rank:
        raise CallError(f"{stem}: A {list(first.shape)} and B {list(second.shape)} are not [rank, in] and [out, rank]")
    return 1.0 if alpha is None else alpha / rank


def _delta(base: Constants, target: str, stem: str, pair: Mapping[bool, Array]) -> Array:
    """B @ A in the shape and orientation of the constant."""
    first, second = (pair[side].astype(np.float64) for side in (True, False))
    shape = base.array(target).shape
    product = second.reshape(len(second), -1) @ first.reshape(len(first), -1)
    if first.ndim > 2 or len(shape) > 2:  # a convolution: [out, in, ...]
        turned = False
    else:
        output_first = base.output_first(target)
        turned = not output_first if output_first is not None else product.shape != shape
        if output_first is None and product.shape == shape and shape[0] == shape[1]:
            raise CallError(
                f"{stem}: {target!r} is square, and no MatMul, Gemm or Conv says which way it lies; "
                "give the adapted model instead"
            )
    delta = product.T if turned else product
    if delta.size != int(np.prod(shape)) or (len(shape) == 2 and delta.shape != shape) or delta.shape[0] != shape[0]:
        raise CallError(f"{stem}: B @ A is {list(product.shape)}, which does not fit {target!r} of {list(shape)}")
    return delta.reshape(shape)


class AdapterBuilder:
    """An adapter on its way into a file: the programs of graphs as the adapter makes them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._pool = Pool()
        self._graphs: list[AdapterGraph] = []

    def add(self, name: str, program: Program | None = None, tensors: Sequence[str] = ()) -> AdapterGraph:
        """A graph of the context and its program after `tensors` were changed; without one, its base is restored."""
        row = self.context.graph(name)
        if any(g.name == name for g in self._graphs):
            raise CallError(f"the adapter has graph {name!r} already")
        if not row.updatable:
            raise CallError(
                f"{self.context.where}: graph {name!r} has no updatable tensors; compile it with `--updatable`"
            )
        if fixed := [t for t in tensors if t not in row.updatable]:
            raise CallError(
                f"{self.context.where}: {', '.join(fixed)} cannot change in graph {name!r}; compile it "
                "with `--updatable` for these"
            )
        base = self.context.container.json("program", row.program)
        changed: Sequence[Any] = ()
        if program is not None:
            graph = program.graph
            graph.name = name
            kinds = (tuple((v.name, v.type) for v in side) for side in (graph.inputs, graph.outputs))
            if tuple(kinds) != (row.inputs, row.outputs):
                raise CallError(f"graph {name!r}: the adapted program has other inputs or outputs than the base")
            changed = program_changes(base, json.loads(json_bytes(program.save(_Put(self.context, name, self._pool)))))
        adapter_graph = AdapterGraph(
            name, self.context.identity(name), self.context.weights_bytes, tuple(tensors), tuple(changed)
        )
        self._graphs.append(adapter_graph)
        return adapter_graph

    def writer(self) -> Writer:
        """The sections of the adapter's file."""
        if not self._graphs:
            raise CallError("the adapter has no graph")
        return writer(PRODUCER, self.context.info.backend, self._graphs, self._pool)


class _Put:
    """Says where arrays are that the base has, and adds the others to the adapter's own."""

    def __init__(self, context: Context, name: str, pool: Pool) -> None:
        self._pool, self._first = pool, context.weights_bytes
        self._known: dict[tuple[int, bytes], tuple[int, int]] = {}
        row, base = context.graph(name), registry.backend(context.info.backend, context.info.options)

        def seen(offset: int, size: int) -> memoryview:
            data = context.weights(offset, size)
            self._known.setdefault(_key(data), (offset, size))
            return data

        program = base.load(name, *row.values(), context.saved_program(name), seen)
        assert program.graph  # which reads what only it refers to

    def __call__(self, data: Buffer | Array) -> tuple[int, int]:
        view = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data if isinstance(data, np.ndarray) else data
        place = self._known.get(_key(view))
        if place is None:
            offset, size = self._pool.put(data)
            place = self._known[_key(view)] = (self._first + offset, size)
        return place


def _key(data: Buffer) -> tuple[int, bytes]:
    return len(data), hashlib.blake2b(data, digest_size=16).digest()


# -- from models ------------------------------------------------------------------------------------------------------


def make_adapter(
    context: str | os.PathLike[str] | Context,
    base: ModelSource | None = None,
    adapted: ModelSource | None = None,
    *,
    weights: Mapping[str, Array] | str | os.PathLike[str] | None = None,
    alpha: float | None = None,
    names: Mapping[str, str] | None = None,
    output: str | os.PathLike[str] | None = None,
) -> Adapter:
    """An adapter for a context, written where `output` says.

    `base` is the model the context was compiled from, `adapted` the same with other constants. Or `weights` holds
    low-rank factors A [rank, in] and B [out, rank], whose product times alpha / rank is added to the base's numbers,
    or whole constants in their place; they are stored with the base's scales. `names` maps what they are called to
    constants of the model. Without any of these the adapter is one that restores the base.
    """
    from hexforge.addons.adapters.safetensors import read_arrays

    opened = context if isinstance(context, Context) else Context(context)
    maker = AdapterBuilder(opened)
    if base is None or (adapted is None) == (weights is None):
        if base is not None or adapted is not None or weights is not None:
            raise CallError(
                "give the base model and either the adapted model or weights; or none of them, for an "
                "adapter that restores the base"
            )
        graphs = [g.name for g in opened.graphs if g.updatable]
        if not graphs:
            raise CallError(f"{opened.where}: has no updatable tensors; compile it with `--updatable`")
        for name in graphs:
            maker.add(name)
    else:
        from hexforge.frontends.onnx.context_constants import Constants

        model, how = _model_of(opened, base)
        before = Constants(base, **how)
        if weights is not None:
            arrays = weights if isinstance(weights, Mapping) else read_arrays(weights)
            adapted = before.replaced(merge_weights(before, arrays, alpha, names or {}))
        assert adapted is not None
        _add_model(maker, model, before.changed(Constants(adapted, **how)), adapted, how)
    file = maker.writer()
    if output is not None:
        file.write(output)
        return Adapter(output)
    return Adapter(file.to_bytes(), "the adapter")


def make_adapter_of_models(
    context: str | os.PathLike[str] | Context,
    models: Sequence[tuple[ModelSource, ModelSource]],
    output: str | os.PathLike[str],
) -> Adapter:
    """An adapter for several graphs of a context in one file, from pairs of a base and an adapted model.

    Arrays that the graphs have in common are stored once.
    """
    from hexforge.frontends.onnx.context_constants import Constants

    opened = context if isinstance(context, Context) else Context(context)
    maker = AdapterBuilder(opened)
    for base, adapted in models:
        name, how = _model_of(opened, base)
        changed = Constants(base, **how).changed(Constants(adapted, **how))
        _add_model(maker, name, changed, adapted, how)
    maker.writer().write(output)
    return Adapter(output)


def _model_of(context: Context, base: Any) -> tuple[str, dict[str, Any]]:
    """Which of a context's models this is, and the sizes it was compiled with."""
    try:
        known = json.loads(context.info.metadata.get("models", "{}"))
        hows = {name: {key: row[key] for key in ("dims", "shapes")} for name, row in known.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        hows = {}
    for name, how in hows.items():
        if is_made_from(context.info, name, base, how):
            return name, how
    raise CallError(
        f"{context.where}: was not compiled from the base model that is given; give that model, or "
        "compile it again with `hexforge compile --updatable`"
    )


def _add_model(maker: AdapterBuilder, name: str, changed: Sequence[str], adapted: Any, how: Mapping[str, Any]) -> None:
    """Compile the adapted model as the base was, and add what becomes another program."""
    context = maker.context
    whole = [g for g in context.graphs if g.name == name]
    parts = whole or [g for g in context.graphs if re.fullmatch(rf"{re.escape(name)}_\d+", g.name)]
    if not changed:
        raise ModelError("the adapted model has the constants of the base: there is nothing to adapt")
    fixed = [t for t in changed if all(t not in g.updatable for g in parts)]
    if fixed:
        have = sorted({t for g in parts for t in g.updatable})
        raise CallError(
            f"{', '.join(fixed)}: not updatable in {context.where}; it has "
            f"{', '.join(have) or 'none'}: compile it with `--updatable` for these"
        )
    backend = registry.backend(context.info.backend, context.info.options)
    forms = {g.name: recorded_format(context.info.metadata, g.name, context.where) for g in parts}
    native = {graph: tuple(form.tiles) for graph, form in forms.items() if form is not None}
    for quantized_io in (False, True):
        programs = compiled_programs(adapted, name, backend, how, quantized_io=quantized_io, native=native)
        rows = {
            n: tuple(tuple((v.name, v.type) for v in s) for s in (p.graph.inputs, p.graph.outputs))
            for n, p in programs.items()
        }
        if rows == {g.name: (g.inputs, g.outputs) for g in parts}:
            break
    else:
        raise ModelError(f"{context.where}: the adapted model compiles to other graphs than {name!r} there")
    for part in parts:
        if tensors := [t for t in changed if t in part.updatable]:
            maker.add(part.name, programs[part.name], tensors)


def describe_adapter(adapter: Adapter) -> dict[str, Any]:
    """What `hexforge lora info --json` prints."""
    return {
        "file": adapter.where,
        "producer": adapter.producer,
        "backend": adapter.backend,
        "bytes": len(adapter.container),
        "new_bytes": len(adapter.weights) - SLACK,
        "checksums": "verified",
        "graphs": [
            {"name": g.name, "base": g.base, "tensors": list(g.tensors), "changes": len(g.changes)}
            for g in adapter.graphs
        ],
    }
