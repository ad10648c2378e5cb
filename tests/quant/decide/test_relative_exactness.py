# SPDX-License-Identifier: Apache-2.0
"""Logarithms and roots of squares: quantized to 8 bits, the digits of small numbers survive without anybody asking."""

from __future__ import annotations

import numpy as np
import onnx_ir
import pytest

import hexforge
from hexforge.analysis.quality.runners import runner
from hexforge.ir import DType
from hexforge.model.save import to_bytes
from hexforge.quant.data.calibrate import calibrate
from hexforge.quant.data.feeds import Feeds
from hexforge.quant.decide.assign import assign
from hexforge.quant.decide.encoding_plan import ChipArithmetic, EncodingPlan
from hexforge.quant.decide.recipe_reading import recipe
from hexforge.runtime import registry
from tests.quant.networks import Network, run

LENGTH, FRAME, HOP = 512, 32, 16
BANDS = 8


def spectrum(kind: str) -> tuple[Network, onnx_ir.Model]:
    """Sound to the power of its frequencies, then the power's logarithm or its root, and a layer behind it."""
    net = Network((1, LENGTH))
    line = net.node("Reshape", "x", net.constant(np.array([1, 1, 1, LENGTH])))
    waves = np.exp(2j * np.pi * np.outer(np.arange(1, BANDS + 1), np.arange(FRAME)) / FRAME)
    squares = []
    for part in (waves.real, waves.imag):
        weight = net.constant(part.astype(np.float32)[:, None, None])
        wave = net.node("Conv", line, weight, strides=[1, HOP])
        squares.append(net.node("Mul", wave, wave))
    power = net.node("Add", *squares)
    if kind == "mel":  # a product between the squares and the logarithm
        power = net.node("Transpose", power, perm=[0, 2, 3, 1])
        power = net.node("MatMul", power, net.constant(np.abs(net.normal(BANDS, BANDS))))
    if kind == "root":
        heard = net.node("Sqrt", power)
    else:
        heard = net.node("Log", net.node("Max", power, net.constant(np.float32(1e-4))))
    if kind == "mel":
        heard = net.node("Transpose", heard, perm=[0, 3, 1, 2])
    return net, net.model(net.node("Relu", net.conv(heard, BANDS, 4, size=1)), heard)


def sounds(count: int, seed: int) -> list[Feeds]:
    """Tones between loud and hardly heard."""
    random = np.random.default_rng(seed)
    time = np.arange(LENGTH)
    loud = np.exp(np.linspace(0, -7, LENGTH))
    made: list[Feeds] = []
    for _ in range(count):
        tones = sum(np.sin(time * random.uniform(0.1, 1.5) + random.uniform(0, 6)) for _ in range(3))
        made.append({"x": (tones * loud).astype(np.float32)[None]})
    return made


@pytest.mark.parametrize("soc", ["", "QCS6490"])
@pytest.mark.parametrize("kind", ["log", "mel", "root"])
def test_quiet_sounds_survive_eight_bits(kind: str, soc: str) -> None:
    _, model = spectrum(kind)
    built = hexforge.quantize(to_bytes(model), sounds(6, seed=0), soc=soc or None)
    assert built.model is not None
    assert built.placed_whole
    on_chip = runner(built.model, registry.backend("htp", {"soc_model": soc} if soc else {}))
    name = str(model.graph.outputs[1].name)
    exact, coarse = (
        np.concatenate([outputs.ravel() for outputs in some])
        for some in zip(*((run(model, feeds)[1], on_chip(feeds)[name]) for feeds in sounds(6, seed=0)), strict=True)
    )
    quiet = exact < np.median(exact)
    # a chip without float has 16 bits for a logarithm, which the quietest numbers do not survive
    assert np.corrcoef(exact[quiet], coarse[quiet])[0, 1] > (0.85 if soc and kind != "root" else 0.95)


def planned(model: onnx_ir.Model, words: str, *, floats: bool = True) -> EncodingPlan:
    return assign(model, calibrate(model, sounds(2, 0)), recipe(words), arithmetic=ChipArithmetic(floats=floats))


