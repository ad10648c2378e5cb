# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm`: what it prints, as text, as JSON and as a page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from hexforge.addons.llm import estimate_llm
from hexforge.cli import main
from tests.addons.llm.test_shape import LLAMA
from tests.models.attention import masked_attention


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit:
        main(["llm", *arguments])
    return int(exit.value.code or 0)


def test_an_estimate_says_rates_parts_contexts_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", "llama_v3_2_3b_instruct", "--soc", "8 Elite", "--prompt", "1000") == 0
    out = capsys.readouterr().out
    told = estimate_llm("llama_v3_2_3b_instruct", "SM8750")
    assert f"tokens per second   {told.tokens_per_second:.1f}" in out
    assert "prompt of 1,000" in out
    for word in ("where a token's time goes", "weights", "32,768", "native KV", "Softmax of a sum", "memory", "mJ"):
        assert word in out


def test_json_has_everything_and_the_same_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", "phi_3_5_mini_instruct", "--soc", "SM8750", "--runtime", "genie", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    same = estimate_llm("phi_3_5_mini_instruct", "SM8750", runtime="genie").to_json()
    assert {name: told[name] for name in same} == same
    assert list(told["tokens_per_second_by_context"]) == ["512", "1024", "2048", "4096", "8192", "16384", "32768"]
    assert "native KV" not in told["variants"]
    assert told["notes"] == ["the cache cannot be native: heads of 96 are no multiple of 64"]


def test_all_chips_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", "qwen3_4b", "--soc", "all", "--json") == 0
    chips = json.loads(capsys.readouterr().out)
    rates = [chip["tokens_per_second"] for chip in chips.values()]
    assert rates == sorted(rates, reverse=True)
    assert chips["SM8750"]["stands_on"] == "SM8750"
    assert run("estimate", "qwen3_4b", "--soc", "all", "--report", "page.html") == 2
    assert "one chip" in capsys.readouterr().err


def test_a_page_has_its_parts_and_no_markup_of_a_name(tmp_path: Path) -> None:
    folder = tmp_path / "<b>bold"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    page = tmp_path / "page.html"
    assert run("estimate", str(folder), "--soc", "SM8850", "--report", str(page)) == 0
    text = page.read_text()
    for word in (
        "tokens per second by context",
        "tokens per second by chip",
        "milliseconds of a token",
        "Memory by part",
    ):
        assert word in text
    assert "<b>bold" not in text
    assert "SA8797P" in text
    assert "SA8797 SA8797P" not in text


def test_a_page_says_which_graph_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("estimate", "intern3_5_vl_2b", "--runtime", "genie", "--report", str(page)) == 0
    assert "The graph of 512 positions runs whatever the context is" in page.read_text()


def test_an_attention_beside_the_config_says_why_it_did_not_match(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "decoder.onnx").write_bytes(masked_attention("B", b=-19.0))
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    assert run("estimate", str(tmp_path), "--json") == 0
    remarks = json.loads(capsys.readouterr().out)["attention_remarks"]
    assert any(r.startswith("decoder.onnx: Softmax is not fused into MaskedSoftmax") for r in remarks)
    assert any(r.startswith("broken.onnx: cannot be checked") for r in remarks)


def test_a_bundle_brings_its_context_precision_and_caches(
    bundled: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("estimate", str(bundled("w8a16")), "--soc", "SM8750", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["context"], told["precision"]) == (512, "w8a16")
    assert told["switches"]["native_kv"] is False
    assert told["attention_remarks"] == []
    assert run("estimate", str(bundled("w8a16")), "--precision", "w4a16", "--context", "1024", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["context"], told["precision"]) == (1024, "w4a16")


def test_models_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("models") == 0
    assert "qwen3_4b" in capsys.readouterr().out
    assert run("models", "--json") == 0
    assert {m["name"] for m in json.loads(capsys.readouterr().out)} >= {"gemma_3_1b", "phi_4_mini_instruct"}


def test_an_unknown_model_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", "no_such_model") == 2
    assert "is no folder with config.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--context", "0"), "context 0: give 128 to"),
        (("--prompt", "0"), "--prompt 0: give 1 to 4096"),
        (("--prompt", "5000"), "--prompt 5000: give 1 to 4096"),
        (("--filled", "9000"), "--filled 9000: give 1 to 4096"),
        (("--soc", "all", "--prompt", "9"), "--prompt is of one chip"),
        (("--precision", "w4a8"), "precision 'w4a8'"),
        (("--runtime", "geni"), "did you mean 'genie'"),
        (("--soc", "nope"), "not a known chip"),
    ],
)
def test_a_wrong_option_is_one_line_and_nothing_else(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("estimate", "qwen3_4b", *options) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.out == ""


def test_a_native_cache_that_no_chip_takes_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", "phi_3_5_mini_instruct", "--soc", "all", "--native-kv") == 2
    assert "heads of 96 are no multiple of 64" in capsys.readouterr().err


def test_contexts_end_where_the_model_does_and_masks_are_compared_where_they_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"max_position_embeddings": 2048}))
    assert run("estimate", str(tmp_path), "--soc", "SM8750", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert list(told["tokens_per_second_by_context"]) == ["512", "1024", "2048", "4096"]
    low, high = told["tokens_per_second_band_by_context"]["2048"]
    assert low < told["tokens_per_second_by_context"]["2048"] < high
    assert any("made for 2,048 positions" in note for note in told["notes"])
    masked, plain = (told["variants"][f"{name}, 256 filled"] for name in ("MaskedSoftmax", "Softmax of a sum"))
    assert masked["tokens_per_second"] > plain["tokens_per_second"]
