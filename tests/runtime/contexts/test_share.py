# SPDX-License-Identifier: Apache-2.0
"""Contexts that sessions share: weights stored once, one file for all, and no graph taken for another."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import hexforge
from hexforge import CallError, FormatError, UnsupportedError
from hexforge.formats.container import Container
from hexforge.runtime.contexts import share
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.context_plan import PrecompiledPlan
from tests.ort.context_models import assert_same_bits, compiler, session, shared, written
from tests.ort.models import mixed, sandwich

SHARE: dict[str, Any] = {"ep__share_ep_contexts": "1"}
STOP: dict[str, Any] = {**SHARE, "ep__stop_share_ep_contexts": "1"}


@pytest.fixture(autouse=True)
def nothing_shared() -> Iterator[None]:
    """The registry is the process's, so each test leaves it empty."""
    share.end()
    share.close()
    yield
    share.end()
    share.close()


def contexts(made: hexforge.InferenceSession) -> tuple[Context, ...]:
    """The contexts a session runs from."""
    assert isinstance(made._plan, PrecompiledPlan)
    return made._plan.contexts


def made_together(folder: Path, *rows: int) -> list[Path]:
    """Context models of models that have one weight, sharing one context."""
    found = []
    for number, row in enumerate(rows):
        last = number == len(rows) - 1
        _, path = written(folder / f"{'abcdefgh'[number]}.onnx", shared(row), **(STOP if last else SHARE))
        found.append(path)
    return found


def test_the_last_session_writes_the_context_under_the_firsts_name(tmp_path: Path) -> None:
    first, a = written(tmp_path / "a.onnx", shared(2), **SHARE)
    assert a.exists()
    assert not (tmp_path / "a_ctx_qnn.bin").exists()
    assert first.saved is not None
    assert first.saved.binary is None
    with pytest.raises(FormatError, match=r"a_ctx_qnn\.bin' is missing"):
        session(a)
    second, b = written(tmp_path / "b.onnx", shared(3), **STOP)
    assert second.saved is not None
    assert second.saved.binary == tmp_path / "a_ctx_qnn.bin"
    assert len(second.saved.graphs) == 2
    assert second.saved.unshared_bytes > 1.9 * second.saved.weights_bytes
    assert not (tmp_path / "b_ctx_qnn.bin").exists()
    for path in (a, b):
        assert b"a_ctx_qnn.bin" in path.read_bytes()
    context = Context(tmp_path / "a_ctx_qnn.bin")
    assert context.info.weight_sharing
    assert_same_bits(first, session(a))
    assert_same_bits(second, session(b))


def test_graphs_that_share_all_weights_take_the_room_of_one(tmp_path: Path) -> None:
    for name in ("one", "three"):
        (tmp_path / name).mkdir()
    made_together(tmp_path / "one", 2)
    made_together(tmp_path / "three", 2, 3, 4)
    one, three = ((tmp_path / name / "a_ctx_qnn.bin").stat().st_size for name in ("one", "three"))
    files = [Container(tmp_path / name / "a_ctx_qnn.bin") for name in ("one", "three")]
    weights = [{s.kind: s.bytes for s in file.sections}["weights"] for file in files]
    assert weights[1] <= 1.05 * weights[0]
    assert three <= 1.05 * one + 2 * 3 * 4096  # each graph's own program


def test_sessions_have_one_copy_of_a_context(tmp_path: Path) -> None:
    a, b = made_together(tmp_path, 2, 3)
    opened = [session(path, **SHARE) for path in (a, b)]
    found = [contexts(s) for s in opened]
    assert found[0] == found[1]
    for row, one in zip((2, 3), opened, strict=True):
        assert_same_bits(session(shared(row)), one)
    apart = contexts(session(a))
    assert apart[0] is not found[0][0]
    last = session(b, **STOP)
    assert contexts(last) == found[0]
    assert contexts(session(b, **SHARE)) != found[0]
    assert_same_bits(session(shared(3)), last)


def test_embedded_contexts_are_shared_too(tmp_path: Path) -> None:
    data = compiler(sandwich(), embed_compiled_data_into_model=True).compile_to_bytes()
    one, two = session(data, **SHARE), session(data, **SHARE)
    assert contexts(one)[0] is contexts(two)[0]
    assert_same_bits(one, two)


def test_a_name_is_not_taken_for_another_graph(tmp_path: Path) -> None:
    """Two contexts with a graph of one name and different weights."""
    paths = []
    for seed in (1, 2):
        (tmp_path / str(seed)).mkdir()
        _, path = written(tmp_path / str(seed) / "m.onnx", shared(2, seed=seed))
        paths.append(path)
    session(paths[0], **SHARE)
    with pytest.raises(CallError, match=r"is shared already, that of m_ctx\.onnx"):
        session(paths[1], **SHARE)
    session(paths[1])


def test_two_graphs_of_one_name_cannot_be_made(tmp_path: Path) -> None:
    written(tmp_path / "a.onnx", shared(2), **SHARE)
    again = tmp_path / "sub"
    again.mkdir()
    entries: dict[str, Any] = {"ep__context_file_path": str(tmp_path / "b_ctx.onnx")}
    with pytest.raises(CallError, match=r"has added a graph .* already; set ep\.context_node_name_prefix"):
        written(again / "a.onnx", shared(2), **SHARE, **entries)
    assert not (tmp_path / "b_ctx.onnx").exists()
    written(again / "a.onnx", shared(2), **STOP, **entries, ep__context_node_name_prefix="second_")
    assert len(Context(tmp_path / "a_ctx_qnn.bin").graphs) == 2
    for path in ("a_ctx.onnx", "b_ctx.onnx"):
        assert_same_bits(session(shared(2)), session(tmp_path / path))


