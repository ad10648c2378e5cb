# SPDX-License-Identifier: Apache-2.0
"""The ONNX graph of a decoder: new tokens and caches in, logits and caches out.

    input_ids, position_ids [1, N] int32, past_key_values.L.key and .value -> logits [1, N, vocabulary], present.L...

A cache holds `context` tokens; ScatterElements puts the new ones at their positions, so that past and present may be
one buffer. A token sees the keys at positions up to its own: no mask goes in, and padding after the last does no harm.
Quantized graphs have QuantizeLinear and DequantizeLinear around every op, 8-bit caches, and masks as MaskedSoftmax
wants them. Queries of heads that share keys lie below each other, so that no key is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from hexforge.addons.llm.bundle import LOGITS, PAST, POSITIONS, PRESENT, STATE, TOKENS
from hexforge.addons.llm.checkpoints.architecture import EMBEDDING, FINAL_NORM
from hexforge.addons.llm.checkpoints.checkpoint import Checkpoint
from hexforge.addons.llm.checkpoints.float_decoder import Ranges
from hexforge.addons.llm.checkpoints.rotation import Rotation
from hexforge.addons.llm.exporting.low_rank_branches import LowRankBranches, quantized_factor
from hexforge.addons.llm.exporting.precision import BundlePrecision, CodeSteps, cache_steps, steps_between
from hexforge.addons.llm.exporting.weight_file import WeightFile, small
from hexforge.addons.llm.exporting.weight_rounding import InputCorrelations, RoundedWeight, rounded_weight
from hexforge.ir import Array

OPSET, IR_VERSION = 23, 11
MASKED = -30000.0
"""A masked score of a float graph: its exponential is 0, in half precision too."""
BELOW = -20.0
"""How far below all scores a masked one lies in a quantized graph, as MaskedSoftmax wants it."""
_UINT = {8: (TensorProto.UINT8, np.uint8), 16: (TensorProto.UINT16, np.uint16)}


@dataclass(frozen=True, slots=True)
class GraphRequest:
    """What one graph of a bundle is to be: how many new tokens, how long a context, and which layers."""

    tokens: int | str
    """New tokens a run; a name leaves their number open."""
    context: int
    first: int
    """Its first layer; the embedding is before layer 0."""
    last: int
    """The layer after its last; the head is after the model's last."""
    keys_transposed: bool = False
    """Keys lie [head, context], as native caches must."""
    adapter: str = ""
    """Whose low-rank factors are in the branches; those of the base are zeros."""


class DecoderGraph:
    """Writes the graphs of one checkpoint; the weights of those of some layers go into one file."""

    def __init__(
        self, checkpoint: Checkpoint, precision: BundlePrecision, ranges: Ranges,
        branches: LowRankBranches | None = None, correlations: InputCorrelations | None = None,
    ) -> None:  # fmt: skip
        self.checkpoint, self.precision, self.ranges = checkpoint, precision, ranges
        self.architecture = checkpoint.architecture
        self.branches = branches or LowRankBranches(checkpoint)
        self.correlations = correlations
        """What weights are rounded by, where the errors of some are made up for by others."""

    def model(self, request: GraphRequest, files: Mapping[str, WeightFile]) -> onnx.ModelProto:
        """The model of one request; `files` are of the base, called "", for weights, and of each adapter."""
        return _Nodes(self, request, files).model()


