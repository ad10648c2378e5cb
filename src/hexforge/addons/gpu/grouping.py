# SPDX-License-Identifier: Apache-2.0
"""Grouping: which nodes run as one kernel.

Chains of pointwise ops end a kernel (its epilogue), or are computed where they are read (inlined).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hexforge.addons.gpu.kernels.element import MAPS
from hexforge.addons.gpu.kernels.moves import ALIASES, MOVES
from hexforge.addons.gpu.kernels.pointwise import FLOAT, SCALAR_ONLY
from hexforge.addons.gpu.kernels.products.attention import LARGEST
from hexforge.addons.gpu.kernels.products.few_rows import MOST_ROWS
from hexforge.ir import Graph, Node, Role, Value

LONGEST = 24
"""Nodes that one kernel takes at most in addition to its own."""
WHOLE = frozenset({"CumulativeSum", "ScatterElements", "ScatterNd", "TopK"})
"""Ops whose kernels take no chain."""
MOST_REPEATED = 1 << 25
"""Multiplications of a depthwise convolution, done again for every 32 columns that read it, that cost no more than a
kernel of its own: a launch takes 9 µs on an H200."""
DEEPEST = 640
"""Channels of such a convolution: with more, what sums them up takes longer than two kernels."""
_FREE = frozenset({*MOVES, "Cast", "Concat", "Pack", "Pad"})


@dataclass(slots=True)
class Groups:
    """The kernels of a graph: roots in the order they run, with the nodes that run as part of them."""

    roots: list[Node]
    chains: dict[Node, tuple[Node, ...]] = field(default_factory=dict)
    turned: dict[Node, Node] = field(default_factory=dict)
    """Products whose result is written as the transpose after them has it."""
    views: set[Node] = field(default_factory=set)
    """Transposes that products read through, by strides."""
    inlined: set[Node] = field(default_factory=set)
    joined: dict[Value, tuple[Node, int]] = field(default_factory=dict)
    """Results that kernels write where a concatenation has them: which one, and as which of its inputs."""
    depthwise: dict[Node, Node] = field(default_factory=dict)
    """Convolutions of one tap, each with the depthwise one that is computed where it reads."""
    scaled: dict[Node, Node] = field(default_factory=dict)
    """Convolutions of one tap, each with the multiplication by factors of channels that happens where it reads."""
    attention: dict[Node, tuple[Node, Node]] = field(default_factory=dict)
    """Products with values, each with the product of queries and keys and the softmax that run in its kernel."""
    scored: dict[Node, tuple[Node, ...]] = field(default_factory=dict)
    """What happens to the scores in between."""


def _escapes(value: Value, inside: set[Node]) -> bool:
    return value.role is Role.APP_READ or any(user not in inside for user in value.users)


def _appended(node: Node, value: Value, inside: set[Node]) -> bool:
    """Whether a node continues a chain: one output, as many elements, in their order."""
    if len(node.outputs) != 1:
        return False
    out = node.outputs[0]
    if node.op.name in ALIASES:
        return True
    alike = node.op.pointwise or (node.op.name == "Batchnorm" and node.inputs[0] is value)
    takes = node.op.name in MAPS and alike and out.shape == value.shape
    return takes and all(v is None or v.producer not in inside or v.shape == out.shape for v in node.inputs)


def _chain(root: Node, index: dict[Node, int]) -> tuple[Node, ...]:
    """The longest chain after a node in which only the last result is read by others."""
    inside: set[Node] = {root}
    grown: list[Node] = []
    best = 0
    while len(grown) < LONGEST:
        values = [n.outputs[0] for n in (root, *grown)]
        if any(v.role is Role.APP_READ for v in values):
            break
        candidates = {u for v in values for u in v.users if u not in inside and _appended(u, v, inside)}
        if not candidates:
            break
        node = min(candidates, key=lambda n: index[n])
        grown.append(node)
        inside.add(node)
        if sum(_escapes(n.outputs[0], inside) for n in (root, *grown)) <= 1 and _escapes(node.outputs[0], inside):
            best = len(grown)
    return tuple(grown[:best])


def group(graph: Graph, optimize: bool, attention: bool = True, planes: bool = False) -> Groups:
    """The kernels of a graph.

    Without `attention` scores are written. With `planes` convolutions read NCHW pictures, and compute a depthwise one
    or a multiplication of channels before them on the spot.
    """
    nodes = graph.nodes
    index = {node: i for i, node in enumerate(nodes)}
    home: dict[Node, Node] = {}
    groups = Groups([])
    for node in nodes if optimize and attention else ():
        if matched := _attention(node, index):
            scores, chain, softmax = matched
            groups.attention[node], groups.scored[node] = (scores, softmax), chain
            home.update(dict.fromkeys((scores, *chain, softmax), node))
    for node in nodes:
        if node in home or node.op.name in MAPS | WHOLE or len(node.outputs) != 1 or not optimize:
            continue
        turn = _turn(node)
        if turn is not None:
            groups.turned[node] = turn
            home[turn] = node
        chain = tuple(_free(_chain(turn or node, index), home))
        if chain:
            groups.chains[node] = chain
            for member in chain:
                home[member] = node
    for node in nodes if optimize and planes else ():
        if (before := _depthwise(node, groups, home)) is not None:
            groups.depthwise[node] = before
            home[before] = node
        elif (factors := _scaled(node, home)) is not None:
            groups.scaled[node] = factors
            home[factors] = node
    if optimize:
        groups.views = {n for n in nodes if n not in home and (_viewed(n) or (planes and _planes(n)))}
        home.update({n: n for n in groups.views})
    ends = {n: (*groups.chains.get(n, ()), *((groups.turned[n],) if n in groups.turned else ())) for n in nodes}
    last = {node: max((index[m] for m in ends[node]), default=i) for node, i in index.items()}
    # parts of kernels that read tensors from memory: nothing is computed where they read
    stored = {
        *groups.views,
        *groups.depthwise.values(),
        *groups.scaled.values(),
        *(n for pair in groups.attention.values() for n in pair),
    }
    for node in reversed(nodes):
        if node in home or node.op.name not in MAPS or not optimize:
            continue
        out = node.outputs[0]
        users = list(out.users)
        if len(node.outputs) == 1 and out.role is not Role.APP_READ and users:
            roots = {home.get(u, u) for u in users}
            readers = all(u not in stored and (u in home or u.op.name in MAPS) for u in users)
            if len(roots) == 1 and readers and _cheap(node, users):
                home[node] = roots.pop()
                groups.inlined.add(node)
    if optimize:
        kernels = [n for n in nodes if n not in home and n.op.name not in MAPS | WHOLE and len(n.outputs) == 1]
        ended = {(groups.chains.get(n) or (groups.turned.get(n, n),))[-1].outputs[0] for n in kernels}
        for node in nodes:
            if node.op.name == "Concat" and node not in home and _joinable(node, ended):
                groups.joined.update({v: (node, i) for i, v in enumerate(node.inputs) if v is not None})
                home[node] = node
    left = [n for n in nodes if n not in home]
    groups.roots = sorted(left, key=lambda n: last[n])
    return groups


def _depthwise(node: Node, groups: Groups, home: dict[Node, Node]) -> Node | None:
    """The depthwise convolution of little work whose result a convolution of one tap alone reads."""
    x = _only_input(node)
    if x is None or x.producer is None:
        return None
    root = home.get(x.producer, x.producer)
    chain = groups.chains.get(root, ())
    if root.op.name != "DepthWiseConv2d" or root in home:
        return None
    filters, out = root.inputs[1], root.outputs[0]
    source = root.inputs[0]
    if filters is None or source is None or source.shape[-1] != out.shape[-1] or math.prod(filters.shape[:2]) > 25:
        return None
    unary = all(
        len([v for v in n.inputs if v is not None]) == 1 and n.op.name in FLOAT and n.op.name not in SCALAR_ONLY
        for n in chain
    )
    work = math.prod(filters.shape[:2]) * out.type.size * -(-node.outputs[0].shape[-1] // 32)
    whole = (chain[-1].outputs[0] if chain else out) is x and all(n.outputs[0].shape == out.shape for n in chain)
    return root if unary and whole and work < MOST_REPEATED and out.shape[-1] <= DEEPEST else None


def _scaled(node: Node, home: dict[Node, Node]) -> Node | None:
    """The multiplication of channels by factors of their picture whose result a convolution of one tap alone reads."""
    x = _only_input(node)
    times = x.producer if x is not None else None
    if x is None or times is None or times.op.name != "ElementWiseMultiply" or times in home or len(x.shape) != 4:
        return None
    values, factors = times.inputs
    if values is None or factors is None:
        return None
    if values.shape != x.shape:
        values, factors = factors, values
    pictures, height, width, channels = x.shape
    by_channel = values.shape == x.shape and factors.shape == (pictures, 1, 1, channels) and not factors.is_static
    many = pictures * height * width > MOST_ROWS and height * width > 1
    return times if by_channel and many and x.dtype.is_float else None


def _only_input(node: Node) -> Value | None:
    """The input of a convolution of one tap, one step and one group that nothing else reads."""
    x = node.inputs[0] if node.op.name == "Conv2d" else None
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    if x is None or weight is None or set(x.users) != {node} or x.role is Role.APP_READ or weight.shape[:2] != (1, 1):
        return None
    params = node.params
    plain = tuple(params["stride"]) == (1, 1) and params["group"] == 1 and not any(map(any, params["pad_amount"]))
    return x if plain else None


def _planes(node: Node) -> bool:
    """Whether a transpose brings a picture of few channels into NHWC for convolutions alone."""
    out, source = node.outputs[0], node.inputs[0]
    if node.op.name != "Transpose" or tuple(node.params["perm"]) != (0, 2, 3, 1) or source is None or source.is_static:
        return False
    few = source.shape[1] <= 4 and out.role is not Role.APP_READ and len(out.users) == 1
    return few and all(u.op.name == "Conv2d" and u.inputs[0] is out and u.params["group"] == 1 for u in out.users)


def _joinable(node: Node, ended: set[Value]) -> bool:
    """Whether every input of a concatenation is the result of a kernel that can write it into the whole."""
    inputs = [v for v in node.inputs if v is not None]
    if len(set(inputs)) < len(inputs) or node.outputs[0].role is Role.APP_READ:
        return False
    return all(v in ended and v.role is not Role.APP_READ and v.type.size and set(v.users) == {node} for v in inputs)


def _attention(node: Node, index: dict[Node, int]) -> tuple[Node, tuple[Node, ...], Node] | None:
    """The product of queries and keys, what happens to it, and the softmax that a product with values alone reads."""
    if node.op.name != "MatMul" or node.params["transpose_in0"] or node.params["transpose_in1"] or _third(node):
        return None
    probabilities, values = node.inputs[:2]
    softmax = probabilities.producer if probabilities is not None else None
    if softmax is None or softmax.op.name != "Softmax" or values is None or values.is_static or _read(softmax, node):
        return None
    scored = softmax.inputs[0]
    last = scored.producer if scored is not None else None
    scores = last
    while scores is not None and scores.op.name != "MatMul":
        scores = next((v.producer for v in scores.inputs if v is not None and v.shape == scores.outputs[0].shape), None)
    if scores is None or last is None or _third(scores):
        return None
    out, keys = scores.outputs[0], scores.inputs[1]
    chain = () if scores is last else _chain(scores, index)
    inside = {scores, *chain}
    if (chain and last not in inside) or any(n.outputs[0].shape != out.shape for n in chain) or _read(last, softmax):
        return None
    if keys is None or keys.is_static or softmax.params["axis"] % len(out.shape) != len(out.shape) - 1:
        return None
    depth, width = (scores.inputs[0].shape[-2 if scores.params["transpose_in0"] else -1], node.outputs[0].shape[-1])  # type: ignore[union-attr]
    fits = depth <= LARGEST and width <= LARGEST and width % 8 == 0 and 0 not in (*out.shape, depth)
    return (scores, chain, softmax) if fits and out.shape[:-2] == node.outputs[0].shape[:-2] else None


def _third(node: Node) -> bool:
    return len(node.inputs) > 2 and node.inputs[2] is not None


def _read(node: Node, reader: Node) -> bool:
    """Whether something other than one reader sees a node's result."""
    out = node.outputs[0]
    return out.role is Role.APP_READ or set(out.users) != {reader}