@pytest.mark.feature("Weight sharing", guide="227-247")
def test_what_cannot_be_shared(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"v73 and newer, this is SM8450 \(v69\)"):
        written(tmp_path / "a.onnx", shared(2), {"soc_model": "SM8450"}, **SHARE)
    written(tmp_path / "a.onnx", shared(2), {"soc_model": "SM8650"}, **SHARE)
    with pytest.raises(CallError, match=r"the chip is SM8550, and .* has SM8650"):
        written(tmp_path / "b.onnx", shared(3), {"soc_model": "SM8550"}, **SHARE)
    with pytest.raises(CallError, match=r"the VTCM is 2 MB, and .* has 4 MB"):
        written(tmp_path / "b.onnx", shared(3), {"soc_model": "SM8650", "vtcm_mb": "2"}, **SHARE)
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(CallError, match="the folder is"):
        written(other / "b.onnx", shared(3), {"soc_model": "SM8650"}, **SHARE)
    written(tmp_path / "c.onnx", shared(4), {"soc_model": "SM8650"}, **STOP)
    assert len(Context(tmp_path / "a_ctx_qnn.bin").graphs) == 2


def test_a_context_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "a_ctx_qnn.bin").write_bytes(b"precious")
    with pytest.raises(CallError, match=r"a_ctx_qnn\.bin: is there already"):
        written(tmp_path / "a.onnx", shared(2), **SHARE)
    assert (tmp_path / "a_ctx_qnn.bin").read_bytes() == b"precious"
    assert not (tmp_path / "a_ctx.onnx").exists()


def test_a_session_that_fails_leaves_the_others_graphs(tmp_path: Path) -> None:
    written(tmp_path / "a.onnx", shared(2), **SHARE)
    (tmp_path / "b_ctx.onnx").write_bytes(b"precious")
    with pytest.raises(CallError, match=r"b_ctx\.onnx: is there already"):
        written(tmp_path / "b.onnx", shared(3), **STOP)
    assert not (tmp_path / "a_ctx_qnn.bin").exists()
    written(tmp_path / "c.onnx", shared(4), **STOP)
    assert len(Context(tmp_path / "a_ctx_qnn.bin").graphs) == 2


def test_a_context_holds_64_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share, "MOST_GRAPHS", 2)
    written(tmp_path / "a.onnx", mixed(), **SHARE)
    with pytest.raises(CallError, match="would have 3 graphs; a context holds 2"):
        written(tmp_path / "b.onnx", sandwich(), **STOP)


def test_the_compiler_shares(tmp_path: Path) -> None:
    for name, row, entries in (
        ("a", 2, {"ep.share_ep_contexts": "1"}),
        ("b", 3, {"ep.share_ep_contexts": "1", "ep.stop_share_ep_contexts": "1"}),
    ):
        compiler(shared(row), entries=entries).compile_to_file(tmp_path / f"{name}_ctx.onnx")
    assert {p.name for p in tmp_path.iterdir()} == {"a_ctx.onnx", "b_ctx.onnx", "a_ctx_qnn.bin"}
    for name, row in (("a", 2), ("b", 3)):
        assert_same_bits(session(shared(row)), session(tmp_path / f"{name}_ctx.onnx"))


def test_threads_share(tmp_path: Path) -> None:
    faults: list[BaseException] = []

    def work(number: int) -> None:
        try:
            written(tmp_path / f"m{number}.onnx", shared(number + 2, width=32), **SHARE)
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    written(tmp_path / "last.onnx", shared(9, width=32), **STOP)
    binary = next(tmp_path.glob("*_qnn.bin"))
    assert len(Context(binary).graphs) == 5
    opened: list[hexforge.InferenceSession] = []

    def open_one(number: int) -> None:
        opened.append(session(tmp_path / f"m{number}_ctx.onnx", **SHARE))

    threads = [threading.Thread(target=open_one, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 4
    assert len({id(contexts(s)[0]) for s in opened}) == 1
    for one in opened:
        rows = one.get_inputs()[0].shape[0]
        assert isinstance(rows, int)
        assert_same_bits(session(shared(rows, width=32)), one)


def test_only_enabled_graphs_are_created(tmp_path: Path) -> None:
    a, b = made_together(tmp_path, 2, 3)
    names = [onnx.load(path).graph.node[0].name for path in (a, b)]
    context = Context(tmp_path / "a_ctx_qnn.bin", enable_graphs=names[:1])
    assert [g.name for g in context.graphs] == names[:1]
    program = context.program(names[0])
    x = np.random.default_rng(0).standard_normal((2, 256)).astype(np.float32)
    np.testing.assert_array_equal(program.run({"x": x})["y"], session(shared(2)).run(None, {"x": x})[0])
    with pytest.raises(CallError, match="is not enabled"):
        context.program(names[1])
    with pytest.raises(CallError, match="has no graph 'no'"):
        Context(tmp_path / "a_ctx_qnn.bin", enable_graphs=["no"])
