# SPDX-License-Identifier: Apache-2.0
"""`python -m benchmarks.tflite.measured [MODEL ...] [--data FOLDER]`: .tflite files beside measured rows of tflite.

The graphs that latencies were measured on become .tflite files by a converter of the registry, onnx2tf (its own
writer of files, without TensorFlow), under random weights. Each row says what was measured through tflite, and what
is estimated of the graph and of the file at runtime=tflite. The converter divides by multiplying, which costs less on
the NPU than the division that the measured files have, so its products by the reciprocals of the graph's divisors are
made divisions again. Counted are files of as many operators as the measured one has layers, 20 % more or less: of
others, which have norms written out, say, the converter made another graph. Needs onnx2tf and what it imports (`make
litert-measured`).
"""

from __future__ import annotations

import argparse
import copy
import csv
import importlib.util
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import ModuleType
from typing import Any

import flatbuffers
import numpy as np
import onnx
from onnx import numpy_helper

import hexforge
from benchmarks import ROOT
from hexforge.addons.latency.measurements import DATA, Measurement, read_measurements
from hexforge.addons.tflite.model_file import parse
from hexforge.errors import HexforgeError

FOLDER = ROOT / "build" / "tflite-measured"
DEVICE = "Samsung Galaxy S24"
PRECISIONS = ("float", "w8a8")
ALIKE = 0.2
"""How far the number of a file's operators may be from that of measured layers."""
_SECONDS = 300


def with_weights(topology: Path, target: Path) -> list[np.ndarray]:
    """Write a graph with random weights in the place of what is filled; the constants that it divides by."""
    model, random = onnx.load(topology), np.random.default_rng(0)
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    nodes = []
    for node in model.graph.node:
        value = next((numpy_helper.to_array(a.t) for a in node.attribute if a.name == "value"), np.zeros(1, np.float32))
        if node.op_type == "Constant":
            constants[node.output[0]] = value
        if node.op_type != "ConstantOfShape" or node.input[0] not in constants:
            nodes.append(node)
            continue
        shape = constants[node.input[0]]
        made = np.full(shape, value.flat[0], value.dtype)
        if value.dtype == np.float32:
            spread = random.standard_normal(shape)
            fan = max(int(np.prod(shape[1:])), 1)
            made = (spread / np.sqrt(fan) if len(shape) > 1 else np.abs(spread) * 0.1 + 0.5).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(made, node.output[0]))
    divisors = [constants[n.input[1]] for n in nodes if n.op_type == "Div" and n.input[1] in constants]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, target)
    return divisors


