# SPDX-License-Identifier: Apache-2.0
"""Every command line and JSON sample of the vendor's HTP page, with its line there: it runs, or is read.

Placeholders are filled, `...` is removed with the comma before it, and a comma that the page forgot is set.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from hexforge.addons.tools import TOOLS, tool_command
from hexforge.addons.tools.context_binary_generator import read_data_formats
from hexforge.formats.backend_extensions import load, load_htp
from hexforge.formats.json_text import parse_json
from tests import ROOT
from tests.runtime.contexts.test_native_kv import INPUTS as CACHES
from tests.runtime.contexts.test_native_kv import decoder

DIGITS = ROOT / "tests" / "digits"

COMMANDS = {
    1196: "qnn-net-run --model <qnn_model_name.so> --backend <path_to_model_library>/libQnnHtp.so "
    "--output_dir <output_dir_for_result> --input_list <path_to_input_list.txt> "
    "--config_file <path to JSON of backend extensions>",
    1800: "./qnn-net-run --retrieve_context sample_model.bin --backend libQnnHtp.so --input_list target_raw_list.txt "
    "--config_file backend_extension_config.json --output_dir output --profiling_level backend",
    1804: "$QNN_SDK_ROOT/bin/x86_64-linux-clang/qnn-profile-viewer --reader "
    "$QNN_SDK_ROOT/lib/x86_64-linux-clang/libQnnHtpProfilingReader.so --input_log ./output/qnn-profiling-data_0.log",
    1805: "$QNN_SDK_ROOT/bin/x86_64-linux-clang/qnn-profile-viewer --reader "
    "$QNN_SDK_ROOT/lib/x86_64-linux-clang/libQnnChrometraceProfilingReader.so --input_log "
    "./output/qnn-profiling-data_0.log --output ./chromeTrace.json",
    2423: "qnn-context-binary-generator --profiling_level detailed --profiling_option optrace --backend "
    "[SDK_PATH]/lib/x86_64-linux-clang/libQnnHtp.so --model [MODEL].so --config_file HtpConfigFile.json --output_dir "
    "[OUTPUT_DIR] --binary_file [CONTEXT_BIN]",
    2443: "qnn-net-run --profiling_level detailed --profiling_option optrace --output_data_type float_and_native "
    "--retrieve_context [CONTEXT_BIN] --backend libQnnHtp.so --input_list ./inputs/input_list.txt --output_dir . "
    "--log_level info",
    2463: "qnn-profile-viewer --config [PATH_TO]/config.json --reader "
    "[SDK_PATH]/lib/[TARGET]/libQnnHtpOptraceProfilingReader.so --input_log ./qnn-profiling-data.log --schematic "
    "./[MODEL]_schematic.bin --output ./chrometrace.json",
    3278: "qnn-context-binary-generator --data_format_config DataFormatFile.json --backend "
    "[SDK_PATH]/lib/x86_64-linux-clang/libQnnHtp.so --dlc_path [MODEL].dlc --model libQnnModelDlc.so --output_dir "
    "[OUTPUT_DIR] --binary_file [CONTEXT_BIN] --config_file HtpConfigFile.json",
}
PLACEHOLDERS = {
    "<qnn_model_name.so>": "sample.onnx",
    "<path_to_model_library>": "lib",
    "<output_dir_for_result>": "result",
    "<path_to_input_list.txt>": "target_raw_list.txt",
    "<path to JSON of backend extensions>": "backend_extension_config.json",
    "$QNN_SDK_ROOT": "/sdk",
    "[SDK_PATH]": "/sdk",
    "[MODEL].so": "sample.onnx",
    "[MODEL].dlc": "decoder.onnx",
    "[MODEL]": "sample",
    "[OUTPUT_DIR]": "made",
    "[PATH_TO]": ".",
    "[TARGET]": "x86_64-linux-clang",
    "--binary_file [CONTEXT_BIN]": "--binary_file context",
    "[CONTEXT_BIN]": "made/context.bin",
}
HTP_SAMPLES = {
    1017: """{"graphs": [{"vtcm_mb": ..., "graph_names": [...],
         "dlbc": 1  // set to 1 to turn on
         ...}], "devices": [{...}]}""",
    1053: """{"graphs": [{"vtcm_mb":..., "graph_names":[...],
       "dlbc_weights": 1      // set to 0 to turn off, dlbc for weights
       ...}], "devices": [{...}]}""",
    1115: """{"graphs": [{"vtcm_mb":..., "graph_names":[...],
         "hvx_threads":3     // set a number. MAX = number of HVX HW blocks for that SoC
         ...}], "devices": [{...}]}""",
    1152: """{"graphs": [{"vtcm_mb":..., "graph_names":[...], "slc_alloc_enable":1 ...}],
   "devices": [{"soc_id": 69, //representing the soc
         ...}]}""",
    1645: """{"devices": [{"cores":[{
                "perf_profile": "burst",    // use this to set any of the above performance profile
                "rpc_polling_time": 9999,    // use this to set rpc polling, ranges 0-9999 us
                "rpc_control_latency": 100  // use to set rpc control latency
            }]}]}""",
    1794: """{"devices": [ {"profiling_level" : "linting"} ] }""",
    2706: """{"graphs": [{"vtcm_size": 8323072, "graph_names": [...], ...}], "devices": [{ ... }]}""",
}
TOOL_SAMPLES = {
    1203: """{"backend_extensions" : {
        "shared_library_path" : "path_to_shared_library",  // give path to shared extensions library (.so)
        "config_file_path" : "path_to_config_file"         // give path to backend config
    }}""",
    1786: """{"backend_extensions": {"shared_library_path" : "./libQnnHtpNetRunExtensions.so",
        "config_file_path" : "./htp_config.json"}}""",
    2803: """{"backend_extensions" :{...}, "context_configs" : {"is_persistent_binary" : boolean_value,
      "spill_fill_buffer" : int64_value, "weights_buffer" : int64_value, "memory_limit_hint"  : uint64_value,
      "enable_graphs" :  ["<graph_name_1>", "<graph_name_2>", ...]} "graph_configs" : [{...}]}""",
    2856: """{"backend_extensions" :{...}, "context_configs" : {"is_persistent_binary" : boolean_value,
      "memory_limit_hint"  : uint64_value, "enable_graphs" :  ["<graph_name_1>", "<graph_name_2>", ...],
      "graph_retention_order": ["<graph_name_1>", "<graph_name_2>", ...]} "graph_configs" : [{...}]}""",
}
FORMAT_SAMPLES = {
    3288: """{"graphs": [{"graph_name": [...], "tensors": [
            {"tensor_name": "past_key_0_in", "dataFormat": "QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT"}, ...
            {"tensor_name": "past_key_0_out", "dataFormat": "QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT"}, ...]}]}""",
    3310: """{"graphs": [{"graph_name": [...], "tensors": [
            {"tensor_name": "past_key_0_in", "dataFormat": "QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT"}, ...]}]}""",
}
VIEWER_SAMPLE = """{"features": {"enable_input_output_flow_events": true, "enable_sequencer_flow_events": true,
      "htp_json": true, "runtrace": true, "memory_info": true, "traceback": true, "qhas_schema": true,
      "qhas_json": true}}"""


MADE = (
    "result/Result_0/logits.raw output/qnn-profiling-data_0.log chromeTrace.json made/context.bin sample_schematic.bin "
    "qnn-profiling-data.log chrometrace.json chrometrace_qnn_htp_analysis_summary.html Result_0/logits_native.raw"
)


def filled(sample: str) -> str:
    """A sample with its placeholders filled: values that are left out, and lists and objects of nothing."""
    for word, value in {
        "boolean_value": "true",
        "uint64_value": "1",
        "int64_value": "0",
        "<graph_name_1>": "g1",
    }.items():
        sample = sample.replace(word, value)
    sample = sample.replace("<graph_name_2>", "g2").replace('"graph_configs" : [{...}]', '"graph_configs" : []')
    sample = re.sub(r'("vtcm_mb"\s*:)\s*\.\.\.', r"\1 4", sample)
    sample = re.sub(r"(//[^\n]*)?\s*,?\s*\.\.\.", lambda m: f" {m[1] or ''}\n", sample)
    sample = re.sub(r"\}\s*(\"graph_configs\")", r"}, \1", sample)  # the page forgot the comma
    sample = re.sub(r"\}\s*(?://[^\n]*)?\s*\{", "}, {", sample)
    return re.sub(r",\s*((?://[^\n]*\n)?\s*[}\]])", r"\1", sample)


@pytest.mark.feature("HTP config schema", guide="1211-1390")
@pytest.mark.parametrize("line", HTP_SAMPLES)
def test_samples_of_the_htps_file_are_read(line: int, tmp_path: Path) -> None:
    path = tmp_path / "htp.json"
    path.write_text(filled(HTP_SAMPLES[line]))
    assert list(load_htp(path).set_keys())


@pytest.mark.feature("Backend extensions file", guide="1190-1209")
@pytest.mark.parametrize("line", TOOL_SAMPLES)
def test_samples_of_a_tools_file_are_read(line: int, tmp_path: Path) -> None:
    for name in ("path_to_config_file", "htp_config.json"):
        (tmp_path / name).write_text('{"devices": [{"profiling_level": "linting"}]}')
    path = tmp_path / "tool.json"
    path.write_text(filled(TOOL_SAMPLES[line]))
    assert list(load(path).set_keys())


@pytest.mark.parametrize("line", FORMAT_SAMPLES)
def test_samples_of_data_formats_are_read(line: int, tmp_path: Path) -> None:
    path = tmp_path / "formats.json"
    path.write_text(filled(FORMAT_SAMPLES[line]))
    (tensors,) = read_data_formats(path).values()
    assert set(tensors) <= {"past_key_0_in", "past_key_0_out"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with everything that the commands name."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DIGITS / "digits.onnx", tmp_path / "sample.onnx")
    (tmp_path / "inputs").mkdir()
    np.load(DIGITS / "digits_heldout.npz")["pictures"][:1].astype(np.float32).tofile(tmp_path / "x.raw")
    for name in ("target_raw_list.txt", "inputs/input_list.txt"):
        (tmp_path / name).write_text("x.raw\n")
    (tmp_path / "backend_extension_config.json").write_text(TOOL_SAMPLES[1786])
    (tmp_path / "HtpConfigFile.json").write_text(TOOL_SAMPLES[1786])
    (tmp_path / "htp_config.json").write_text(HTP_SAMPLES[1794])
    (tmp_path / "config.json").write_text(VIEWER_SAMPLE)
    (tmp_path / "decoder.onnx").write_bytes(decoder())
    formats = [{"tensor_name": name, "dataFormat": "QNN_TENSOR_DATA_FORMAT_HMX_WEIGHT_LAYOUT"} for name in CACHES]
    text = json.dumps({"graphs": [{"graph_name": ["decoder"], "tensors": formats}]})
    (tmp_path / "DataFormatFile.json").write_text(text)
    call(
        "qnn-context-binary-generator --model sample.onnx --backend libQnnHtp.so --output_dir . --binary_file "
        "sample_model"
    )
    return tmp_path


def call(line: str) -> None:
    words = shlex.split(line)
    tool_command(Path(words[0]).name).main(words[1:], standalone_mode=False)


@pytest.mark.feature("qnn-net-run", guide="1194-1200, 1800, 2433-2449")
def test_the_commands_run_one_after_another(folder: Path) -> None:
    for number, line in COMMANDS.items():
        for word, value in PLACEHOLDERS.items():
            line = line.replace(word, shlex.quote(value) if " " in value and not value.startswith("-") else value)
        if Path(line.split()[0]).name in TOOLS:
            call(line)
        else:
            pytest.fail(f"line {number}: there is no tool {line.split()[0]}")
    for made in MADE.split():
        assert (folder / made).is_file(), made


def test_the_viewers_sample_is_json() -> None:
    assert len(parse_json(VIEWER_SAMPLE, "config.json")["features"]) == 8
