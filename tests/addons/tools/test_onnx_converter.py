# SPDX-License-Identifier: Apache-2.0
"""qnn-onnx-converter: what it writes the other tools take, with the numbers of the model, quantized or not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import hexforge
from hexforge.addons.tools import tool_command
from hexforge.errors import HexforgeError
from hexforge.model.reader import read
from hexforge.quant.compare import is_quantized
from tests.addons.tools.test_keys import convolutions

SIZE = 8


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, inputs of it and their list; the tools run in it."""
    monkeypatch.chdir(tmp_path)
    convolutions(tmp_path / "net.onnx", SIZE)
    for n in range(2):
        np.random.default_rng(n).standard_normal((1, 16, SIZE, SIZE)).astype(np.float32).tofile(f"{n}.raw")
    Path("list.txt").write_text("x:=0.raw\nx:=1.raw\n")
    return tmp_path


def tool(name: str, *arguments: str) -> None:
    tool_command(name).main(list(arguments), standalone_mode=False)


@pytest.mark.feature("Converter", guide="2401-2409")
@pytest.mark.parametrize("quantized", [False, True])
def test_what_it_writes_runs_in_the_other_tools(folder: Path, quantized: bool) -> None:
    flags = ["--input_list", "list.txt", "--use_per_channel_quantization"] if quantized else []
    tool("qnn-onnx-converter", "--input_network", "net.onnx", "--output_path", "net.dlc", "--export_format", "dlc",
         "--enable_framework_trace", *flags)  # fmt: skip
    assert is_quantized(read(Path("net.dlc")).ir) is quantized
    tool("qnn-context-binary-generator", "--dlc_path", "net.dlc", "--model", "libQnnModelDlc.so", "--backend",
         "libQnnHtp.so", "--binary_file", "ctx")  # fmt: skip
    for given, place in (
        (["--retrieve_context", "output/ctx.bin"], "from_context"),
        (["--dlc_path", "net.dlc", "--model", "libQnnModelDlc.so"], "from_dlc"),
    ):
        tool("qnn-net-run", *given, "--backend", "libQnnHtp.so", "--input_list", "list.txt", "--output_dir", place)
    session = hexforge.InferenceSession(Path("net.dlc").read_bytes(), providers=["QNNExecutionProvider"])
    x = np.fromfile("1.raw", np.float32).reshape(1, 16, SIZE, SIZE)
    wanted = session.run(None, {"x": x})[0].tobytes()
    assert Path("from_context/Result_1/r2.raw").read_bytes() == Path("from_dlc/Result_1/r2.raw").read_bytes() == wanted


@pytest.mark.feature("A16W16", guide="2668-2694")
@pytest.mark.feature("Converter", guide="2401-2409")
def test_its_flags_say_how_it_quantizes(folder: Path) -> None:
    tool("qnn-onnx-converter", "-i", "net.onnx", "-o", "wide.dlc", "-d", "x", f"1,16,{SIZE},{SIZE}", "--input_list",
         "list.txt", "--act_bitwidth", "16", "--weights_bitwidth", "16", "--restrict_quantization_steps",
         "-0x8000 0x7F7F", "--act_quantizer_calibration", "percentile",
         "--percentile_calibration_value", "99.9")  # fmt: skip
    arrays = [v.const_value.numpy() for v in read(Path("wide.dlc"), fold=False).ir.graph.initializers.values()
              if v.const_value is not None]  # fmt: skip
    weights = [a for a in arrays if a.dtype == np.int16 and a.ndim == 4]
    assert len(weights) == 3
    assert max(int(w.max()) for w in weights) <= 0x7F7F
    assert any(a.dtype == np.uint16 for a in arrays)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--input_network is missing"),
        (["-i", "absent.onnx"], "there is no such file"),
        (["-i", "net.onnx", "--export_format", "cpp"], "compiled with the vendor's SDK"),
        (["-i", "net.onnx", "-d", "x", "1,a"], "expected a name and sizes"),
        (["-i", "net.onnx", "--act_bitwidth", "16"], "give --input_list"),
        (["-i", "net.onnx", "--input_list", "list.txt", "--bias_bitwidth", "8"], "32 bits"),
        (["-i", "net.onnx", "--input_list", "list.txt", "--act_quantizer_calibration", "minmax"], "did you mean"),
        (["-i", "net.onnx", "--input_list", "list.txt", "--weights_bitwidth", "5"], "4, 8 or 16 bits"),
        (["-i", "net.onnx", "--input_list", "list.txt", "--restrict_quantization_steps", "1"], "hexadecimal"),
    ],
)
def test_refusals(folder: Path, arguments: list[str], said: str) -> None:
    with pytest.raises(HexforgeError, match=said):
        tool("qnn-onnx-converter", *arguments)
    assert not list(folder.glob("*.dlc"))
