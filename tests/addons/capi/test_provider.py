# SPDX-License-Identifier: Apache-2.0
"""Qualcomm's execution provider, unchanged, over our libraries: what it takes, its bits, and contexts both ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.capi import provider_options
from benchmarks.capi.provider_cases import difference, our_provider, session_outputs
from benchmarks.peers.provider_process import ProviderProcess
from benchmarks.peers.vendor import missing
from hexforge.runtime.contexts.compile import compile
from hexforge.runtime.contexts.request import ContextRequest
from hexforge.runtime.contexts.wrap import wrap

pytestmark = pytest.mark.vendor

FEEDS = {"x": np.linspace(-1, 1, 2 * 8 * 8, dtype=np.float32).reshape(1, 2, 8, 8)}


@pytest.fixture(scope="module")
def provider(libraries: Path) -> Iterator[ProviderProcess]:
    """The provider in a process of its own."""
    if why := missing():
        pytest.skip(why)
    with our_provider() as process:
        yield process


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, a Relu and a Softmax."""
    weights = np.random.default_rng(1).standard_normal((4, 2, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("Softmax", ["r"], ["y"], axis=1),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8])],
        [numpy_helper.from_array(weights, "w")],
    )
    path = tmp_path_factory.mktemp("model") / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_the_provider_takes_a_model_and_gives_our_bits(provider: ProviderProcess, model: Path) -> None:
    answer = provider.ask(model, FEEDS)
    assert (answer.error, answer.run_error, answer.whole) == ("", "", True)
    assert difference(session_outputs(model, FEEDS), answer.outputs) == ""


@pytest.mark.parametrize("embedded", ["0", "1"])
def test_a_context_of_the_provider_runs_in_our_session(
    provider: ProviderProcess, model: Path, tmp_path: Path, embedded: str
) -> None:
    made = tmp_path / "made_ctx.onnx"
    entries = {"ep.context_enable": "1", "ep.context_file_path": str(made), "ep.context_embed_mode": embedded}
    assert provider.ask(model, session_options=entries).error == ""
    wanted = session_outputs(model, FEEDS)
    assert difference(wanted, session_outputs(made, FEEDS)) == ""
    again = provider.ask(made, FEEDS)
    assert (again.error, again.run_error) == ("", "")
    assert difference(wanted, again.outputs) == ""


def test_a_context_of_ours_runs_in_the_provider(provider: ProviderProcess, model: Path, tmp_path: Path) -> None:
    context = tmp_path / "small.bin"
    compile(model, context, "htp", ContextRequest())
    (wrapped,) = wrap(context, tmp_path)
    answer = provider.ask(wrapped, FEEDS)
    assert (answer.error, answer.run_error, answer.whole) == ("", "", True)
    assert difference(session_outputs(model, FEEDS), answer.outputs) == ""


@pytest.mark.parametrize(
    "only",
    ["htp_share_resource_optimization", "enable_vtcm_backup", "profiling_level", "soc_model=999", "priority=high"],
)
def test_an_option_ends_as_over_the_vendors_library(libraries: Path, only: str) -> None:
    if why := missing():
        pytest.skip(why)
    for trial, theirs, ours in provider_options.rows(only):
        assert ours.verdict != "crash", trial.name
        assert ours.verdict == theirs.verdict or trial.name in provider_options.REASONS, (trial.name, theirs, ours)
