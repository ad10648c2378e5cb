# SPDX-License-Identifier: Apache-2.0
"""The first op of a .pte that departs: etdumps of runs in which one op's numbers were changed on purpose."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.addons.executorch import blob
from hexforge.addons.executorch.formats.etdump import LoggedTensor, RunLog, dump, read_tensors
from hexforge.addons.executorch.formats.pte import ScalarType
from hexforge.addons.executorch.running.pte_dump_comparison import compare_pte_with_dump
from hexforge.addons.executorch.running.runner import Log, execute
from hexforge.addons.executorch.running.runner_flags import RunnerFlags
from hexforge.backends.htp.backend import HtpBackend
from hexforge.errors import CallError, FormatError
from hexforge.ir import DType, Graph, Role, ScaleOffset, TensorType, Value, text
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_builder import ContextBuilder, PreparedGraph
from tests.addons.executorch.pte_files import Plan, Tensor, pte
from tests.cli.test_cli import run

SHAPE = (1, 6, 6, 8)
KINDS = ("Conv2d", "Relu", "ElementWiseAdd", "Sigmoid", "ElementWiseMultiply", "Tanh")
REAL = TensorType(DType.FLOAT32, SHAPE)


def fixed(scale: float, bits: int) -> TensorType:
    dtype = DType.UINT8 if bits == 8 else DType.UINT16
    return TensorType(dtype, SHAPE, ScaleOffset(scale * 256 / 2**bits, -(2 ** (bits - 1))))


def chain(seed: int, changed: int = -1) -> Graph:
    """Six ops that the seed chooses, between Quantize and Dequantize; one may have another scale."""
    random, made = np.random.default_rng(seed), Graph("forward")
    bits = 16 if seed % 4 == 3 else 8

    def put(op: str, name: str, reads: Sequence[Value | None], type: TensorType, **params: Any) -> Value:
        value = made.value(f"{name}@0", type, Role.APP_READ)
        made.node(op, reads, [value], name=name, **params)
        return value

    last = made.value("input_0_x@0", REAL, Role.APP_WRITE)
    last = put("Quantize", "quantize", [last], fixed(0.03, bits))
    for number in range(6):
        kind, type = str(random.choice(KINDS)), fixed(0.042 if number == changed else 0.03, bits)
        codes = random.integers(-127, 128, (3, 3, 8, 8)).astype(np.int8)
        if kind == "Conv2d":
            like = TensorType(DType.INT8, codes.shape, ScaleOffset(0.002, 0))
            weight = made.value(f"weight_{number}", like, Role.STATIC, codes)
            last = put(kind, f"op_{number}", [last, weight], type, stride=(1, 1), pad_amount=((1, 1), (1, 1)))
        else:
            last = put(kind, f"op_{number}", [last] * (2 if kind.startswith("ElementWise") else 1), type)
    put("Dequantize", "output_dequantize", [last], REAL)
    return made


def written(path: Path, graph: Graph, keep: bool = True) -> Path:
    """A .pte of the graph, with its source as `dump_intermediate_outputs` has it kept."""
    backend = HtpBackend(threads=1)
    source = text.dumps(graph)
    builder = ContextBuilder.of(backend, [PreparedGraph(graph.name, backend.compile(graph), backend.graph_settings())])
    if keep:
        builder.metadata[blob.source_key("forward")] = source
    data = blob.wrap_context(builder.writer().to_bytes())
    like = Tensor(np.float32, SHAPE)
    plan = Plan([like, like], [0], [1], [("delegate", 0, [0, 1])], delegates=[("QnnBackend", data)])
    path.write_bytes(pte(plan))
    return path


def dumped(folder: Path, graph: Graph) -> Path:
    """What a runner leaves of a run of the graph, and the input that it was given."""
    folder.mkdir()
    np.random.default_rng(1).standard_normal(SHAPE, np.float32).tofile(folder / "input_0_0.raw")
    (folder / "list.txt").write_text(f"{folder / 'input_0_0.raw'}\n")
    flags = RunnerFlags(
        written(folder / "run.pte", graph), folder / "outputs", folder / "list.txt", etdump_path=folder / "etdump.etdp",
        dump_intermediate_outputs=True, debug_output_path=folder / "debug_output.bin", threads=1,
    )  # fmt: skip
    execute(flags, Log(1, lambda level, line: None))
    return folder


@pytest.mark.parametrize("seed", range(20))
def test_the_op_that_was_changed_is_named(seed: int, tmp_path: Path) -> None:
    path, changed = written(tmp_path / "model.pte", chain(seed)), seed % 6
    result = compare_pte_with_dump(path, dumped(tmp_path / "dump", chain(seed, changed)))
    assert result.first is not None
    assert (result.first.node, result.compared, result.ops) == (f"op_{changed}", 8, 8)


def test_what_was_not_changed_does_not_depart(tmp_path: Path) -> None:
    result = compare_pte_with_dump(written(tmp_path / "model.pte", chain(3)), dumped(tmp_path / "dump", chain(3)))
    assert (result.first, result.compared) == (None, 8)


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    written(Path("model.pte"), chain(0))
    dumped(tmp_path / "same", chain(0))
    dumped(tmp_path / "other", chain(0, 2))
    assert run("compare", "model.pte", "--dump", "same") == 0
    assert "none differs" in capsys.readouterr().out
    assert run("compare", "model.pte", "--dump", "other", "--write", "alone", "--json") == 1
    assert json.loads(capsys.readouterr().out)["first"]["node"] == "op_2"
    with np.load("alone/departure.npz") as file:
        alone = Context(Path("alone/departure.bin").read_bytes(), "alone").program("forward")
        inputs = {name.removeprefix("input/"): file[name] for name in file.files if name.startswith("input/")}
        (result,) = alone.run(inputs).values()
        np.testing.assert_array_equal(result, file["hexforge"])
        assert not np.array_equal(result, file["dumped"])


def test_what_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, folder = written(tmp_path / "model.pte", chain(0)), dumped(tmp_path / "dump", chain(0))
    with pytest.raises(CallError, match="was not lowered with dump_intermediate_outputs"):
        compare_pte_with_dump(written(tmp_path / "plain.pte", chain(0), keep=False), folder)
    assert run("compare", str(model), "--dump", str(folder), "--soc", "SM8750") == 2
    assert "is compiled" in capsys.readouterr().err
    (folder / "input_0_0.raw").unlink()
    with pytest.raises(CallError, match=r"has no float32.* for 'input_0'"):
        compare_pte_with_dump(model, folder)
    whole, numbers = (folder / "etdump.etdp").read_bytes(), folder / "debug_output.bin"
    x = {"input_0": np.zeros(SHAPE, np.float32)}
    numbers.write_bytes(numbers.read_bytes()[:500])
    with pytest.raises(FormatError, match="the file has 500"):
        compare_pte_with_dump(model, folder, x)
    numbers.unlink()
    with pytest.raises(FormatError, match=r"debug_output.bin, which is not there"):
        compare_pte_with_dump(model, folder, x)
    for end in range(0, len(whole), 61):
        (folder / "etdump.etdp").write_bytes(whole[:end])
        with pytest.raises(FormatError):
            compare_pte_with_dump(model, folder, x)


def test_hostile_etdumps() -> None:
    """Every byte changed: a FormatError or tensors, and of those no number from outside the file."""
    tensors = [LoggedTensor("a", ScalarType.FLOAT, (2, 3), 0), LoggedTensor("b", ScalarType.BYTE, (4,), 64, 1, "b@0")]
    whole, numbers = dump([RunLog("run", list(tensors))]), memoryview(bytes(range(128)))
    (read,) = read_tensors(whole, "it")
    assert [(t.name, t.sizes, t.instruction) for t in read] == [("a", (2, 3), -1), ("b@0", (4,), 1)]
    np.testing.assert_array_equal(read[1].array(numbers, "it"), np.arange(64, 68, dtype=np.uint8))
    for at in range(len(whole)):
        for byte in (0, 1, 0x7F, 0xFF):
            try:
                for run_ in read_tensors(whole[:at] + bytes([byte]) + whole[at + 1 :], "it"):
                    for tensor in run_:
                        assert tensor.array(numbers, "it").nbytes <= len(numbers)
            except FormatError:
                pass


def test_a_tensor_with_its_channels_last() -> None:
    data = memoryview(np.arange(24, dtype=np.float32).tobytes())
    tensor = LoggedTensor("a", ScalarType.FLOAT, (1, 4, 2, 3), 0, strides=(24, 1, 12, 4))
    expected = np.moveaxis(np.arange(24).reshape(1, 2, 3, 4), -1, 1)
    np.testing.assert_array_equal(tensor.array(data, "it"), expected)
    with pytest.raises(FormatError, match="strides"):
        LoggedTensor("a", ScalarType.FLOAT, (2, 2), 0, strides=(1, 1)).array(data, "it")
