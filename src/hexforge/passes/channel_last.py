# SPDX-License-Identifier: Apache-2.0
"""Channel last: choose the layout of everything between layout-bound ops so that the fewest Transposes remain.

Transposes are looked through: every tensor is its source (the nearest value that no Transpose writes) in some layout.
Flexible nodes that share tensors form regions, and a region is stored in one layout. Each region takes the layout
that costs the fewest Transposes given its neighbours, until none can do better; then Transposes are written only where
a tensor is needed in another layout than it is made in. Starting from the layouts as they are, and accepting only
improvements, the number of Transposes never grows. Elements
are moved, not computed, so numbers stay; only where a float sum (ReduceMean, Softmax) then runs over memory in another
order may its last bit round differently.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from hexforge.ir import Graph, Node, ParamValue, Role, ScaleOffset, Value
from hexforge.ir.fixed_point import permute_type
from hexforge.passes.clean import clean
from hexforge.patterns.permutation import Permutation, compose, expanded_type, identity, inverse, moves_nothing

Params = dict[str, ParamValue]
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Flexible:
    """How a node's layout may change. A layout is the permutation a tensor is stored by."""

    rank: int
    linked: tuple[int, ...]
    """Inputs that take the node's layout."""
    loose: tuple[int, ...]
    """Inputs that broadcast: constants, or of lower rank; each is brought to the layout by itself."""
    params: Callable[[Permutation], Params]
    """The parameters in a layout."""
    groups: Groups | None = None
    """Input axes that each output axis is made of; None where the output has the input's axes, and so its layout."""

    def allows(self, layout: Permutation) -> bool:
        """True where axes that are merged lie together, in order."""
        places = [[layout.index(a) for a in group] for group in self.groups or ()]
        taken = sorted(place for group in places for place in group)
        rank = {place: i for i, place in enumerate(taken)}  # lost axes do not separate
        return all(rank[b] == rank[a] + 1 for group in places for a, b in pairwise(group))

    def out_layout(self, layout: Permutation) -> Permutation:
        """The layout of the output of a node whose axes are not its input's."""
        assert self.groups is not None
        keys: list[int] = []
        for group in self.groups:  # an axis that comes from none stays behind the one before it
            keys.append(layout.index(group[0]) if group else keys[-1] if keys else -1)
        return tuple(sorted(range(len(keys)), key=keys.__getitem__))

    def in_layout(self, out_layout: Permutation) -> Permutation:
        """An input layout that gives `out_layout`: lost axes first, the others as the output has them."""
        assert self.groups is not None
        remaining = [a for axis in out_layout for a in self.groups[axis]]
        return (*(a for a in range(self.rank) if a not in remaining), *remaining)


def flexible(node: Node) -> Flexible | None:
    """How the node's layout may change, None where it is fixed."""
    layout, params = node.op.layout, node.params
    if not layout.free or (layout.adds and params[layout.adds]):
        return None
    first = node.inputs[0] if node.inputs else None
    if layout.pointwise or node.op.variadic:  # no input is more than the others: any of them may be constant
        rank = len(node.outputs[0].shape)
    elif first is None or first.is_static or not _is_flat(node, layout.flat):
        return None
    else:
        rank = len(first.shape)
    groups: Groups | None = None
    if layout.merges:
        groups = _merged(node.call.input(0).shape, node.outputs[0].shape)
        if groups is None:
            return None
    elif lost := layout.lost(params, rank):
        groups = tuple((a,) for a in range(rank) if a not in lost)
    linked, loose = _split_inputs(node, rank) if layout.together else ((0,), ())
    return Flexible(rank, linked, loose, lambda perm: layout.permuted(params, perm), groups)


def _is_flat(node: Node, index: int | None) -> bool:
    """True where the input that must have one axis, if any, has one."""
    value = None if index is None else node.inputs[index]
    return index is None or (value is not None and len(value.shape) == 1)


def _merged(before: tuple[int, ...], after: tuple[int, ...]) -> Groups | None:
    """The axes of `before` that each axis of `after` merges (axes of size 1 come and go), None if an axis is cut."""
    if 0 in before:
        return None
    axes = [a for a, n in enumerate(before) if n != 1]
    groups: list[tuple[int, ...]] = []
    for size in after:
        group: list[int] = []
        while size > 1 and math.prod(before[a] for a in group) < size and axes:
            group.append(axes.pop(0))
        if math.prod(before[a] for a in group) != size:
            return None
        groups.append(tuple(group))
    return tuple(groups)


