# SPDX-License-Identifier: Apache-2.0
"""The time of language models: the fit finds what rows were made with, the file is what it writes, estimates hold."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from hexforge.addons.latency.cost_file import differences
from hexforge.addons.llm import LlmShape, estimate_llm, named_shapes
from hexforge.addons.llm.time.__main__ import costs_of_fit, figures, file_contents, half_widths
from hexforge.addons.llm.time.costs import SHIPPED, costs_of, read_costs
from hexforge.addons.llm.time.estimate import LlmSwitches, native_refusals
from hexforge.addons.llm.time.fitting import fit_rows
from hexforge.addons.llm.time.measurements import MEASURED, RUNTIMES, LlmMeasurement, read_llm_measurements
from hexforge.addons.llm.time.terms import NAMES
from hexforge.errors import CallError, FormatError

GOALS = {"median": 0.10, "p90": 0.30}


@pytest.fixture(scope="module")
def rows() -> list[LlmMeasurement]:
    found, unknown = read_llm_measurements()
    assert unknown == []
    return found


def test_the_rows_that_say_nothing_are_dropped(rows: list[LlmMeasurement]) -> None:
    assert len([r for r in rows if r.judged]) == 158
    assert all(r.token_ms > 0 and r.chunk_ms > 0 for r in rows)
    pictures = next(r for r in rows if r.model == "intern3_5_vl_2b" and r.runtime == "genie")
    assert (pictures.context, pictures.graph_context) == (4096, 512)
    text = next(r for r in rows if r.model == "llama_v3_8b_instruct" and r.runtime == "genie")
    assert (text.graph_context, text.filled) == (4096, 112)


def test_the_file_is_what_the_fit_writes_and_holds_what_is_promised(rows: list[LlmMeasurement]) -> None:
    kept = json.loads(SHIPPED.read_text())
    fitted = file_contents(rows, hashlib.sha256(MEASURED.read_bytes()).hexdigest())
    widths = [contents["band"].pop("unmeasured_chip") for contents in (fitted, kept)]
    assert widths[0] == pytest.approx(widths[1], rel=0.2)  # it goes with clocks of chips, which another fit gives
    assert differences(fitted, kept) == []
    for runtime in RUNTIMES:
        for what in ("tokens_per_second", "first_token"):
            error = fitted["error"][runtime][what]
            assert all(error[name] <= goal for name, goal in GOALS.items()), (runtime, what, error)
            assert error["rank"] >= 0.95


def test_times_that_were_made_with_costs_are_found_again(rows: list[LlmMeasurement]) -> None:
    """A tenth of the rows is far off, and does not matter."""
    judged = [r for r in rows if r.judged]
    truth = fit_rows(judged)
    chunk, token = truth.predict(judged)
    far = np.where(np.arange(len(judged)) % 10 == 0, 3.0, 1.0)
    made = [
        dataclasses.replace(r, chunk_ms=float(c * f), token_ms=float(t * f))
        for r, c, t, f in zip(judged, chunk, token, far, strict=True)
    ]
    again, same = fit_rows(made).predict(judged)
    assert np.median(np.abs(again / chunk - 1)) < 0.02
    assert np.median(np.abs(same / token - 1)) < 0.02


def test_an_estimate_is_what_the_fit_predicts(rows: list[LlmMeasurement]) -> None:
    fit = fit_rows(rows)
    costs = costs_of(
        costs_of_fit(fit) | {"band": {"half_width": read_costs().bands, "unmeasured_chip": read_costs().unmeasured}}
    )
    some = [r for r in rows if r.judged][::17]
    chunk, token = fit.predict(some)
    for row, first, later in zip(some, chunk, token, strict=True):
        told = estimate_llm(
            row.shape,
            row.chip,
            context=row.context,
            runtime=row.runtime,
            graph_contexts=row.graph_contexts,
            costs=costs,
        )
        assert told.first_token_ms() == pytest.approx(first, rel=1e-3)
        assert told.token_ms == pytest.approx(later, rel=1e-3)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_more_work_takes_longer(runtime: str) -> None:
    def rate(name: str = "llama_v3_2_3b_instruct", soc: str = "SM8750", **more: object) -> float:
        return estimate_llm(name, soc, runtime=runtime, **more).tokens_per_second  # type: ignore[arg-type]

    assert rate("llama_v3_2_1b_instruct") > rate() > rate("llama_v3_1_8b_instruct")
    assert rate(context=1024) > rate(context=4096) > rate(context=16384)
    assert rate(precision="w4a16") > rate(precision="w8a16") > rate(precision="float")
    assert rate(soc="SC8480XP") > rate() > rate(soc="QCS9075")
    assert rate(filled=64) > rate(filled=4000)
    assert rate(switches=LlmSwitches(native_kv=True)) > rate()
    assert rate(filled=64) > rate(filled=64, switches=LlmSwitches(masked_softmax=False))
    assert rate(filled=4096) == rate(filled=4096, switches=LlmSwitches(masked_softmax=False))
    assert rate(switches=LlmSwitches(speculative=True)) == pytest.approx(
        rate() * read_costs().values["speculative"], rel=1e-6
    )


def test_a_prompt_takes_whole_chunks_and_bands_hold_the_middle() -> None:
    told = estimate_llm("qwen3_4b", "SM8850")
    assert told.first_token_ms(1) == told.first_token_ms(128) == told.chunk_ms
    assert told.first_token_ms(129) == 2 * told.chunk_ms
    assert told.first_token_ms(4096) == 32 * told.chunk_ms
    low, high = told.tokens_per_second_band
    assert low < told.tokens_per_second < high
    assert sum(told.token) == pytest.approx(told.token_ms)
    with pytest.raises(CallError, match="give 1 to 4096"):
        told.first_token_ms(5000)


def test_memory_is_counted_by_part() -> None:
    told = estimate_llm("llama_v3_1_8b_instruct", "SC8480XP")
    layers = 32 * (2 * 4096 * 128 * 40 + 3 * 4096 * 14336)
    assert told.memory_bytes["layers"] == layers // 2
    assert told.memory_bytes["head"] == 4096 * 128256
    assert told.memory_bytes["cache"] == 2 * 32 * 8 * 128 * 4096
    assert told.contexts_on_disk == 2
    assert told.adapter_bytes(32) == 2 * told.adapter_bytes(16)


def test_a_chip_without_rows_stands_on_another_and_says_so() -> None:
    measured, other = estimate_llm("qwen3_4b", "QCS8275"), estimate_llm("qwen3_4b", "SM8650")
    assert (measured.stands_on, other.stands_on) == ("QCS8275", "QCS8275")
    assert other.tokens_per_second > measured.tokens_per_second
    assert other.token_width > measured.token_width
    assert any("no language model was measured on SM8650" in note for note in other.notes)


def test_why_a_cache_cannot_be_native() -> None:
    from hexforge.chips.soc import require_chip

    phi, llama = named_shapes()["phi_3_5_mini_instruct"], named_shapes()["llama_v3_2_1b_instruct"]
    assert native_refusals(llama, require_chip("SM8650"), 4096) == []
    assert native_refusals(phi, require_chip("SM8650"), 4096) == ["heads of 96 are no multiple of 64"]
    assert "v68" in native_refusals(llama, require_chip("SA8295P"), 4096)[0]
    assert "no multiple of 256" in native_refusals(llama, require_chip("SM8650"), 4000)[0]
    assert "2 MB of VTCM" in native_refusals(llama, require_chip("SSG2115P"), 16384)[0]
    with pytest.raises(CallError, match="cannot be native"):
        estimate_llm(phi, "SM8650", switches=LlmSwitches(native_kv=True))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"runtime": "geni"}, "did you mean 'genie'"),
        ({"precision": "w4a8"}, "is none of w4a16"),
        ({"context": 64}, "give 128 to"),
        ({"filled": 5000}, "give 1 to 4096"),
    ],
)
def test_a_wrong_call_is_refused(more: dict[str, object], message: str) -> None:
    with pytest.raises(CallError, match=message):
        estimate_llm("qwen3_4b", "SM8650", **more)  # type: ignore[arg-type]


def test_bad_rows_are_refused(tmp_path: Path) -> None:
    lines = MEASURED.read_text().splitlines()
    bad = tmp_path / "rows.csv"
    bad.write_text("model,precision\nx,w4a16\n")
    with pytest.raises(FormatError, match="has no column"):
        read_llm_measurements(bad)
    bad.write_text("\n".join([lines[0], lines[1].replace("9.63418960571289", "fast")]))
    with pytest.raises(FormatError, match="no number"):
        read_llm_measurements(bad)
    bad.write_text("\n".join([lines[0], lines[1].replace("falcon_v3_7b_instruct", "nobody_knows")]))
    assert read_llm_measurements(bad) == ([], ["nobody_knows"])
    with pytest.raises(CallError, match="is not there"):
        read_llm_measurements(tmp_path / "none.csv")


def test_figures_are_of_relative_errors() -> None:
    found = figures(np.array([11.0, 18.0, 30.0]), np.array([10.0, 20.0, 30.0]))
    assert found == {"rows": 3, "median": 0.1, "mean": 0.0667, "p90": 0.1, "rank": 1.0}
    assert set(read_costs().values) == set(NAMES)


def test_keys_and_values_of_16_bits_cost_by_context_and_heads() -> None:
    """Qwen2.5-VL's recipe; the chunk is the same, and float activations have no such operand."""
    wide = named_shapes()["qwen2_5_vl_7b_instruct"]
    plain = dataclasses.replace(wide, wide_attention=False)

    def more(context: int, **how: str) -> float:
        told = [estimate_llm(shape, "SM8750", context=context, **how) for shape in (wide, plain)]  # type: ignore[arg-type]
        assert told[0].chunk == told[1].chunk
        return told[0].token_ms - told[1].token_ms

    assert more(2048) > 1.5 * more(1024) > 2 * more(512) > 0
    assert more(2048, precision="w4") == 0
    narrow = dataclasses.replace(wide, heads=14)
    assert estimate_llm(narrow, "SM8750").token.attention < estimate_llm(wide, "SM8750").token.attention


