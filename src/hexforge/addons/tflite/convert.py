# SPDX-License-Identifier: Apache-2.0
"""Convert: a .tflite as the ONNX model that computes the same, under the same names.

parse        the file's tables, checked
translate    each operator by its row of `TRANSLATIONS`; all that are not translated are named at once
finish       the graph with the file's inputs, outputs, signatures and metadata
"""

from __future__ import annotations

import struct
from functools import partial

import numpy as np
import onnx
from onnx import helper

from hexforge.addons.tflite.bundle import model_bytes
from hexforge.addons.tflite.graph_writer import OPSET, GraphWriter, Names
from hexforge.addons.tflite.model_file import Operator, Subgraph, TfliteModel, parse
from hexforge.addons.tflite.operator_call import OperatorCall, Translation, UntranslatedError
from hexforge.addons.tflite.operators_control import CONTROL
from hexforge.addons.tflite.operators_moves import MOVES
from hexforge.addons.tflite.operators_pointwise import POINTWISE
from hexforge.addons.tflite.operators_products import PRODUCTS
from hexforge.addons.tflite.operators_recurrent import RECURRENT
from hexforge.addons.tflite.operators_reductions import REDUCTIONS
from hexforge.addons.tflite.operators_vision import CUSTOM, VISION
from hexforge.errors import CapacityError, FormatError, HexforgeError, UnsupportedError
from hexforge.model.load_check import RUNTIME_IR

MOST_FOLDED = 1 << 16
"""Elements of constants that are computed with now."""
MOST_DEPTH = 6
"""Of subgraphs that run subgraphs."""
MOST_NAMES = 1 << 20
TRANSLATIONS: dict[str, Translation] = {
    **POINTWISE, **PRODUCTS, **RECURRENT, **REDUCTIONS, **MOVES, **VISION, **CONTROL
}  # fmt: skip
"""Every builtin operator that is translated, by its name."""
_MOST_SHOWN = 20


def onnx_of_file(data: bytes, where: str, member: str = "") -> onnx.ModelProto:
    """The ONNX model of a .tflite, or of one of the models in a bundle."""
    inner, name = model_bytes(data, where, member)
    return onnx_model(parse(inner, name))


def onnx_model(model: TfliteModel, subgraph: int = 0) -> onnx.ModelProto:
    """The ONNX model of a subgraph."""
    names = Names()
    refused: dict[str, list[str]] = {}
    chosen = model.subgraphs[subgraph]
    writer = GraphWriter(model, chosen, names)
    for number, operator in enumerate(chosen.operators):
        written = len(writer.nodes)
        try:
            translate(writer, operator)
        except (UnsupportedError, FormatError) as error:
            refused.setdefault(f"{operator.name}: {error}", []).append(_label(chosen, operator, number))
            _leave_open(writer, operator, written)
    if refused:
        raise UnsupportedError(_refusal(model.where, refused, len(chosen.operators)))
    try:
        graph = writer.finish(chosen.name or "main")
    except UnsupportedError as error:
        raise UnsupportedError(f"{model.where}: {error}") from None
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="hexforge")
    made.ir_version = RUNTIME_IR
    helper.set_model_props(made, _properties(model) | _beginnings(writer))
    made.doc_string = model.description
    return made


def is_translated(operator: Operator) -> bool:
    """Whether there is a row for an operator."""
    return operator.name in (CUSTOM if operator.is_custom else TRANSLATIONS)


def translate(writer: GraphWriter, operator: Operator) -> None:
    """Write one operator."""
    row = (CUSTOM if operator.is_custom else TRANSLATIONS).get(operator.name)
    if row is None:
        whose = "custom operator" if operator.is_custom else "operator"
        raise UntranslatedError(
            f"this {whose} is not translated; convert the model without it, or cut it off before it"
        )
    writer.owner = writer.tensors[operator.outputs[0]].name if operator.outputs else operator.name
    begin = len(writer.nodes)
    call = OperatorCall(writer, operator, row.options, partial(_inline, writer))
    try:
        row.translate(call)
    except HexforgeError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, ZeroDivisionError, struct.error) as error:
        raise UntranslatedError(f"its tensors do not fit together ({error}); the file is damaged") from None
    if not operator.is_custom and operator.name not in CONTROL:
        _fold(writer, operator, begin)
    _name_nodes(writer, begin)
    if len(writer.names) > MOST_NAMES:
        raise CapacityError(
            f"{writer.model.where}: has more than {MOST_NAMES} values once its subgraphs are written out"
        )


