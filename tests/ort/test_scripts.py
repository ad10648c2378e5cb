# SPDX-License-Identifier: Apache-2.0
"""Published scripts for QNNExecutionProvider run with `python -m hexforge.ort`; only the backend's library is changed.

`scripts/` holds them as published; fragments that use names they do not define get those from a line put before them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests import ROOT
from tests.opencl import require_compiler

SCRIPTS = ROOT / "tests" / "scripts"
LIBRARIES = ("QnnCpu.dll", "libQnnCpu.so")


def save_model(path: Path) -> None:
    """A small convolutional classifier with the input the scripts expect."""
    generator = np.random.default_rng(0)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        return numpy_helper.from_array(generator.standard_normal(shape).astype(np.float32) * 0.1, name)

    nodes = [
        helper.make_node("Conv", ["input", "w1", "b1"], ["c1"], name="conv1", strides=[8, 8], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], name="pool1", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["p1"], ["g"], name="gap"),
        helper.make_node("Flatten", ["g"], ["f"], name="flatten"),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["output"], name="fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 5])],
        [weights("w1", 4, 3, 3, 3), weights("b1", 4), weights("w2", 5, 4), weights("b2", 5)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def run(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script with the stand-in, as a user would."""
    command = [sys.executable, "-m", "hexforge.ort", script, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def published(name: str, folder: Path, library: str, before: str = "", after: str = "") -> str:
    """Put a published script into a folder, with the backend's library exchanged."""
    text = (SCRIPTS / name).read_text(encoding="utf-8")
    text = text.replace("QnnHtp.dll", library).replace("QnnGpu.dll", library)
    (folder / name).write_text(f"{before}{text}{after}", encoding="utf-8")
    return name


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, quantized by the published script."""
    made = tmp_path_factory.mktemp("scripts")
    save_model(made / "model.onnx")
    published("data_reader.py", made, LIBRARIES[0])
    done = run(made, published("quantize_model.py", made, LIBRARIES[0]))
    assert done.returncode == 0, done.stderr
    return made


def test_quantize(folder: Path) -> None:
    types = {node.op_type for node in onnx.load(folder / "model.qdq.onnx").graph.node}
    assert {"QuantizeLinear", "DequantizeLinear", "Conv"} <= types


@pytest.mark.parametrize("library", LIBRARIES)
def test_run_in_strict_mode(folder: Path, library: str) -> None:
    done = run(folder, published("run_qdq_model.py", folder, library))
    assert done.returncode == 0, done.stderr
    assert "array([[" in done.stdout


def test_strict_mode_computes_what_onnxruntime_does(folder: Path) -> None:
    compare = (
        "\nreal = onnxruntime.InferenceSession('model.qdq.onnx', providers=['CPUExecutionProvider'])"
        "\nexpected = real.run(None, {'input': input0})"
        "\nassert isinstance(session, type(real)) and session.get_providers()[0] == 'QNNExecutionProvider'"
        "\nassert all(row.where == 'QNNExecutionProvider' for row in session.placements)"
        "\nnp.testing.assert_allclose(result[0], expected[0], atol=2e-3 * abs(expected[0]).max())"
    )
    done = run(folder, published("run_qdq_model.py", folder, LIBRARIES[0], after=compare))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("model", ["model.onnx", "model.qdq.onnx"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_create_session(folder: Path, library: str, model: str) -> None:
    before = f"model_path = {model!r}\n"
    after = "print(sess.get_providers(), sess.run(None, {'input': __import__('numpy').zeros((1,3,224,224), 'f4')}))"
    done = run(folder, published("create_session.py", folder, library, before, after))
    assert done.returncode == 0, done.stderr
    assert "['QNNExecutionProvider', 'CPUExecutionProvider']" in done.stdout


@pytest.mark.parametrize("library", LIBRARIES)
def test_strict_session_by_library(folder: Path, library: str) -> None:
    before = "import onnxruntime as ort\nmodel_path = 'model.onnx'\noptions = ort.SessionOptions()\n"
    done = run(folder, published("gpu_session.py", folder, library, before))
    assert done.returncode == 0, done.stderr


def test_the_gpus_script_runs_as_published(folder: Path) -> None:
    require_compiler()
    before = "import onnxruntime as ort\nmodel_path = 'model.onnx'\noptions = ort.SessionOptions()\n"
    after = "print(session.run(None, {'input': __import__('numpy').zeros((1,3,224,224), 'f4')})[0].shape)"
    done = run(folder, published("gpu_session.py", folder, "QnnGpu.dll", before, after))
    assert done.returncode == 0, done.stderr


def test_backends_to_come_say_so(folder: Path) -> None:
    name, backend = "gpu_session.py", "genie"
    before = "import onnxruntime as ort\nmodel_path = 'model.onnx'\noptions = ort.SessionOptions()\n"
    done = run(folder, published(name, folder, f"Qnn{backend.capitalize()}.dll", before))
    assert done.returncode == 1
    assert f"NotTakenError: backend '{backend}'" in done.stderr
    assert "use backend_type=htp or backend_type=cpu" in done.stderr
    assert done.stderr.startswith(f'Traceback (most recent call last):\n  File "{name}", line ')


_SESSION = (
    "onnxruntime.InferenceSession({!r}, {}providers=['QNNExecutionProvider'],"
    " provider_options=[{{'backend_path': '{}'}}])\n"
)


@pytest.mark.parametrize(("name", "binary"), [("context.py", False), ("context_external.py", True)])
def test_context_snippets(folder: Path, name: str, binary: bool) -> None:
    for left in folder.glob("model_a_ctx*"):
        left.unlink()
    after = (
        "\nimport numpy as np\nmade = "
        + _SESSION.format("model.qdq.onnx", "options, ", "QnnHtp.dll")
        + "opened = "
        + _SESSION.format("model_a_ctx.onnx", "", "QnnHtp.dll")
        + "x = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)\n"
        + "np.testing.assert_array_equal(made.run(None, {'input': x})[0], opened.run(None, {'input': x})[0])\n"
        + "assert 'EPContext' in [row.op_type for row in opened.placements]\n"
    )
    done = run(folder, published(name, folder, "QnnHtp.dll", after=after))
    assert done.returncode == 0, done.stderr
    assert (folder / "model_a_ctx_qnn.bin").exists() is binary
    again = run(folder, name)
    assert again.returncode == 1
    assert "model_a_ctx.onnx: is there already" in again.stderr


def test_a_context_beside_its_model_by_its_default_name(folder: Path) -> None:
    after = "\n" + _SESSION.format("model.qdq.onnx", "options, ", "QnnHtp.dll")
    snippet = published("context.py", folder, "QnnHtp.dll", after=after)
    text = (folder / snippet).read_text(encoding="utf-8")
    kept = [line for line in text.splitlines(keepends=True) if "context_file_path" not in line]
    (folder / snippet).write_text("".join(kept), encoding="utf-8")
    done = run(folder, snippet)
    assert done.returncode == 0, done.stderr
    assert (folder / "model.qdq_ctx.onnx").exists()


def test_a_context_of_the_cpu_backend_is_refused_as_the_provider_does(folder: Path) -> None:
    after = "\n" + _SESSION.format("model.qdq.onnx", "options, ", "QnnCpu.dll")
    done = run(folder, published("context.py", folder, LIBRARIES[0], after=after))
    assert done.returncode == 1
    assert "NotTakenError: ep.context_enable=1: Qnn context cache only works for HTP/DSP/GPU backend" in done.stderr


def test_the_compiler_snippet(folder: Path) -> None:
    """With the provider, its option and the model exchanged for ones that are there."""
    after = "\nprint(" + _SESSION.format("output_model.onnx", "", "QnnHtp.dll").rstrip() + ".get_inputs()[0].name)\n"
    name = published("model_compiler.py", folder, LIBRARIES[0], "import onnxruntime\n", after)
    text = (folder / name).read_text(encoding="utf-8").replace("SomeExecutionProvider", "QNNExecutionProvider")
    text = text.replace('"option1": "value1"', '"backend_path": "QnnHtp.dll"').replace("input_model", "model.qdq")
    (folder / name).write_text(text, encoding="utf-8")
    done = run(folder, name)
    assert (done.returncode, done.stdout.strip()) == (0, "input"), done.stderr
    assert {p.name for p in folder.glob("output_model*")} == {"output_model.onnx", "output_model_qnn.bin"}


def test_arguments_and_exit_status(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("WORD = 'beside'\n", encoding="utf-8")
    (tmp_path / "script.py").write_text(
        "import sys, other\nprint(sys.argv[1:], __name__, other.WORD)\nsys.exit(int(sys.argv[1]))\n", encoding="utf-8"
    )
    done = run(tmp_path, "script.py", "7", "x y")
    assert (done.returncode, done.stdout.strip()) == (7, "['7', 'x y'] __main__ beside")
    assert run(tmp_path, "missing.py").returncode == 2


def test_a_module(tmp_path: Path) -> None:
    text = "import onnxruntime as o, sys\nprint(o.get_available_providers()[0], sys.argv[1:])\n"
    (tmp_path / "tool.py").write_text(text, encoding="utf-8")
    done = run(tmp_path, "-m", "tool", "a")
    assert done.stdout.strip() == "QNNExecutionProvider ['a']", done.stderr


def test_a_script_error_shows_its_own_lines(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import onnxruntime\n\ndef f():\n    return 1 / 0\n\nf()\n", encoding="utf-8")
    done = run(tmp_path, "script.py")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert [line for line in lines if line.startswith("  File")] == [
        '  File "script.py", line 6, in <module>',
        '  File "script.py", line 4, in f',
    ]
    assert lines[-1] == "ZeroDivisionError: division by zero"


# -- mixed precision ------------------------------------------------------------------------------------------------

FIGURE = (
    ("Op1", "x"), ("Op2", "Op1_out"), ("Op3", "Op1_out"), ("Op4", "Op2_out"), ("Op5", "Op3_out", "Op4_out"),
    ("Op6", "Op5_out"), ("Op7", "Op2_out"), ("Op8", "Op2_out"),
)  # fmt: skip
"""The published figure: each op, and what it reads."""


def save_figure(path: Path) -> None:
    """The model of the figure; what the ops are does not matter."""
    nodes = [
        helper.make_node("Add" if len(reads) == 2 else "LeakyRelu", list(reads), [f"{name}_out"], name=name)
        for name, *reads in FIGURE
    ]
    names = ("x", "Op6_out", "Op7_out", "Op8_out")
    x, *outputs = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 3, 8, 8]) for name in names)
    graph = helper.make_graph(nodes, "figure", [x], outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.metadata_props.add(key="origin", value="a figure")
    onnx.save(model, path)


def test_mixed_precision(tmp_path: Path) -> None:
    """The published fragment gives the published overrides, and the model it makes runs whole on the NPU."""
    save_figure(tmp_path / "figure.onnx")
    published("data_reader.py", tmp_path, LIBRARIES[0])
    before = (
        "import data_reader, onnxruntime\n"
        "from onnxruntime.quantization import QuantType, quantize\n"
        "from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model\n"
        "float_model_path = 'figure.onnx'\n"
        "assert qnn_preprocess_model(float_model_path, 'pre.onnx') in (True, False)\n"
        "data_reader = data_reader.DataReader(float_model_path)\n"
    )
    after = (
        "\noverrides = qnn_config.extra_options['TensorQuantOverrides']\n"
        "QUInt8, QUInt16 = QuantType.QUInt8, QuantType.QUInt16\n"
        "assert overrides == {\n"
        "  'Op2_out': [{'quant_type': QUInt8, 'convert': {'quant_type': QUInt16, 'recv_nodes': {'Op4'}}}],\n"
        "  'Op3_out': [{'quant_type': QUInt8, 'convert': {'quant_type': QUInt16, 'recv_nodes': {'Op5'}}}],\n"
        "  'Op4_out': [{'quant_type': QUInt16}],\n"
        "  'Op5_out': [{'quant_type': QUInt16, 'convert': {'quant_type': QUInt8, 'recv_nodes': {'Op6'}}}],\n"
        "}, overrides\n"
        "quantize(float_model_path, 'figure.qdq.onnx', qnn_config)\n"
        "options = onnxruntime.SessionOptions()\n"
        "options.add_session_config_entry('session.disable_cpu_ep_fallback', '1')\n"
        "session = onnxruntime.InferenceSession('figure.qdq.onnx', options, providers=['QNNExecutionProvider'],\n"
        "                                       provider_options=[{'backend_type': 'htp'}])\n"
        "print([row.qnn_ops for row in session.placements].count(('Convert',)))\n"
    )
    done = run(tmp_path, published("mixed_precision.py", tmp_path, LIBRARIES[0], before, after))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) == 6  # two nodes for each of the three converts


def test_preprocessing_keeps_metadata(tmp_path: Path) -> None:
    """onnxruntime's own fails on a model with metadata."""
    save_model(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    model.metadata_props.add(key="names", value="{0: 'cat'}")
    model.graph.node[0].name = ""  # something to change: nodes without a name get one
    onnx.save(model, tmp_path / "model.onnx")
    script = (
        "from onnxruntime.quantization.execution_providers.qnn import qnn_preprocess_model\n"
        "import hexforge.ort.quantization.execution_providers.qnn as ours\n"
        "assert ours.qnn_preprocess_model is qnn_preprocess_model\n"
        "assert qnn_preprocess_model('model.onnx', 'pre.onnx')\n"
    )
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    done = run(tmp_path, "script.py")
    assert done.returncode == 0, done.stderr
    found = onnx.load(tmp_path / "pre.onnx")
    assert {p.key: p.value for p in found.metadata_props}["names"] == "{0: 'cat'}"
    assert all(node.name for node in found.graph.node)
