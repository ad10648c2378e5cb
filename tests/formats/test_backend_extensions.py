# SPDX-License-Identifier: Apache-2.0
"""Config files of QNN's tools: what is taken, what each key is, and what is wrong with a bad file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, FormatError, HexforgeError
from hexforge.formats.backend_extensions import load, load_htp, schema
from hexforge.formats.config_sections import GENERATOR, NET_RUN
from hexforge.formats.json_text import parse_json
from hexforge.runtime.tool_config import effects, htp_settings, power_of

EVERY_KEY: dict[str, Any] = {
    "graphs": [
        {
            "graph_names": ["a"],
            "vtcm_mb": 8,
            "hvx_threads": 3,
            "O": 3,
            "dlbc": 0,  # not beside weight_sharing_enabled
            "weights_packing": True,
            "num_cores": 1,
            "short_depth_conv_on_hmx_off": True,
            "fold_relu_activation_into_conv_off": True,
        }
    ],
    "devices": [
        {
            "device_id": 0,
            "core_id": [0],
            "core_type": 0,
            "soc_id": 57,
            "soc_model": 57,
            "dsp_arch": "v75",
            "pd_session": "unsigned",
            "profiling_level": "linting",
            "use_client_context": True,
            "cores": [
                {
                    "perf_profile": "burst",
                    "rpc_control_latency": 100,
                    "rpc_polling_time": 9999,
                    "hmx_timeout_us": 300000,
                    "adaptive_polling_time": 2000,
                }
            ],
        }
    ],
    "context": {
        "weight_sharing_enabled": True,
        "max_spill_fill_buffer_for_group": 30081024,
        "group_id": 0,
        "file_read_memory_budget_in_mb": 25,
        "io_memory_estimation": True,
        "init_acceleration": True,
        "lora_weight_sharing": True,
    },
    "groupContext": {"share_resources": True},
    "memory": {"mem_type": "shared_buffer"},
}


def written(folder: Path, data: Any, name: str = "htp.json") -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), "utf-8")
    return path


@pytest.mark.feature("HTP config schema", guide="1211-1390")
def test_all_32_keys_of_the_published_schema_are_read(tmp_path: Path) -> None:
    config = load_htp(written(tmp_path, EVERY_KEY))
    keys = list(config.set_keys())
    assert len(keys) == 32
    assert all(readers for _, _, readers in keys)
    said = {effect.key: effect.effect for effect in effects(config, require_chip("SM8650"))}
    assert said["graphs[0].vtcm_mb"] == "8 of the 8 MB of SM8650"
    assert "taken as said" not in said.values()
    assert any("use_client_context" in warning for warning in config.warnings)


def test_comments_are_taken_and_places_stay(tmp_path: Path) -> None:
    text = '{\n  // a comment with "quotes" and { braces\n  "graphs": [ /* none,\n yet */ ],\n  "devices": }'
    with pytest.raises(FormatError, match="line 5"):
        parse_json(text, "x")
    assert parse_json('{"a": "http://x//y" /* b */}', "x") == {"a": "http://x//y"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"context": {} "memory": {}}', "a comma is missing before this"),
        ('{"context": {},}', "a comma stands before a closing bracket"),
        ("{“context”: {}}", "typographic mark"),
        ('{"graphs": [...]}', "stands for what is left out"),
        ('{"graphs": [], "graphs": []}', "given twice"),
        ('{"graphs": [{"vtcm_mb": NaN}]}', "no JSON number"),
        ("[" * 100_000, "nested too deep"),
        ("[]", r"is \[\]: expected an object with backend_extensions"),
        ("", "not JSON"),
    ],
)
def test_what_is_no_json_is_said(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(HexforgeError, match=words):
        load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"graphs": [{"hvx_thread": 3}]}, r"graphs\[0\].hvx_thread: unknown key; did you mean 'hvx_threads'"),
        ({"devices": [{"cores": [{"perf_profile": "brust"}]}]}, "did you mean 'burst'"),
        ({"devices": [{"cores": [{"rpc_polling_time": 10000}]}]}, "is 10000: expected at most 9,999"),
        ({"graphs": [{"O": 4}]}, r"graphs\[0\].O is 4"),
        ({"graphs": [{"O": 1.5}]}, "multiple"),
        ({"graphs": [{"vtcm_mb": "8"}]}, "is '8': expected a whole number"),
        ({"graphs": [{"vtcm_mb": 8, "vtcm_size": 65536}]}, "leave one out"),
        ({"graphs": [{"vtcm_size": 8323073}]}, "multiple of 65,536"),
        ({"graphs": [{"graph_names": ["a"]}, {"graph_names": ["a"]}]}, "'a' is named twice"),
        ({"graphs": [{"dlbc": 1}], "context": {"weight_sharing_enabled": True}}, "exclude each other"),
        ({"graphs": [{"dlbc_weights": 1}], "context": {"weight_sharing_enabled": True}}, "exclude each other"),
        ({"context": {"max_spill_fill_buffer_for_group": 5}}, "group_id must be 0"),
        ({"devices": [{"dsp_arch": "v37"}]}, "dsp_arch is 'v37'"),
        ({"devices": [{"core_type": 1}]}, "no HPASS core"),
        ({"devices": [{"pd_session": "sined"}]}, "did you mean 'signed'"),
    ],
)
def test_a_fault_names_its_key_and_what_would_work(tmp_path: Path, data: Any, words: str) -> None:
    with pytest.raises(CallError, match=words):
        load_htp(written(tmp_path, data))


def test_every_fault_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(CallError) as caught:
        load_htp(written(tmp_path, {"graphs": [{"O": 7, "dlcb": 1}], "memory": {"mem_type": "ion"}}))
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.feature("Backend extensions file", guide="1190-1209")
def test_a_tools_file_names_the_backends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, {"graphs": [{"graph_names": ["a"], "O": 1}]})
    tool = {"backend_extensions": {"shared_library_path": "x.so", "config_file_path": "htp.json"}}
    config = load(written(tmp_path, tool, "tool.json"))
    assert config.graph("a").O == 1
    assert config.graph("b").O == 2  # a graph that is not named keeps the defaults
    tool["backend_extensions"]["config_file_path"] = "absent.json"
    with pytest.raises(CallError, match="there is no file"):
        load(written(tmp_path, tool, "tool.json"))


def test_graph_switching_excludes_shared_resources(tmp_path: Path) -> None:
    written(tmp_path, {"groupContext": {"share_resources": True}})
    switching = {"is_persistent_binary": True, "memory_limit_hint": 1}
    tool = {"backend_extensions": {"config_file_path": "htp.json"}, "context_configs": switching}
    with pytest.raises(CallError, match="not together with graph switching"):
        load(written(tmp_path, tool, "tool.json"))


def test_settings_go_to_the_tool_that_reads_them(tmp_path: Path) -> None:
    data = {"graphs": [{"O": 1, "hvx_threads": 3, "dlbc_weights": 1.0, "vtcm_mb": 4}], "devices": [{"soc_model": 57}]}
    config = load_htp(written(tmp_path, data))
    online, offline = (htp_settings(config, "g", (tool,)) for tool in (NET_RUN, GENERATOR))
    assert online["htp_graph_finalization_optimization_mode"] == "1"
    assert (online["num_hvx_threads"], online["soc_model"]) == ("3", "57")
    assert "dlbc_weights" not in online
    assert offline["dlbc_weights"] == "1"


def test_the_command_lines_profile_wins(tmp_path: Path) -> None:
    config = load_htp(written(tmp_path, {"devices": [{"cores": [{"perf_profile": "power_saver"}]}]}))
    assert power_of(config).performance_mode == "power_saver"
    assert power_of(config).polling_us == 0
    assert power_of(config, "burst").performance_mode == "burst"
    assert power_of(config, "burst").polling_us == 9999


def test_the_schema_says_who_reads_a_key() -> None:
    made = schema()
    graph = made["$defs"]["htp"]["$defs"]["GraphSection"]["properties"]
    assert graph["num_cores"]["readBy"] == [GENERATOR]
    assert graph["O"]["default"] == 2
    assert json.loads(json.dumps(made)) == made


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"context_configs": {"async_execute_queue_depth": 4}}, "async_execute_queue_depth changes nothing"),
        (
            {"graph_configs": [{"graph_name": "g", "graph_profiling_num_executions": 3}]},
            "graph_configs[0].graph_profiling_num_executions changes nothing",
        ),
    ],
)
def test_keys_of_the_tools_that_change_nothing_say_so(tmp_path: Path, section: dict[str, Any], said: str) -> None:
    path = tmp_path / "tool.json"
    path.write_text(json.dumps(section))
    (warning,) = load(path).warnings
    assert said in warning


def test_a_key_that_is_an_option_has_the_options_bounds(tmp_path: Path) -> None:
    with pytest.raises(CallError, match=r"graphs\[0\].num_cores is 17: .* 16"):
        load_htp(written(tmp_path, {"graphs": [{"num_cores": 17}]}))
    with pytest.raises(CallError, match=r"graphs\[0\].hvx_threads is 0"):
        load_htp(written(tmp_path, {"graphs": [{"hvx_threads": 0}]}))
