# SPDX-License-Identifier: Apache-2.0
"""What commands do with a .tflite or a bundle: say what is inside, and write it as ONNX."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hexforge.cli.screen import console, print_json, spinner, table


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
        rows += [("left to the CPU by LiteRT", ", ".join(model["not_delegated"]))] if model["not_delegated"] else []
        rows += [("signatures", ", ".join(model["signatures"]))] if model["signatures"] else []
        rows += [(name, text) for name, text in model["metadata"].items()]
        screen.print(table("", ("", ""), rows))
        tensors = [(side, t["name"], t["type"], str(t["shape"]), t["encoding"]) for side in ("inputs", "outputs")
                   for t in model[side]]  # fmt: skip
        screen.print(table("", ("", "tensor", "type", "shape", "encoding"), tensors))


def _facts(name: str, model: Any) -> dict[str, Any]:
    from hexforge.addons.tflite.bundle import texts
    from hexforge.addons.tflite.convert import DELEGATED, is_translated

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
        "not_delegated": sorted(set(counts) - DELEGATED),
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