def converted(name: str) -> Path | None:
    """The .tflite of a measured graph, None where the converter makes none."""
    target = FOLDER / f"{name}.tflite"
    if target.exists():
        return target
    work = FOLDER / "work" / name
    work.mkdir(parents=True, exist_ok=True)
    divisors = with_weights(DATA / "topologies" / f"{name}.onnx", work / f"{name}.onnx")
    command = [sys.executable, "-m", "onnx2tf", "-i", str(work / f"{name}.onnx"), "-o", str(work), "-n"]
    try:
        subprocess.run(command, check=False, capture_output=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        return None
    made = work / f"{name}_float32.tflite"
    if not made.exists():
        return None
    target.write_bytes(_with_divisions(made.read_bytes(), divisors, _schema(work / "schema_generated.py")))
    return target


def _schema(path: Path) -> Any:
    """The classes of a .tflite's tables, which the converter leaves beside its files."""
    spec = importlib.util.spec_from_file_location("schema_generated", path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _with_divisions(data: bytes, divisors: list[np.ndarray], schema: Any) -> bytes:
    """A file in which products by the reciprocals of divisors are divisions."""
    model = schema.ModelT.InitFromPackedBuf(data, 0)
    graph, codes = model.subgraphs[0], [max(c.deprecatedBuiltinCode, c.builtinCode) for c in model.operatorCodes]
    changed = False
    for operator in graph.operators:
        if codes[operator.opcodeIndex] != schema.BuiltinOperator.MUL:
            continue
        for place, other in ((1, 0), (0, 1)):
            tensor = graph.tensors[operator.inputs[place]]
            content = model.buffers[tensor.buffer].data
            if content is None or not len(content) or tensor.type != 0:
                continue
            factors = np.frombuffer(bytes(content), np.float32)
            alike = (d for d in divisors if d.size == factors.size and np.allclose(1 / d.reshape(-1), factors, 1e-5))
            if (divisor := next(alike, None)) is None:
                continue
            if schema.BuiltinOperator.DIV not in codes:
                code = schema.OperatorCodeT()
                code.deprecatedBuiltinCode = code.builtinCode = schema.BuiltinOperator.DIV
                model.operatorCodes.append(code)
                codes.append(schema.BuiltinOperator.DIV)
            buffer, own = schema.BufferT(), copy.copy(tensor)
            buffer.data = np.frombuffer(divisor.astype(np.float32).tobytes(), np.uint8)
            model.buffers.append(buffer)
            own.buffer = len(model.buffers) - 1
            graph.tensors.append(own)
            operator.opcodeIndex = codes.index(schema.BuiltinOperator.DIV)
            operator.inputs = [operator.inputs[other], len(graph.tensors) - 1]
            operator.builtinOptions, operator.builtinOptionsType = (
                schema.DivOptionsT(),
                schema.BuiltinOptions.DivOptions,
            )
            changed = True
            break
    if not changed:
        return data
    builder = flatbuffers.Builder(len(data))
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def layers(data: Path) -> dict[tuple[str, str], int]:
    """How many layers the measured file of a model at a precision has."""
    with (data / "measured.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {(r["model"], r["precision"]): int(r["layers_total"] or 0) for r in rows if r["runtime"] == "tflite"}


def main() -> None:
    """Print a row for each model and precision, and the errors of both roads over the files that are alike."""
    arguments = argparse.ArgumentParser(description=main.__doc__)
    arguments.add_argument("models", nargs="*")
    arguments.add_argument("--data", type=Path, default=DATA, help="folder with measured.csv")
    given = arguments.parse_args()
    wanted: dict[str, list[Measurement]] = defaultdict(list)
    for row in read_measurements(given.data):
        if row.runtime == "tflite" and row.device == DEVICE and row.precision in PRECISIONS:
            wanted[row.model].append(row)
    counts, errors, ratios, refused = layers(given.data), defaultdict[tuple[str, str], list[float]](list), [], 0
    for model, rows in sorted(wanted.items()):
        topology = DATA / "topologies" / f"{model}.onnx"
        if (given.models and model not in given.models) or not topology.exists():
            continue
        file = converted(model)
        if file is None:
            print(f"{model:45} the converter makes no file of it", flush=True)
            continue
        deployments = [hexforge.Deployment(row.chip, row.precision, row.runtime) for row in rows]
        try:
            estimates = [hexforge.estimates(each, deployments) for each in (topology, file)]
        except HexforgeError as error:
            print(f"{model:45} {str(error).splitlines()[-1].strip()[:90]}", flush=True)
            refused += 1
            continue
        for row, of_onnx, of_file in zip(rows, *estimates, strict=True):
            if isinstance(of_onnx, HexforgeError) or isinstance(of_file, HexforgeError):
                print(f"{model:45} {row.precision:6} {str(of_file).splitlines()[-1].strip()[:90]}", flush=True)
                refused += 1
                continue
            measured = row.latency_us / 1e3
            count, wished = operators_of(file), counts[model, "float"]
            alike = not of_file.left_on_cpu and abs(count / wished - 1) <= ALIKE
            print(f"{model:45} {row.precision:6} {measured:9.3f} {of_onnx.latency_ms:9.3f} {of_file.latency_ms:9.3f} "
                  f"{count:5} {wished:5} {'' if alike else 'another graph'}", flush=True)  # fmt: skip
            if alike:
                for road, estimate in (("onnx", of_onnx), ("tflite", of_file)):
                    errors[row.precision, road].append(abs(estimate.latency_ms / measured - 1))
                ratios.append(of_file.latency_ms / of_onnx.latency_ms)
    for (precision, road), each in sorted(errors.items()):
        within = sum(error < 0.1 for error in each) / len(each)
        print(f"{precision:6} {road:6} {len(each):3} rows: median error {statistics.median(each):.1%}, mean "
              f"{statistics.mean(each):.1%}, within 10 %: {within:.0%}")  # fmt: skip
    near = sum(abs(ratio - 1) <= 0.02 for ratio in ratios)
    middle = statistics.median(ratios)
    print(f"file over graph: median {middle:.3f}, {near} of {len(ratios)} within 2 %; refused {refused}")


def operators_of(file: Path) -> int:
    """How many operators a file has."""
    return len(parse(file.read_bytes(), file.name).subgraphs[0].operators)


if __name__ == "__main__":
    main()