def _split_inputs(node: Node, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    linked: list[int] = []
    loose: list[int] = []
    for i, value in enumerate(node.inputs):
        if value is not None:
            (loose if value.is_static or len(value.shape) != rank else linked).append(i)
    return tuple(linked), tuple(loose)


_ROUNDS = 8
_CANDIDATES = 6
_REACH = 12  # regions that change together at most


def channel_last(graph: Graph) -> int:
    """Remove the Transposes that a choice of layouts makes unnecessary."""
    changes = clean(graph)
    for _ in range(_ROUNDS if any(node.op.name == "Transpose" for node in graph.nodes) else 0):
        layouts = _Layouts(graph)
        if not layouts.choose():
            break
        layouts.write()
        changes += clean(graph) + 1
    return changes


class _Layouts:
    """The regions of a graph and the layout of each."""

    def __init__(self, graph: Graph) -> None:
        graph.sort()
        self.graph = graph
        self.flexible: dict[Node, Flexible] = {}
        self._parent: dict[Value, Value] = {}
        for node in graph.nodes:
            freedom = None if _is_transpose(node) else flexible(node)
            if freedom is None:
                continue
            shared = [v for i in freedom.linked if (v := node.inputs[i]) is not None]
            if freedom.groups is None:
                shared += node.outputs
            if not all(isinstance(v.encoding, ScaleOffset | None) and len(v.shape) == freedom.rank for v in shared):
                continue
            self.flexible[node] = freedom
            for value in shared:
                self._parent[self._find(shared[0])] = self._find(value)
        self.members: dict[Value, list[Value]] = {}
        self.nodes: dict[Value, list[Node]] = {}
        for value in tuple(self._parent):
            self.members.setdefault(self._find(value), []).append(value)
        for node in self.flexible:
            self.nodes.setdefault(self._region(node), []).append(node)
        self.layout: dict[Value, Permutation] = {r: identity(len(r.shape)) for r in self.members}
        self._regions = {node: self._region(node) for node in self.flexible}
        self._transposes = {node for node in graph.nodes if _is_transpose(node)}
        self._sources = {v: self._source(v) for v in graph.values.values()}
        self._around = {r: self._sources_around(r) for r in self.members}
        self._written: dict[tuple[Value, Permutation], Value] = {}
        self._at: dict[Value, Permutation] = {}  # the layout each source is made in, while writing
        self._made: dict[Value, Value] = {}  # a source -> the value that holds it in the layout it is made in

    def _find(self, value: Value) -> Value:
        self._parent.setdefault(value, value)
        while self._parent[value] is not value:
            self._parent[value] = self._parent[self._parent[value]]
            value = self._parent[value]
        return value

    def _region(self, node: Node) -> Value:
        freedom = self.flexible[node]
        value = node.outputs[0] if freedom.groups is None else node.inputs[freedom.linked[0]]
        assert value is not None
        return self._find(value)

    def _source(self, value: Value) -> tuple[Value, Permutation]:
        """The value no Transpose writes that `value` is a transposition of, and by what."""
        perm = identity(len(value.shape))
        while value.producer is not None and value.producer in self._transposes:
            perm = compose(value.producer.params["perm"], perm)
            before = value.producer.inputs[0]
            assert before is not None
            value = before
        return value, perm

    # -- what is made and needed, in which layout -----------------------------------------------------------------

    def _made_in(self, value: Value) -> Permutation:
        node = value.producer
        if node is None or node not in self.flexible:
            return identity(len(value.shape))
        layout = self.layout[self._regions[node]]
        return layout if self.flexible[node].groups is None else self.flexible[node].out_layout(layout)

    def _needed(self, value: Value) -> Iterator[Permutation]:
        """The layouts in which `value` is read, Transposes looked through."""
        if value.role is Role.APP_READ:
            yield identity(len(value.shape))
        for node in value.users:
            if node in self._transposes:
                for layout in self._needed(node.outputs[0]):
                    yield compose(node.params["perm"], layout)
            elif node in self.flexible and any(node.inputs[i] is value for i in self.flexible[node].linked):
                yield self.layout[self._regions[node]]
            else:
                yield identity(len(value.shape))

    def _cost(self, sources: list[Value], nodes: list[Node]) -> tuple[int, int]:
        """Transposes of `sources` and of the loose inputs of `nodes`: how many, and of how many bytes."""
        count, moved_bytes = 0, 0
        for value in sources:
            undo = inverse(self._made_in(value))
            for layout in set(self._needed(value)):
                if not value.is_static and not moves_nothing(compose(undo, layout), _stored(value, undo)):
                    count, moved_bytes = count + 1, moved_bytes + value.type.nbytes
        for node in nodes:
            layout = self.layout[self._regions[node]]
            for i in self.flexible[node].loose:
                loose = node.inputs[i]
                assert loose is not None
                if not loose.is_static and not moves_nothing(layout, expanded_type(loose.type, len(layout)).shape):
                    count, moved_bytes = count + 1, moved_bytes + loose.type.nbytes
        return count, moved_bytes

    # -- choosing -------------------------------------------------------------------------------------------------

    def choose(self) -> bool:
        """Improve the regions' layouts until none improves by itself; True if one changed."""
        changed = False
        for _ in range(_ROUNDS):
            improved = False
            for region in (*self.members, *reversed(self.members)):
                improved |= self._improve(region)
            changed |= improved
            if not improved:
                break
        return changed

    def _sources_around(self, region: Value) -> list[Value]:
        """Values whose Transposes depend on the region's layout."""
        sources = {self._sources[v][0]: None for v in self.members[region]}
        for node in self.nodes.get(region, ()):
            sources |= dict.fromkeys(node.outputs)
        return list(sources)

    def _improve(self, region: Value) -> bool:
        """Try the layouts that a Transpose at the region's border asks for."""
        present = self.layout[region]
        votes: Counter[Permutation] = Counter()
        nodes = self.nodes.get(region, [])
        inside = {v for n in nodes if self.flexible[n].groups is None for v in n.outputs}
        for value in self.members[region]:
            source, perm = self._sources[value]
            if source not in inside:
                votes[compose(inverse(perm), self._made_in(source))] += 1
            for node in value.users:
                if node in self._transposes:
                    for layout in set(self._needed(node.outputs[0])):
                        votes[compose(node.params["perm"], layout)] += 1
        tried: list[dict[Value, Permutation]] = []
        for candidate, _ in votes.most_common(_CANDIDATES):
            if candidate != present:
                tried += [{region: candidate}, self._implied(region, candidate)]
        taken = [self._try(change) for change in tried if change]
        return any(taken)

    def _implied(self, region: Value, layout: Permutation) -> dict[Value, Permutation]:
        """The layout, and what it means for the regions on the other side of nodes that merge or lose axes."""
        layouts = {region: layout}
        queue = [region]
        while queue and len(layouts) <= _REACH:
            here = queue.pop(0)
            around = {
                self._find(node.outputs[0]): self.flexible[node].out_layout(layouts[here])
                for node in self.nodes.get(here, ())
                if self.flexible[node].groups is not None and node.outputs[0] in self._parent
            }
            for value in self.members[here]:
                node = value.producer
                if node in self.flexible and self.flexible[node].groups is not None:
                    around.setdefault(self._regions[node], self.flexible[node].in_layout(layouts[here]))
            fresh = {r: p for r, p in around.items() if r not in layouts}
            layouts |= fresh
            queue += fresh
        return layouts if len(layouts) > 1 else {}

    def _try(self, change: dict[Value, Permutation]) -> bool:
        """Take the layouts of some regions if they cost less than the present ones."""
        nodes = [n for r in change for n in self.nodes.get(r, ())]
        if not all(self.flexible[n].allows(change[self._regions[n]]) for n in nodes):
            return False
        sources = list({v: None for r in change for v in self._around[r]})
        before = self._cost(sources, nodes)
        if before == (0, 0):
            return False
        present = {r: self.layout[r] for r in change}
        self.layout.update(change)
        if self._cost(sources, nodes) < before:
            return True
        self.layout.update(present)
        return False

    # -- writing --------------------------------------------------------------------------------------------------

    def write(self) -> None:
        """Rewrite the graph to the chosen layouts."""
        made_in = self._at = {v: self._made_in(v) for v in self.graph.values.values()}
        nodes = [n for n in self.graph.nodes if n not in self._transposes]
        for value in self.graph.outputs:  # whoever needs what is an output anyway reads that
            source, perm = self._sources[value]
            if compose(inverse(made_in[source]), perm) != identity(len(perm)):
                self._written[source, perm] = value
        for node in nodes:
            freedom = self.flexible.get(node)
            layout = None if freedom is None else self.layout[self._regions[node]]
            ins = [None if v is None else self._input(v, i, freedom, layout) for i, v in enumerate(node.inputs)]
            self.graph.set_inputs(node, ins)
            if freedom is not None and layout is not None and layout != identity(freedom.rank):
                self.graph.rewrite(node, node.op, ins, freedom.params(layout))
                self._relay_outputs(node)
        for value in self.graph.outputs:
            self._output(value)
        self.graph.sort()

    def _input(self, value: Value, index: int, freedom: Flexible | None, layout: Permutation | None) -> Value:
        if freedom is not None and layout is not None:
            if index in freedom.linked:
                return self._in_layout(value, layout)
            if index in freedom.loose and layout != identity(freedom.rank):
                return self._loose(value, layout)
        return self._in_layout(value, identity(len(value.shape)))

    def _relay_outputs(self, node: Node) -> None:
        outs = []
        for value in node.outputs:
            perm = self._at[value]
            if perm == identity(len(perm)):
                outs.append(value)
                continue
            suffix = "channel_last" if perm == (0, *range(2, len(perm)), 1) else "moved"
            stored = self.graph.value(self.graph.unique(f"{value.name}_{suffix}"), permute_type(value.type, perm))
            self._made[value] = stored
            outs.append(stored)
        self.graph.set_outputs(node, outs)

    def _in_layout(self, value: Value, layout: Permutation) -> Value:
        """`value` in `layout`, through a Transpose where it is not made so."""
        source, perm = self._sources[value]
        target = compose(perm, layout)
        if source.is_static and target != identity(len(target)):
            return self._moved_static(source, target)
        step = compose(inverse(self._at[source]), target)
        stored = self._made.get(source, source)
        if step == identity(len(step)):
            return stored
        if (source, target) not in self._written:
            writer = value.producer
            if layout == identity(len(layout)) and writer is not None and value is not source:
                self.graph.rewrite(writer, "Transpose", [stored], {"perm": step})  # it is the model's own tensor
                self._written[source, target] = value
            elif layout == identity(len(layout)) and value is source:
                self._written[source, target] = self.graph.node("Transpose", [stored], [value], perm=step).outputs[0]
            else:
                transpose = self.graph.node("Transpose", [stored], out=f"{source.name}_t", perm=step)
                self._written[source, target] = transpose.outputs[0]
        return self._written[source, target]

    def _moved_static(self, value: Value, perm: Permutation) -> Value:
        key = (value, perm)
        if key not in self._written:
            assert value.data is not None
            expanded = expanded_type(value.type, len(perm))
            data = value.data.reshape(expanded.shape).transpose(perm)
            encoding = permute_type(expanded, perm).encoding
            self._written[key] = self.graph.static(data, encoding, f"{value.name}_t")
        return self._written[key]

    def _loose(self, value: Value, layout: Permutation) -> Value:
        """A broadcast input in a layout: expanded to full rank, its axes moved."""
        if value.is_static:
            return value if value.type.size == 1 else self._moved_static(value, layout)
        plain = self._in_layout(value, identity(len(value.shape)))
        if value.type.size == 1:
            return plain
        key = (value, layout)
        if key not in self._written:
            type = expanded_type(value.type, len(layout))
            full = self.graph.value(self.graph.unique(f"{value.name}_r"), type)
            self.graph.node("Reshape", [plain], [full])
            self._written[key] = self.graph.node("Transpose", [full], out=f"{value.name}_t", perm=layout).outputs[0]
        return self._written[key]

    def _output(self, value: Value) -> None:
        """Write a graph output from wherever its source is stored now."""
        source, perm = self._sources[value]
        if source is value and value not in self._made:
            return
        stored = self._made.get(source, source)
        step = compose(inverse(self._at[source]), perm)
        writer = value.producer
        if writer is not None:
            self.graph.rewrite(writer, "Transpose", [stored], {"perm": step})
        else:
            self.graph.node("Transpose", [stored], [value], perm=step)


def _is_transpose(node: Node) -> bool:
    """True for a Transpose that only moves elements."""
    x = node.inputs[0] if node.op.name == "Transpose" else None
    return x is not None and permute_type(x.type, node.params["perm"]) == node.outputs[0].type


def _stored(value: Value, undo: Permutation) -> tuple[int, ...]:
    return tuple(value.shape[a] for a in inverse(undo))