def _fold(writer: GraphWriter, operator: Operator, begin: int) -> None:
    """Compute what an operator makes of constants: sizes that files compute of the shapes of tensors."""
    nodes = writer.nodes[begin:]
    if not nodes or any(writer.constant(index) is None for index in operator.inputs if index >= 0):
        return
    values = {name for node in nodes for name in (*node.input, *node.output) if name}
    sizes = [writer.elements(name) for name in values]
    if sum(MOST_FOLDED if size is None else size for size in sizes) >= MOST_FOLDED:
        return
    from onnx.reference import ReferenceEvaluator  # a model that folds nothing does without

    names = [writer.stored(index) for index in operator.outputs]
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    used = [value for value in writer.initializers if value.name in values]
    graph = helper.make_graph(nodes, "constants", [], outputs, used)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    try:
        results = ReferenceEvaluator(model).run(None, {})
    except Exception:  # an op that onnx's reference has not, or that does not fit: whoever runs the model says so
        return
    del writer.nodes[begin:]
    for index, value in zip(operator.outputs, results, strict=True):
        writer.make_known(index, np.asarray(value))


def _inline(writer: GraphWriter, number: int, given: list[str] | None) -> GraphWriter:
    """A subgraph that an operator runs, over values of the graph that the operator is in."""
    model = writer.model
    if not 0 <= number < len(model.subgraphs):
        raise FormatError(
            f"{model.where}: names subgraph {number}, and has {len(model.subgraphs)}; the file is damaged"
        )
    subgraph = model.subgraphs[number]
    if writer.depth >= MOST_DEPTH or (given is not None and len(given) != len(subgraph.inputs)):
        raise FormatError(f"{model.where}: subgraph {number} is run with other inputs than it has, or by itself")
    inner = GraphWriter(model, subgraph, writer.names, given, writer.depth + 1)
    inner.states, inner.beginnings = writer.states, writer.beginnings
    writer.types |= inner.types
    inner.types, inner.constants = writer.types, writer.constants
    for operator in inner.subgraph.operators:
        translate(inner, operator)
    return inner


def _name_nodes(writer: GraphWriter, begin: int) -> None:
    """The node that does an operator's work has the name of its output, as operators have none of their own."""
    added = writer.nodes[begin:]
    main = next((n for n in added if n.op_type not in ("DequantizeLinear", "QuantizeLinear", "Transpose")), None)
    for node in added:
        node.name = writer.names.unique(f"{writer.owner}" if node is main else f"{writer.owner}/{node.op_type}")


def _leave_open(writer: GraphWriter, operator: Operator, written: int) -> None:
    """Give a refused operator's outputs a value, so that what comes behind it is looked at, too."""
    del writer.nodes[written:]
    for index in operator.outputs:
        writer.known.pop(index, None)
        writer.store(index, writer.initializer(np.zeros(0, np.float32), "refused"))


def _label(subgraph: Subgraph, operator: Operator, number: int) -> str:
    return repr(subgraph.tensors[operator.outputs[0]].name) if operator.outputs else f"operator {number}"


def _refusal(where: str, refused: dict[str, list[str]], total: int) -> str:
    count = sum(map(len, refused.values()))
    lines = [f"{where}: {count} of {total} operators are not translated:"]
    for reason, labels in list(refused.items())[:_MOST_SHOWN]:
        more = f" and {len(labels) - 1} more" if len(labels) > 1 else ""
        lines.append(f"  {reason} ({labels[0]}{more})")
    return "\n".join(lines)


BEGINS = "begins as "
"""Of a property whose value is the number that all elements of a variable begin with."""


def _beginnings(writer: GraphWriter) -> dict[str, str]:
    found = {}
    for name, state in writer.states.items():
        values = writer.beginnings.get(name, np.zeros(1))
        found[BEGINS + state.input.name] = f"{values.flat[0]:g}" if np.ptp(values) == 0 else "a constant of the file"
    return found


def _properties(model: TfliteModel) -> dict[str, str]:
    """What the file says beyond its graph, as texts."""
    found = {"source": model.where}
    for signature in model.signatures:
        tensors = model.subgraphs[signature.subgraph].tensors
        for side, named in (("inputs", signature.inputs), ("outputs", signature.outputs)):
            found[f"signature {signature.key} {side}"] = ", ".join(f"{k}={tensors[i].name}" for k, i in named.items())
    return found