class _Nodes:
    """Nodes of one graph, written one after the other."""

    def __init__(self, graph: DecoderGraph, request: GraphRequest, files: Mapping[str, WeightFile]) -> None:
        self.graph, self.request, self.files, self.weights = graph, request, files, files[""]
        self.arch, self.precision = graph.architecture, graph.precision
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, onnx.TensorProto] = {}
        self.steps: dict[str, CodeSteps] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self._tables: dict[Rotation, tuple[str, str]] = {}
        self._allowed: dict[int, str] = {}

    # -- the whole ---------------------------------------------------------------------------------------------

    def model(self) -> onnx.ModelProto:
        shape, request = self.arch.shape, self.request
        n = request.tokens
        self._input(POSITIONS, TensorProto.INT32, [1, n])
        if request.first == 0:
            self._input(TOKENS, TensorProto.INT32, [1, n])
            x = self._embedded()
        else:
            self._input(STATE, TensorProto.FLOAT, [1, n, shape.hidden])
            x = self._encoded(STATE, self._range(f"layer.{request.first - 1}.fed"))
        for layer in range(request.first, request.last):
            x = self._layer(layer, x)
        if request.last == shape.layers:
            x = self._norm("normalized", FINAL_NORM, x, None)
            x = self._product(LOGITS, self.arch.head_weight, x, None)
            if cap := self.arch.logit_cap:
                x = self._capped(x, cap, LOGITS)
            self._output(x, LOGITS, TensorProto.FLOAT, [1, n, shape.vocab])
        else:
            self._output(x, f"{STATE}_out", TensorProto.FLOAT, [1, n, shape.hidden])
        made = helper.make_graph(self.nodes, "decoder", self.inputs, self.outputs, list(self.constants.values()))
        opset = helper.make_opsetid("", OPSET)
        return helper.make_model(made, opset_imports=[opset], ir_version=IR_VERSION, producer_name="hexforge")

    def _embedded(self) -> str:
        arch, checkpoint = self.arch, self.graph.checkpoint
        scale = np.float32(arch.embedding_scale)
        table = self._stored("embedding", lambda: _times(checkpoint.weight(EMBEDDING), scale), self._range("embedded"))
        return self._encoded(self._node("Gather", [table, TOKENS], axis=0), self._range("embedded"))

    def _layer(self, layer: int, x: str) -> str:
        arch = self.arch
        read = self._norm(f"layer.{layer}.attention_norm", "attention_norm", x, layer) if arch.inner_norms else x
        out = self._product(f"layer.{layer}.output", "output", self._attention(layer, read), layer)
        if arch.outer_norms:
            out = self._norm(f"layer.{layer}.attention_out_norm", "attention_out_norm", out, layer)
        x = self._op(f"layer.{layer}.attended", "Add", [x, out])
        read = self._norm(f"layer.{layer}.feed_norm", "feed_norm", x, layer) if arch.inner_norms else x
        gate, up = (self._product(f"layer.{layer}.{name}", name, read, layer) for name in ("gate", "up"))
        out = self._op(f"layer.{layer}.gated", "Mul", [self._activated(layer, gate), up])
        out = self._product(f"layer.{layer}.down", "down", out, layer)
        if arch.outer_norms:
            out = self._norm(f"layer.{layer}.feed_out_norm", "feed_out_norm", out, layer)
        return self._op(f"layer.{layer}.fed", "Add", [x, out])

    def _activated(self, layer: int, gate: str) -> str:
        name = f"layer.{layer}.activated"
        if self.arch.activation != "silu":
            return self._op(name, "Gelu", [gate], approximate="tanh")
        share = self._encoded(self._node("Sigmoid", [gate]), (0.0, 1.0))
        return self._op(name, "Mul", [gate, share])

    # -- attention ---------------------------------------------------------------------------------------------

    def _attention(self, layer: int, read: str) -> str:
        arch, shape, at = self.arch, self.arch.shape, f"layer.{layer}."
        window = arch.windows[layer] if arch.windows else 0
        heads = {"query": shape.heads, "key": shape.kv_heads, "value": shape.kv_heads}
        parts = {}
        for name, count in heads.items():
            y = self._product(at + name, name, read, layer)
            if arch.joint_norms and name != "value":
                y = self._norm(f"{at}{name}_norm", f"{name}_norm", y, layer)
            y = self._moved(y, "Reshape", self._shape([1, -1, count, shape.head_dim]))
            if arch.head_norms and name != "value":
                y = self._norm(f"{at}{name}_norm", f"{name}_norm", y, layer)
            parts[name] = self._moved(y, "Transpose", perm=[0, 2, 1, 3])
        if not arch.rotated or arch.rotated[layer]:
            rotation = arch.local_rotation if window else arch.rotation
            for name in ("query", "key"):
                limits = self._range(f"{at}{name}_norm" if arch.normed_queries else at + name)
                parts[name] = self._turned(f"{at}{name}_turned", parts[name], rotation, limits)
        query = self._moved(parts["query"], "Reshape", self._shape([1, shape.kv_heads, -1, shape.head_dim]))
        key, value = self._cached(layer, "key", parts["key"]), self._cached(layer, "value", parts["value"])
        scores = self._op(f"{at}scores", "MatMul", [query, key])
        if arch.score_cap:
            scores = self._capped(scores, arch.score_cap, f"{at}scores")
        scores = self._moved(scores, "Reshape", self._shape([1, shape.heads, -1, self.request.context]))
        shares = self._shares(at, scores, self._condition(window))
        shares = self._moved(shares, "Reshape", self._shape([1, shape.kv_heads, -1, self.request.context]))
        mixed = self._op(f"{at}mixed", "MatMul", [shares, value])
        mixed = self._moved(mixed, "Reshape", self._shape([1, shape.heads, -1, shape.head_dim]))
        mixed = self._moved(mixed, "Transpose", perm=[0, 2, 1, 3])
        return self._moved(mixed, "Reshape", self._shape([1, -1, shape.heads * shape.head_dim]))

    def _turned(self, name: str, x: str, rotation: Rotation, limits: tuple[float, float]) -> str:
        """Pairs of elements, the first half and the second of a head, turned by their positions."""
        half, size = rotation.size // 2, self.arch.shape.head_dim
        largest = max(map(abs, limits)) * rotation.scale
        turned, products = self._range(name), (-largest, largest)
        cosine, sine = self._turns(rotation)
        first, second = self._part(x, 0, half), self._part(x, half, 2 * half)
        terms = [
            self._encoded(self._node("Mul", [a, b]), products)
            for a, b in ((first, cosine), (second, sine), (second, cosine), (first, sine))
        ]
        halves = [
            self._encoded(self._node("Sub", terms[:2]), turned),
            self._encoded(self._node("Add", terms[2:]), turned),
        ]
        if rotation.size < size:
            halves.append(self._part(x, rotation.size, size))
        return self._encoded(self._node("Concat", halves, axis=3), turned)

    def _part(self, x: str, start: int, end: int) -> str:
        ends = [self._small(f"at.{place}", np.array([place], np.int64)) for place in (start, end, 3)]
        return self._moved(x, "Slice", *ends)

    def _turns(self, rotation: Rotation) -> tuple[str, str]:
        """Cosines and sines of the new tokens' positions [1, 1, N, half]."""
        if rotation not in self._tables:
            index, limits = len(self._tables), (-rotation.scale, rotation.scale)
            made = []
            for name, which in (("cosines", 0), ("sines", 1)):
                table = self._stored(
                    f"{name}.{index}.{self.request.context}",
                    lambda which=which: rotation.table(self.request.context)[which],
                    limits,
                )
                rows = self._encoded(self._node("Gather", [table, POSITIONS], axis=0), limits)
                made.append(self._moved(rows, "Reshape", self._shape([1, 1, -1, rotation.size // 2])))
            self._tables[rotation] = (made[0], made[1])
        return self._tables[rotation]

    def _cached(self, layer: int, name: str, new: str) -> str:
        """The cache with new rows in it: keys [1, heads, head, context], values [1, heads, context, head]."""
        shape, request = self.arch.shape, self.request
        transposed = name == "key" and request.keys_transposed
        past, present = PAST.format(layer, name), PRESENT.format(layer, name)
        sizes = [1, shape.kv_heads, request.context, shape.head_dim]
        sizes = [*sizes[:2], sizes[3], sizes[2]] if transposed else sizes
        kind = TensorProto.UINT8 if self.precision.quantized else TensorProto.FLOAT
        self._input(past, kind, sizes)
        self.outputs.append(helper.make_tensor_value_info(present, kind, sizes))
        low, high = self._range(f"layer.{layer}.{name}_cache")
        steps = cache_steps(max(-low, high))
        if transposed:
            new = self._moved(new, "Transpose", perm=[0, 1, 3, 2])
        places = self._places([1, shape.kv_heads, *((shape.head_dim, 1) if transposed else (1, shape.head_dim))])
        axis = 3 if transposed else 2
        if self.precision.quantized:
            new, old = self._coded(new, steps), self._read_codes(past, steps)
            joined = self._node("ScatterElements", [old, places, new], axis=axis)
            self._node("QuantizeLinear", [joined, *self._parameters(steps)], present)
            whole = self._read_codes(present, steps)
        else:
            whole = self._node("ScatterElements", [past, places, new], present, axis=axis)
        if name == "key" and not transposed:
            whole = self._moved(whole, "Transpose", perm=[0, 1, 3, 2])
        return whole

    def _places(self, spread: list[int]) -> str:
        """Where each new number goes in a cache: its token's position."""
        name = f"places.{'.'.join(map(str, spread))}"
        if not any(name in node.output for node in self.nodes):
            column = self._node("Reshape", [POSITIONS, self._shape([1, 1, 1, -1] if spread[3] == 1 else [1, 1, -1, 1])])
            self._node("Expand", [column, self._shape(spread)], name)
        return name

    def _condition(self, window: int) -> str:
        """[1, 1, N, context]: which keys a new token sees."""
        if window not in self._allowed:
            context = self.request.context
            keys = self._small("key_places", np.arange(context, dtype=np.int32).reshape(1, 1, 1, context))
            rows = self._node("Reshape", [POSITIONS, self._shape([1, 1, -1, 1])])
            allowed = self._node("LessOrEqual", [keys, rows])
            if window and window < context:
                width = self._small(f"window.{window}", np.array(window, np.int32))
                near = self._node("Greater", [keys, self._node("Sub", [rows, width])])
                allowed = self._node("And", [allowed, near])
            if self.precision.quantized:
                mask = self._node("Cast", [allowed], to=TensorProto.UINT8)
                allowed = self._node("Cast", [mask], to=TensorProto.BOOL)
            self._allowed[window] = allowed
        return self._allowed[window]

    def _shares(self, at: str, scores: str, condition: str) -> str:
        """Softmax of the scores that the condition allows."""
        if not self.precision.quantized:
            far = self._small("masked", np.array(MASKED, np.float32))
            return self._node("Softmax", [self._node("Where", [condition, scores, far])], axis=-1)
        low, high = self._range(f"{at}scores")
        if cap := self.arch.score_cap:
            low, high = max(low, -cap), min(high, cap)
        axes = self._small("last_axis", np.array([-1], np.int64))
        least = self._encoded(self._node("ReduceMin", [scores, axes], keepdims=1), (low, high))
        below = self._stored("below", lambda: np.array(BELOW, np.float32), (BELOW, 0.0))
        wide = (min(low, 0.0) + BELOW, high)
        far = self._encoded(self._node("Add", [least, below]), wide)
        chosen = self._encoded(self._node("Where", [condition, scores, far]), wide)
        return self._encoded(self._node("Softmax", [chosen], axis=-1), (0.0, 1.0))

    def _capped(self, x: str, cap: float, name: str) -> str:
        size = self._stored(f"cap.{cap}", lambda: np.array(cap, np.float32), (0.0, cap))
        low, high = self._range(name)
        x = self._encoded(self._node("Div", [x, size]), (low / cap, high / cap))
        x = self._encoded(self._node("Tanh", [x]), (-1.0, 1.0))
        return self._encoded(self._node("Mul", [x, size]), (-cap, cap))

    # -- products and norms --------------------------------------------------------------------------------------

    def _scale(self, name: str) -> float:
        """What a weight is multiplied with beforehand: attention's scale goes into what makes the queries."""
        carries = "query_norm" if self.arch.normed_queries else "query"
        scales = name in (carries, f"{carries}_bias")
        return self.arch.attention_scale if scales else self.arch.result_scale(name)

    def _product(self, output: str, name: str, x: str, layer: int | None) -> str:
        checkpoint, scale = self.graph.checkpoint, np.float32(self._scale(name))
        at = name if layer is None else f"layer.{layer}.{name}"

        def matrix() -> Array:
            return _times(checkpoint.weight(name, layer).T, scale)

        def rounded() -> RoundedWeight:
            precision, correlations = self.precision, self.graph.correlations
            stored = checkpoint.codes(name, layer, precision.weight_bits, precision.block)
            if stored is not None and not precision.expanded:
                return RoundedWeight(stored[0], stored[1] * scale)
            factor = None if correlations is None else correlations.factor(name, layer)
            return rounded_weight(matrix(), precision, factor)

        y = self._node("MatMul", [x, self._matrix(f"{at}.weight", matrix, rounded)])
        if f"{name}_bias" in checkpoint.names() and layer is not None:
            y = self._encoded(y, self._range(f"{output}_product"))
            bias = checkpoint.weight(f"{name}_bias", layer) * scale
            limits = (float(bias.min()), float(bias.max()))
            y = self._node("Add", [y, self._stored(f"{at}.bias", lambda: bias, limits)])
        if layer is not None and self.graph.branches.rank(layer, name):
            y = self._encoded(y, self._range(f"{output}_base"))
            y = self._node("Add", [y, self._branch(output, name, x, layer)])
        return self._encoded(y, self._range(output))

    def _branch(self, output: str, name: str, x: str, layer: int) -> str:
        """What an adapter adds to a product: two thin matrices, one after the other."""
        first, second = self.graph.branches.factors(self.request.adapter, layer, name)
        sides = (("A", first, "low"), ("B", second * np.float32(self._scale(name)), "delta"))
        for side, factor, made in sides:
            matrix = self._factor(f"layer.{layer}.{name}.lora_{side}", factor)
            x = self._encoded(self._node("MatMul", [x, matrix]), self._range(f"{output}_{made}"))
        return x

    def _factor(self, name: str, factor: Array) -> str:
        """A thin matrix of the adapter [inputs, outputs], in the file of that adapter."""
        file = self.files[self.request.adapter]
        if not self.precision.quantized:
            return self._placed(file.constant(name, lambda: factor, TensorProto.FLOAT))
        integers, scales = quantized_factor(factor)
        placed = [
            self._placed(file.constant(f"{name}.int8", lambda: integers, TensorProto.INT8)),
            self._placed(file.constant(f"{name}.scales", lambda: scales, TensorProto.FLOAT)),
        ]
        return self._node("DequantizeLinear", placed)

    def _matrix(self, name: str, make: Any, round_: Any) -> str:
        """A matrix [inputs, outputs], as integers where weights are."""
        bits, block = self.precision.weight_bits, self.precision.block
        weights = self.weights
        if not bits:
            return self._placed(weights.constant(name, make, TensorProto.FLOAT))
        made: list[RoundedWeight] = []

        def integers() -> Array:
            made.append(round_())
            return made[0].integers

        integer = weights.constant(f"{name}.int{bits}", integers, TensorProto.INT4 if bits == 4 else TensorProto.INT8)
        scales = weights.constant(f"{name}.scales", lambda: made[0].scales, TensorProto.FLOAT)
        scale, blocks = self._placed(scales), len(scales.dims) == 2
        if self.precision.expanded and integer.dims[0] % block == 0:
            whole = weights.constant(f"{name}.expansion", lambda: np.asarray(made[0].expansion), TensorProto.UINT8)
            scale, blocks = self._node("DequantizeLinear", [self._placed(whole), scale], axis=1), True
        settings: dict[str, Any] = {"axis": 0, "block_size": block} if blocks else {"axis": 1}
        return self._node("DequantizeLinear", [self._placed(integer), scale], **settings)

    def _norm(self, output: str, name: str, x: str, layer: int | None) -> str:
        weight = (self.graph.checkpoint.weight(name, layer) + np.float32(self.arch.norm_offset)) * np.float32(
            self._scale(name)
        )
        at = name if layer is None else f"layer.{layer}.{name}"
        scale = self._stored(f"{at}.weight", lambda: weight, (float(weight.min()), float(weight.max())))
        y = self._node("RMSNormalization", [x, scale], axis=-1, epsilon=self.arch.epsilon)
        return self._encoded(y, self._range(output))

    # -- pieces --------------------------------------------------------------------------------------------------

    def _range(self, name: str) -> tuple[float, float]:
        """The lowest and highest number of a value; those of queries with attention's scale in them."""
        if not self.precision.quantized:
            return 0.0, 1.0
        low, high = self.graph.ranges[name]
        what = name.rpartition(".")[2]
        made = what.removesuffix("_product").removesuffix("_turned")
        direct = ("query", "query_product", "query_base", "query_delta", "query_turned")
        after = ("query_norm", "query_turned") if self.arch.normed_queries else direct
        scaled = what in after or (made == "query_norm")
        factor = self.arch.attention_scale if scaled else 1.0
        return low * factor, high * factor

    def _node(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        output = output or f"{kind}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], f"{kind}_{len(self.nodes)}", **attributes))
        return output

    def _op(self, name: str, kind: str, inputs: list[str], **attributes: Any) -> str:
        return self._encoded(self._node(kind, inputs, **attributes), self._range(name))

    def _encoded(self, made: str, limits: tuple[float, float]) -> str:
        """A computed value, with the steps of its range in quantized graphs."""
        return self._coded(made, steps_between(*limits)) if self.precision.quantized else made

    def _coded(self, made: str, steps: CodeSteps) -> str:
        codes = self._node("QuantizeLinear", [made, *self._parameters(steps)])
        return self._read_codes(codes, steps)

    def _read_codes(self, codes: str, steps: CodeSteps) -> str:
        output = self._node("DequantizeLinear", [codes, *self._parameters(steps)])
        self.steps[output] = steps
        return output

    def _moved(self, x: str, kind: str, *inputs: str, **attributes: Any) -> str:
        """A value that is moved only: its steps stay."""
        made = self._node(kind, [x, *inputs], **attributes)
        return self._coded(made, self.steps[x]) if x in self.steps else made

    def _stored(self, name: str, make: Any, limits: tuple[float, float]) -> str:
        """A constant that is no matrix of a product; 16 bits in quantized graphs."""
        if not self.precision.quantized:
            return self._placed(self.weights.constant(name, make, TensorProto.FLOAT))
        steps = steps_between(*limits)
        codes = self.weights.constant(f"{name}.uint16", lambda: steps.quantized(make()), TensorProto.UINT16)
        return self._read_codes(self._placed(codes), steps)

    def _placed(self, tensor: onnx.TensorProto) -> str:
        self.constants.setdefault(tensor.name, tensor)
        return str(tensor.name)

    def _small(self, name: str, array: Array) -> str:
        self.constants.setdefault(name, small(name, array))
        return name

    def _shape(self, sizes: list[int]) -> str:
        return self._small(f"shape.{'.'.join(map(str, sizes))}", np.array(sizes, np.int64))

    def _parameters(self, steps: CodeSteps) -> list[str]:
        kind = _UINT[steps.bits][1]
        scale = self._small(f"scale.{steps.scale!r}", np.array(steps.scale, np.float32))
        return [scale, self._small(f"zero.{steps.bits}.{steps.zero}", np.array(steps.zero, kind))]

    def _input(self, name: str, kind: int, sizes: list[Any]) -> None:
        self.inputs.append(helper.make_tensor_value_info(name, kind, sizes))

    def _output(self, made: str, name: str, kind: int, sizes: list[Any]) -> None:
        self._node("Identity", [made], name)
        self.outputs.append(helper.make_tensor_value_info(name, kind, sizes))


def _times(array: Array, scale: np.float32) -> Array:
    """A weight times a number, without a copy where that is 1."""
    return array if scale == 1 else array * scale
