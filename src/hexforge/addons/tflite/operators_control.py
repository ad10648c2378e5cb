# SPDX-License-Identifier: Apache-2.0
"""Control: operators that run subgraphs, and variables that a model keeps between its runs.

ONNX has no variables: each becomes an input, with the value so far, and an output NAME/next, with the value for the
next run. What it begins with is what the file's CALL_ONCE assigns, which mostly is zeros.
"""

from __future__ import annotations

import onnx
from onnx import helper

from hexforge.addons.tflite.graph_writer import StateVariable
from hexforge.addons.tflite.model_file import Operator, Tensor, array_of
from hexforge.addons.tflite.operator_call import OperatorCall, Translation


def _stored(call: OperatorCall, places: range) -> list[str]:
    return [call.writer.stored(call.inputs[place]) for place in places]


def _store(call: OperatorCall, values: list[str]) -> None:
    for index, value in zip(call.outputs, values, strict=True):
        call.writer.store(index, value)


def _call(call: OperatorCall) -> None:
    """The subgraph in the place of the operator; of a composition, the one that spells it out."""
    inner = call.inline(call.options["subgraph"], _stored(call, range(len(call.inputs))))
    results = [value.name for value in inner.declared_outputs()]
    call.writer.nodes += inner.nodes
    call.writer.initializers += inner.initializers
    _store(call, results)


def _if(call: OperatorCall) -> None:
    given, before = _stored(call, range(1, len(call.inputs))), _values_of_states(call)
    branches = {}
    for name, field in (("then_branch", "then_subgraph"), ("else_branch", "else_subgraph")):
        inner = call.inline(call.options[field], given)
        outputs = inner.declared_outputs()
        branches[name] = helper.make_graph(inner.nodes, call.writer.names.unique(name), [], outputs, inner.initializers)
    _require_same_states(call, before)
    _store(call, list(call.nodes("If", len(call.outputs), call.read(0), **branches)))


def _values_of_states(call: OperatorCall) -> dict[str, str]:
    return {name: state.value for name, state in call.writer.states.items()}


def _require_same_states(call: OperatorCall, before: dict[str, str]) -> None:
    """Refuse what a branch or a loop assigns to variables, which are values of the graph outside of it."""
    for name, state in call.writer.states.items():
        if state.value != before.get(name, state.input.name):
            raise call.refuse(
                f"variable {name!r} is changed inside of it; change it behind it, by an output of its own"
            )


def _while(call: OperatorCall) -> None:
    """A Loop, whose condition is computed before it and at the end of its body."""
    given, states = _stored(call, range(len(call.inputs))), _values_of_states(call)
    before = call.inline(call.options["cond_subgraph"], given)
    first = before.declared_outputs()[0].name
    call.writer.nodes += before.nodes
    call.writer.initializers += before.initializers
    body = call.inline(call.options["body_subgraph"], None)
    results = body.declared_outputs()
    again = call.inline(call.options["cond_subgraph"], [value.name for value in results])
    goes_on = again.declared_outputs()[0]
    names = call.writer.names
    counted = helper.make_tensor_value_info(names.unique("iteration"), onnx.TensorProto.INT64, [])
    held = helper.make_tensor_value_info(names.unique("condition"), onnx.TensorProto.BOOL, [])
    graph = helper.make_graph(
        body.nodes + again.nodes,
        names.unique("body"),
        [counted, held, *body.declared_inputs()],
        [goes_on, *results],
        body.initializers + again.initializers,
    )
    _require_same_states(call, states)
    _store(call, list(call.nodes("Loop", len(call.outputs), "", first, *given, body=graph)))


# -- variables -------------------------------------------------------------------------------------------------------


def _call_once(call: OperatorCall) -> None:
    """Constants that variables begin with, which are the application's to give."""
    number = call.options["subgraph"]
    if not 0 <= number < len(call.writer.model.subgraphs):
        raise call.refuse(f"it names subgraph {number}; the file is damaged")
    inner = call.writer.model.subgraphs[number]
    names: dict[int, str] = {}
    for operator in inner.operators:
        if operator.name == "VAR_HANDLE" and operator.outputs:
            names[operator.outputs[0]] = _name_of_variable(operator, inner.tensors[operator.outputs[0]])
        elif operator.name == "ASSIGN_VARIABLE" and len(operator.inputs) == 2 and operator.inputs[0] in names:
            value = inner.tensors[operator.inputs[1]]
            if value.data is None:
                raise call.refuse(
                    f"variable {names[operator.inputs[0]]!r} begins with what is computed, not a constant"
                )
            call.writer.beginnings[names[operator.inputs[0]]] = array_of(value, call.writer.model.where)
        else:
            raise call.refuse(f"its subgraph computes with {operator.name}; only constants are assigned once")


def _var_handle(call: OperatorCall) -> None:
    call.writer.handles[call.outputs[0]] = _name_of_variable(call.operator, call.result())


def _name_of_variable(operator: Operator, handle: Tensor) -> str:
    return (None if operator.options is None else operator.options.text(1)) or handle.name


def _state(call: OperatorCall, index: int) -> StateVariable:
    """The variable of input 0, of the type and shape of a tensor where this is the first that is heard of it."""
    name = call.writer.handles.get(call.inputs[0]) if call.has(0) else None
    if name is None:
        raise call.refuse("its variable comes from outside of the graph; convert it with variables of its own")
    return call.writer.state(index, name)


def _read_variable(call: OperatorCall) -> None:
    call.result()
    call.writer.store(call.outputs[0], call.node("Identity", _state(call, call.outputs[0]).value))


def _assign_variable(call: OperatorCall) -> None:
    call.tensor(1)
    _state(call, call.inputs[1]).value = call.writer.stored(call.inputs[1])


CONTROL = {
    "ASSIGN_VARIABLE": Translation(_assign_variable),
    "CALL": Translation(_call, "subgraph:I"),
    "CALL_ONCE": Translation(_call_once, "subgraph:i"),
    "IF": Translation(_if, "then_subgraph:i else_subgraph:i"),
    "READ_VARIABLE": Translation(_read_variable),
    "STABLEHLO_COMPOSITE": Translation(_call, "name:- subgraph:i"),
    "VAR_HANDLE": Translation(_var_handle),
    "WHILE": Translation(_while, "cond_subgraph:i body_subgraph:i"),
}