def test_the_host_looks_embeddings_up_slowly_on_one_chip_through_one_runtime() -> None:
    seeing = named_shapes()["intern3_5_vl_2b"]
    reading = dataclasses.replace(seeing, vision=False)

    def host(shape: LlmShape, soc: str, runtime: str) -> float:
        return float(estimate_llm(shape, soc, runtime=runtime).token.host)

    assert host(seeing, "SC8380XP", "genie") > host(reading, "SC8380XP", "genie") + 100
    assert host(seeing, "SC8380XP", "geniex") == host(reading, "SC8380XP", "geniex")
    assert host(seeing, "SC8480XP", "genie") == host(reading, "SC8480XP", "genie")


def test_attention_hides_behind_bytes_in_part() -> None:
    """Twice the weights hide more of the same attention, and never all of it."""
    shape = named_shapes()["qwen3_4b"]
    told = estimate_llm(shape, "SM8750")
    heavy = estimate_llm(shape, "SM8750", precision="w8a16")
    assert 0 < heavy.token.attention < told.token.attention


def test_a_family_of_many_rows_does_not_make_the_bands_alone(rows: list[LlmMeasurement]) -> None:
    """Nine of ten rows are of one family that is never off; the others are off by a fifth, and are inside."""
    judged = [r for r in rows if r.judged and r.runtime == RUNTIMES[1]]
    made = [dataclasses.replace(r, family="one" if i % 20 else "other") for i, r in enumerate(judged)]
    measured = np.array([r.token_ms for r in made])
    off = np.array([1.0 if r.family == "one" else 1.2 for r in made])
    both = [*made, *(dataclasses.replace(r, runtime=RUNTIMES[0]) for r in made)]
    widths = half_widths(both, np.tile([r.chunk_ms for r in made], 2), np.tile(measured * off, 2))
    assert widths[RUNTIMES[1]] == {"chunk": 0.0, "token": pytest.approx(np.log(1.2), abs=1e-3)}
