# SPDX-License-Identifier: Apache-2.0
"""`hexforge info`: contexts and EPContext models as tables and as JSON that other tools read; other files named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hexforge.cli import app, main
from hexforge.runtime.contexts.compile import compile
from hexforge.runtime.contexts.request import ContextRequest
from hexforge.runtime.contexts.wrap import wrap
from tests.ort.models import quantized


def said(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["info", *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def context(tmp_path: Path) -> Path:
    path = tmp_path / "two.bin"
    compile(
        [quantized(), quantized()],
        path,
        "SM8550,SM8650",
        ContextRequest(weight_sharing=True, quantized_io=True, graph_names=("a", "b")),
    )
    return path


def test_json_as_gen_qnn_ctx_onnx_model_reads_it(context: Path) -> None:
    found = said(str(context))
    assert found["info"]["numGraphs"] == 2
    assert found["info"]["contextBlobSize"] == context.stat().st_size
    graph = found["info"]["graphs"][0]["info"]
    assert graph["graphName"] == "a"
    tensor = graph["graphInputs"][0]["info"]
    assert tensor["dataType"] == "QNN_DATATYPE_UFIXED_POINT_8"
    assert tensor["dimensions"] == [1, 8]
    assert tensor["quantizeParams"]["definition"] == "QNN_DEFINITION_DEFINED"
    assert tensor["quantizeParams"]["quantizationEncoding"] == "QNN_QUANTIZATION_ENCODING_SCALE_OFFSET"
    assert tensor["quantizeParams"]["scaleOffset"]["scale"] == pytest.approx(0.1)
    assert tensor["quantizeParams"]["scaleOffset"]["offset"] == -128


@pytest.mark.feature("Spill-fill size in the binary's JSON", guide="253-259")
def test_the_hardware_info_says_which_graph_needs_how_large_a_spill_fill_buffer(context: Path) -> None:
    info = said(str(context))["info"]
    sizes = [graph["info"]["graphBlobInfo"]["spillFillBufferSize"] for graph in info["graphs"]]
    assert info["hwInfoBlob"] == [{"graphIndex": i, "spillFillBufferSize": size} for i, size in enumerate(sizes)]
    assert info["hwInfoBlobVersion"] == {"major": 0, "minor": 0, "patch": 1}


def test_json_of_our_own(context: Path) -> None:
    ours = said(str(context), "--soc", "SM8750")["hexforge"]
    assert ours["checksums"] == "verified"
    assert sum(ours["bytes_by_kind"].values()) == ours["bytes"]
    weights = ours["weights"]
    assert weights["shared_bytes"] == weights["by_graph"]["b"] > 0  # the second graph is the first
    assert [t["soc"] for t in ours["targets"]] == ["SM8550", "SM8650"]
    summary = ours["graphs"][0]["schematic"]["SM8650"]
    assert sum(summary["cycles_by_op"].values()) == summary["cycles"] > 0
    assert ours["compatibility"]["verdict"] == "sub-optimal"
    assert ours["compatibility"]["compared_with"] == "SM8650"


@pytest.mark.parametrize("embed", [False, True])
def test_models_that_hold_a_context(context: Path, embed: bool) -> None:
    model = wrap(context, embed=embed)[1]
    found = said(str(model))
    (node,) = found["hexforge"]["model"]["ep_context_nodes"]
    assert (node["graph"], node["embed_mode"], node["file"]) == ("b", int(embed), "" if embed else "two.bin")
    assert found["info"] == said(str(context))["info"]


def test_tables(context: Path) -> None:
    done = CliRunner().invoke(app, ["info", str(context), "--soc", "SM8450"])
    assert done.exit_code == 0, done.output
    for words in ("UFIXED_POINT_8", "scale 0.1, offset -128", "cycles by op type", "on SM8450: unsupported", "shared"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (quantized(), "is an ONNX model without compiled graphs"),
        (b"PK\x03\x04 a zip", "is a zip archive; `unzip FILE`"),
        (b"\x00\x00\x00\x02" + bytes(60), "Qualcomm's libraries only"),
        (b"", "is empty; get the file again"),
    ],
)
def test_other_files_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, words: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(SystemExit) as ended:
        main(["info", str(path)])
    assert ended.value.code == 2
    assert words in capsys.readouterr().err


def test_a_damaged_file_is_refused(context: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = bytearray(context.read_bytes())
    data[4100] ^= 1
    context.write_bytes(data)
    with pytest.raises(SystemExit):
        main(["info", str(context)])
    assert "is damaged: its checksum is wrong (at byte 4096)" in capsys.readouterr().err