def _turn(node: Node) -> Node | None:
    """The transpose that alone reads a product's result and swaps its rows with the axis before them."""
    out = node.outputs[0]
    if node.op.name != "MatMul" or out.role is Role.APP_READ or len(out.users) != 1 or len(out.shape) < 3:
        return None
    (user,) = out.users
    rank = len(out.shape)
    swapped = (*range(rank - 3), rank - 2, rank - 3, rank - 1)
    return user if user.op.name == "Transpose" and tuple(user.params["perm"]) == swapped else None


def _viewed(node: Node) -> bool:
    """Whether a transpose is read by matrix products alone, whose operands may have any strides."""
    out, source = node.outputs[0], node.inputs[0]
    if node.op.name != "Transpose" or out.role is Role.APP_READ or not out.users or source is None:
        return False
    return not source.is_static and all(u.op.name == "MatMul" and out in u.inputs[:2] for u in out.users)


def _free(chain: tuple[Node, ...], home: dict[Node, Node]) -> list[Node]:
    """The start of a chain that no other kernel has taken."""
    kept: list[Node] = []
    for node in chain:
        if node in home:
            return []
        kept.append(node)
    return kept


def _cheap(node: Node, users: list[Node]) -> bool:
    """Whether computing a node where it is read costs no more than reading it."""
    size = node.outputs[0].type.size
    if node.op.name in _FREE and node.op.name != "Concat":
        return True
    return all(sum(v.type.size for v in u.outputs) <= 2 * size for u in users)
