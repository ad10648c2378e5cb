# SPDX-License-Identifier: Apache-2.0
"""What `info` says of a .tflite or a bundle: what is inside, and what LiteRT's compiler leaves to the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hexforge.addons.tflite.model_file import OTHER_TYPES, Operator, Tensor, TfliteModel
from hexforge.cli.screen import console, print_json, spinner, table

_NO_QNN_TYPE = {"bfloat16", "int2", "uint4"}
DELEGATED = frozenset(
    """
    ABS ADD ARG_MAX ARG_MIN AVERAGE_POOL_2D BATCH_MATMUL BATCH_TO_SPACE_ND BROADCAST_TO CAST CEIL CONCATENATION
    CONV_2D CONV_3D COS CUMSUM DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE DIV DYNAMIC_UPDATE_SLICE ELU
    EMBEDDING_LOOKUP EQUAL EXP FLOOR FLOOR_DIV FLOOR_MOD FULLY_CONNECTED GATHER GATHER_ND GELU GREATER GREATER_EQUAL
    HARD_SWISH L2_NORMALIZATION L2_POOL_2D LEAKY_RELU LESS LESS_EQUAL LOG LOGICAL_AND LOGICAL_NOT LOGICAL_OR
    LOGISTIC LOG_SOFTMAX MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL NEG NOT_EQUAL ONE_HOT PACK PAD PADV2 POW
    PRELU QUANTIZE REDUCE_ALL REDUCE_ANY REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_0_TO_1 RELU_N1_TO_1 RESHAPE
    RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR REVERSE_V2 ROUND RSQRT SCATTER_ND SELECT SELECT_V2 SIGN SIN SLICE
    SOFTMAX SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQRT SQUARE SQUARED_DIFFERENCE STRIDED_SLICE SUB SUM TANH
    TILE TOPK_V2 TRANSPOSE TRANSPOSE_CONV UNPACK
    """.split()
)
"""Builtin operators that LiteRT's compiler for Qualcomm's NPU takes, by its open sources.

litert/vendors/qualcomm/compiler of google-ai-edge/LiteRT at f6745779, of 21 August 2026. What it does not take runs in
LiteRT's own kernels on the CPU, which cuts the graph in two; what it takes, QNN itself may still refuse.
"""
COMPOSITES = ("odml.rms_norm", "odml.group_norm", "odml.l2_norm")
"""Compositions that it takes; others run as the operators that they are made of."""


def refused_by_litert(operator: Operator, tensors: Sequence[Tensor]) -> str:
    """Why LiteRT's compiler leaves an operator to the CPU, before QNN is asked; empty where it does not."""
    if operator.is_custom:
        return "a custom operator, which it takes by a QNN op package of that name alone"
    if operator.name == "STABLEHLO_COMPOSITE":
        name = (operator.options.text(0) if operator.options is not None else None) or "without a name"
        return "" if name in COMPOSITES else f"the composition {name}; it takes {', '.join(COMPOSITES)}"
    if operator.name not in DELEGATED:
        return "its compiler has no QNN op for it"
    for index in (*operator.inputs, *operator.outputs):
        if index >= 0 and (tensors[index].type_name in _NO_QNN_TYPE or tensors[index].type in OTHER_TYPES):
            return f"tensor {tensors[index].name!r} is of type {tensors[index].type_name}, which it has no QNN type for"
    if operator.name == "FLOOR_MOD" and tensors[operator.outputs[0]].type_name != "int32":
        return "it takes FLOOR_MOD of int32 alone"
    return ""


def print_models(file: Path, soc: str, as_json: bool) -> None:
    """Print what the models of a file are: tensors, operators, signatures, and what the file says of them."""
    from hexforge.addons.tflite.bundle import models_of_file
    from hexforge.addons.tflite.model_file import parse

    with spinner(f"reading {file.name}"):
        facts = [_facts(name, parse(data, name)) for name, data in models_of_file(file).items()]
    if as_json:
        print_json({"file": file.name, "models": facts})
        return
    screen = console()
    for model in facts:
        operators = ", ".join(f"{name} x{count}" for name, count in model["operators"].items())
        rows = [("model", model["name"]), ("says", model["description"]), ("operators", operators)]
        rows += [("not translated", ", ".join(model["not_translated"]))] if model["not_translated"] else []
        for row in model["left_to_the_cpu_by_litert"]:
            said = f"{row['operator']} x{row['count']}, the first writes {row['first']!r}: {row['reason']}"
            rows.append(("left to the CPU by LiteRT", said))
        rows += [("signatures", ", ".join(model["signatures"]))] if model["signatures"] else []
        rows += [(name, text) for name, text in model["metadata"].items()]
        screen.print(table("", ("", ""), rows))
        tensors = [(side, t["name"], t["type"], str(t["shape"]), t["encoding"]) for side in ("inputs", "outputs")
                   for t in model[side]]  # fmt: skip
        screen.print(table("", ("", "tensor", "type", "shape", "encoding"), tensors))


def left_by_litert(model: TfliteModel) -> list[dict[str, Any]]:
    """The operators that LiteRT's compiler leaves to the CPU, by name and reason, with the first of each."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for subgraph in model.subgraphs:
        for operator in subgraph.operators:
            if reason := refused_by_litert(operator, subgraph.tensors):
                first = subgraph.tensors[operator.outputs[0]].name if operator.outputs else operator.name
                row = {"operator": operator.name, "count": 0, "first": first, "reason": reason}
                rows.setdefault((operator.name, reason), row)["count"] += 1
    return list(rows.values())


def _facts(name: str, model: TfliteModel) -> dict[str, Any]:
    from hexforge.addons.tflite.bundle import texts
    from hexforge.addons.tflite.convert import is_translated

    first = model.subgraphs[0]
    counts = Counter(o.name for subgraph in model.subgraphs for o in subgraph.operators)
    refused = {o.name for s in model.subgraphs for o in s.operators if not is_translated(o)}

    def tensors(indices: tuple[int, ...]) -> list[dict[str, Any]]:
        found = [first.tensors[i] for i in indices]
        return [
            {"name": t.name, "type": t.type_name, "shape": list(t.signature or t.shape),
             "encoding": _encoding(t.quantization)} for t in found
        ]  # fmt: skip

    return {
        "name": name,
        "description": model.description,
        "subgraphs": [subgraph.name for subgraph in model.subgraphs],
        "operators": dict(counts.most_common()),
        "not_translated": sorted(refused),
        "left_to_the_cpu_by_litert": left_by_litert(model),
        "signatures": {s.key: {"inputs": dict(s.inputs), "outputs": dict(s.outputs)} for s in model.signatures},
        "metadata": texts(model),
        "inputs": tensors(first.inputs),
        "outputs": tensors(first.outputs),
    }


def _encoding(quantization: Any) -> str:
    if quantization is None:
        return ""
    if len(quantization.scales) > 1:
        return f"{len(quantization.scales)} scales along axis {quantization.axis}"
    return f"scale {quantization.scales[0]:g}, zero point {quantization.zero_points[0]}"