def names(model: onnx_ir.Model, *ops: str) -> list[str]:
    return [str(node.name) for node in model.graph if node.op_type in ops]


@pytest.mark.parametrize("bits", ["w8a8", "w8a16"])
def test_all_from_the_input_to_the_logarithm_is_float_and_what_is_behind_is_not(bits: str) -> None:
    _, model = spectrum("mel")
    plan = planned(model, bits)
    *front, last = names(model, "Conv")
    assert set(plan.floats) >= {*front, *names(model, "Reshape", "Mul", "Add", "MatMul", "Max", "Log")}
    assert last not in plan.floats
    assert "logarithm" in plan.floats[front[0]]


def test_a_root_of_squares_has_16_bits() -> None:
    _, model = spectrum("root")
    plan = planned(model, "w8a8")
    assert not plan.floats
    wide = {name for name, fixed in plan.tensors.items() if fixed.dtype is DType.UINT16}
    assert wide >= {"x", *(str(n.outputs[0].name) for n in model.graph if n.op_type in ("Mul", "Add", "Sqrt"))}
    behind = next(n for n in model.graph if n.op_type == "Relu")
    assert plan.tensors[str(behind.outputs[0].name)].dtype is DType.UINT8


def test_without_float_math_a_logarithm_has_16_bits() -> None:
    _, model = spectrum("log")
    plan = planned(model, "w8a8", floats=False)
    assert not plan.floats
    (log,) = (n for n in model.graph if n.op_type == "Log")
    assert plan.tensors[str(log.outputs[0].name)].dtype is DType.UINT16


def test_what_the_recipe_says_of_the_logarithm_stands() -> None:
    _, model = spectrum("log")
    plan = planned(model, "w8a8; op:Log=w8a16")
    (log,) = (n for n in model.graph if n.op_type == "Log")
    assert str(log.name) not in plan.floats
    assert plan.tensors[str(log.outputs[0].name)].dtype is DType.UINT16


def test_a_root_of_something_else_has_eight_bits() -> None:
    net = Network((1, 3, 8, 8))
    model = net.model(net.node("Sqrt", net.node("Relu", net.conv("x", 3, 4))))
    plan = assign(model, calibrate(model, net.samples(2)), recipe("w8a8"))
    assert {fixed.dtype for fixed in plan.tensors.values()} <= {DType.UINT8, DType.INT8}


def test_a_variance_of_squares_survives_eight_bits() -> None:
    """As flax writes a normalization: the mean of squares less the square of the mean, of numbers with a few large."""
    rows, columns = 32, 64
    net = Network((1, rows, columns))

    def mean(x: str) -> str:
        summed = net.node("ReduceSum", x, net.constant(np.array([2])), keepdims=1)
        return net.node("Mul", summed, net.constant(np.float32(1 / columns)))

    squared = net.node("Mul", "x", "x")
    average = mean("x")
    variance = net.node("Sub", mean(squared), net.node("Mul", average, average))
    variance = net.node("Max", variance, net.constant(np.float32(0)))
    root = net.node("Sqrt", net.node("Add", variance, net.constant(np.float32(1e-6))))
    normal = net.node("Mul", net.node("Sub", "x", average), net.node("Reciprocal", root))
    model = net.model(net.node("Relu", normal))
    sizes = np.exp(np.random.default_rng(3).normal(0, 0.7, (1, rows, 1))).astype(np.float32)
    samples: list[Feeds] = [{"x": feeds["x"] * sizes + sizes} for feeds in net.samples(6)]
    built = hexforge.quantize(to_bytes(model), samples)
    assert built.model is not None
    on_chip = runner(built.model, registry.backend("htp", {}))
    noise = signal = 0.0
    for feeds in samples:
        exact, (coarse,) = run(model, feeds)[0], on_chip(feeds).values()
        noise, signal = noise + float(np.square(exact - coarse).sum()), signal + float(np.square(exact).sum())
    assert 10 * np.log10(signal / noise) > 12
