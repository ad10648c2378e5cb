# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters on a small QDQ transformer: the bits of a fresh compilation, and of the base when they are gone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hexforge
from hexforge.addons.adapters import making
from hexforge.addons.adapters.making import make_adapter
from hexforge.errors import CallError, FormatError, ModelError
from hexforge.formats.adapter import Adapter
from hexforge.formats.container import SLACK, Container
from hexforge.frontends.onnx.context_constants import Constants
from hexforge.ir import Array
from hexforge.runtime.contexts.adapter_config import read_config
from hexforge.runtime.contexts.compile import compile
from hexforge.runtime.contexts.context import Context
from hexforge.runtime.contexts.request import ContextRequest
from hexforge.runtime.contexts.wrap import wrap
from tests.addons.adapters.lora_models import adapted_weights, factors, inputs, transformer, weights
from tests.ort.context_models import session
from tests.ort.models import FLOAT, model, node

PATTERN = "block.[qvo].weight_quantized"
CHANGED = {"q": weights(5)["q"], "v": weights(6)["v"]}
OTHER = {"o": weights(7)["o"]}


class Made:
    """A base context with its model, and adapters for it."""

    def __init__(self, folder: Path, backend: str = "htp", bits: int = 8) -> None:
        self.folder, self.backend, self.bits = folder, backend, bits
        self.model, self.context = folder / "block.onnx", folder / "block.bin"
        self.model.write_bytes(transformer(bits=bits))
        compile(self.model, self.context, backend, ContextRequest(updatable=(PATTERN,)))

    def adapter(self, name: str, changed: dict[str, Array]) -> Path:
        adapted = self.folder / f"{name}.onnx"
        adapted.write_bytes(transformer(changed, bits=self.bits))
        make_adapter(self.context, self.model, adapted, output=self.folder / f"{name}.bin")
        return self.folder / f"{name}.bin"

    def fresh(self, changed: dict[str, Array] | None = None) -> Array:
        """What the model with these weights computes, compiled from scratch."""
        made = compile(transformer(changed, bits=self.bits), None, self.backend, ContextRequest(graph_names=("block",)))
        return made.program().run(inputs())["out"]


def ran(program: Any) -> Array:
    found: Array = program.run(inputs())["out"]
    return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("lora"))


@pytest.fixture(scope="module")
def two(made: Made) -> tuple[Path, Path]:
    """Two adapters of one base."""
    return made.adapter("one", CHANGED), made.adapter("two", OTHER)


# -- the numbers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("backend", "bits"), [("htp", 8), ("htp", 16), ("cpu", 8)])
def test_an_adapter_gives_the_bits_of_a_fresh_compilation(tmp_path: Path, backend: str, bits: int) -> None:
    made = Made(tmp_path, backend, bits)
    one = made.adapter("one", CHANGED)
    context = Context(made.context)
    program = context.program("block")
    base = ran(program)
    np.testing.assert_array_equal(base, made.fresh())
    context.apply(one)
    under = ran(program)
    np.testing.assert_array_equal(under, made.fresh(CHANGED))
    assert (under != base).any()
    np.testing.assert_array_equal(ran(context.program("block")), under)  # one that is made afterwards
    assert [n.op.name for n in program.graph] == [n.op.name for n in Context(made.context).program("block").graph]
    context.remove_adapters()
    np.testing.assert_array_equal(ran(program), base)


@pytest.mark.feature("Apply binary section (LoRA)", guide="197, 217")
def test_adapters_replace_each_other_and_the_base_comes_back(made: Made, two: tuple[Path, Path]) -> None:
    context = Context(made.context)
    program = context.program("block")
    wanted = {None: made.fresh(), two[0]: made.fresh(CHANGED), two[1]: made.fresh(OTHER)}
    restore = made.folder / "restore.bin"
    make_adapter(made.context, output=restore)
    for at in (two[0], two[1], two[0], None, two[1], None):
        if at is None:
            context.apply(restore)
        else:
            context.apply(at)
        np.testing.assert_array_equal(ran(program), wanted[at])
    assert Context(made.context).identity("block") == context.identity("block")


def test_only_what_differs_is_in_the_file(made: Made, two: tuple[Path, Path]) -> None:
    adapter = Adapter(two[1])
    (graph,) = adapter.graphs
    assert graph.tensors == ("block.o.weight_quantized",)
    assert all(c.place[0] == "stages" and c.place[-1] in ("weights", "bias32") for c in graph.changes)
    stored = {s.kind: s.bytes for s in Container(made.context).sections}["weights"]
    assert len(adapter.weights) - SLACK < (stored - SLACK) / 4


def test_applied_twice_it_is_made_once(made: Made, two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    context = Context(made.context)
    program = context.program("block")
    adapters = [Adapter(path) for path in two]
    for adapter in adapters:
        context.apply(adapter)
    monkeypatch.setattr(context, "_loaded_program", None)  # nothing more can be loaded
    for adapter, changed in zip(adapters, (CHANGED, OTHER), strict=True):
        context.apply(adapter)
        np.testing.assert_array_equal(ran(program), made.fresh(changed))


# -- low-rank weights -------------------------------------------------------------------------------------------------


def test_low_rank_weights_keep_the_base_encodings(made: Made) -> None:
    given = factors("q", "v")
    adapter = make_adapter(made.context, made.model, weights=given, alpha=8)
    context = Context(made.context)
    context.apply(adapter)
    changed = {name: adapted_weights(name, given, 8) for name in ("q", "v")}
    assert all((changed[n] != weights()[n]).any() for n in changed)
    np.testing.assert_array_equal(ran(context.program("block")), made.fresh(changed))


def test_names_are_mapped_and_whole_constants_replaced(made: Made) -> None:
    given = {k.replace("base_model.model.block.q", "elsewhere"): v for k, v in factors("q").items()}
    with pytest.raises(CallError, match=r"elsewhere: block\.onnx has no constant of that name; .* with a map"):
        make_adapter(made.context, made.model, weights=given)
    names = {"elsewhere": "block.q.weight_quantized"}
    real = np.random.default_rng(3).normal(0, 0.1, (32, 32)).astype(np.float32)
    adapter = make_adapter(made.context, made.model, weights={**given, "block.v.weight": real}, names=names)
    assert set(adapter.graphs[0].tensors) == {"block.q.weight_quantized", "block.v.weight_quantized"}


def test_every_fault_of_the_weights_at_once(made: Made) -> None:
    given = factors("q", "v", "o")
    del given["base_model.model.block.q.lora_B.weight"]
    given["base_model.model.block.v.lora_A.weight"] = np.zeros((3, 32), np.float32)
    given["base_model.model.block.o.lora_B.weight"] = np.zeros((16, 4), np.float32)
    given["block.up.weight"] = np.zeros((2, 2), np.float32)
    given["nowhere"] = np.zeros(1, np.float32)
    with pytest.raises(CallError) as caught:
        make_adapter(made.context, made.model, weights=given)
    lines = str(caught.value).splitlines()
    assert len(lines) == 5
    for part, line in zip(
        ("only A", "are not [rank, in]", "does not fit", "not [2, 2]", "no constant"), lines, strict=True
    ):
        assert part in line
    bad = {**factors("q"), "base_model.model.block.q.lora_A.weight": np.full((4, 32), np.nan, np.float32)}
    with pytest.raises(CallError, match="no numbers"):
        make_adapter(made.context, made.model, weights=bad)
    with pytest.raises(CallError, match="are empty"):
        make_adapter(made.context, made.model, weights={})


@pytest.mark.parametrize("flip", [False, True])
def test_a_square_matrix_lies_as_its_reader_says(flip: bool) -> None:
    w = np.eye(4, dtype=np.float32)
    gemm = node("Gemm", ["x", "net.fc.weight"], ["y"], transB=int(flip))
    base = Constants(model([gemm], {"x": (FLOAT, [1, 4])}, {"y": (FLOAT, [1, 4])}, {"net.fc.weight": w}))
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 4)).astype(np.float32), rng.normal(size=(4, 2)).astype(np.float32)
    found = making.merge_weights(
        base, {"net.fc.lora_down.weight": a, "net.fc.lora_up.weight": b, "net.fc.alpha": np.array(4.0)}, None, {}
    )
    delta = 2.0 * (b.astype(np.float64) @ a)
    np.testing.assert_array_equal(found["net.fc.weight"], (w + (delta if flip else delta.T)).astype(np.float32))


# -- what is refused --------------------------------------------------------------------------------------------------


def test_adapters_that_do_not_belong(made: Made, two: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(CallError, match=r"block\.up\.weight_quantized: not updatable"):
        made.adapter("wrong", {"up": weights(4)["up"]})
    assert not (made.folder / "wrong.bin").exists()
    other = tmp_path / "other.bin"
    compile(
        transformer({"k": weights(9)["k"]}), other, request=ContextRequest(updatable=(PATTERN,), graph_names=("block",))
    )
    program = Context(other).program("block")
    before = ran(program)
    with pytest.raises(CallError, match="was made for another base"):
        Context(other).apply(two[0])
    np.testing.assert_array_equal(ran(program), before)
    fixed = tmp_path / "fixed.bin"
    compile(made.model, fixed)
    with pytest.raises(CallError, match="has no updatable tensors; compile it with `--updatable`"):
        Context(fixed).apply(two[0])
    with pytest.raises(CallError, match="has no updatable tensors"):
        make_adapter(fixed)
    compile(made.model, fixed, request=ContextRequest(updatable=(PATTERN,), graph_names=("another",)))
    with pytest.raises(CallError, match=r"is for graph 'block', and .* has another"):
        Context(fixed).apply(two[0])
    compile(made.model, fixed, request=ContextRequest(updatable=("block.q.*",), graph_names=("block",)))
    with pytest.raises(CallError, match=r"another base|not updatable"):
        Context(fixed).apply(two[0])
    with pytest.raises(CallError, match=r"no constant of the graphs has such a name"):
        compile(made.model, fixed, request=ContextRequest(updatable=("nothing*",)))
    with pytest.raises(FormatError, match="is no adapter, but a context"):
        Context(made.context).apply(made.context)
    with pytest.raises(FormatError, match="is an adapter"):
        Context(two[0])


def test_models_that_do_not_belong(made: Made, tmp_path: Path) -> None:
    other = tmp_path / "other.onnx"
    other.write_bytes(transformer(tokens=9))
    with pytest.raises(ModelError, match=r"is not block\.onnx with other constants: its inputs"):
        make_adapter(made.context, made.model, other)
    with pytest.raises(CallError, match="was not compiled from the base model"):
        make_adapter(made.context, other, made.model)
    with pytest.raises(ModelError, match="there is nothing to adapt"):
        make_adapter(made.context, made.model, made.model)
    other.write_bytes(transformer({"up": weights()["up"][:, :48]}))
    with pytest.raises(
        ModelError, match=r"constant 'block\.up\.weight_quantized' is int8\[32, 48\], not int8\[32, 64\]"
    ):
        make_adapter(made.context, made.model, other)
    for wrong in ({"base": made.model}, {"adapted": made.model}, {"weights": {}}):
        with pytest.raises(CallError, match="give the base model and either"):
            make_adapter(made.context, **wrong)


@pytest.mark.feature("Skip validation on binary section", guide="195-201, 420-426")
def test_a_damaged_adapter_leaves_the_base(made: Made, two: tuple[Path, Path], tmp_path: Path) -> None:
    context = Context(made.context)
    program = context.program("block")
    base = ran(program)
    whole = two[0].read_bytes()
    sections = {s.kind: s for s in Container(two[0]).sections}
    bad = tmp_path / "bad.bin"
    for kind in ("adapter", "weights"):
        data = bytearray(whole)
        data[sections[kind].offset + 2] ^= 64
        bad.write_bytes(data)
        with pytest.raises(FormatError, match=f"section {kind} '' is damaged"):
            context.apply(bad)
        np.testing.assert_array_equal(ran(program), base)
    context.skip_validation_on_binary_section = True  # the arrays are taken as they are, the rest is not
    context.apply(bad)
    assert (ran(program) != made.fresh(CHANGED)).any()
    bad.write_bytes(whole[:-1])
    with pytest.raises(FormatError):
        context.apply(bad)
    context.remove_adapters()
    np.testing.assert_array_equal(ran(program), base)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupted_apply_leaves_the_old_one(
    made: Made, two: tuple[Path, Path], error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    context = Context(made.context)
    make_one, calls = context._loaded_program, []

    def interrupted(*given: Any) -> Any:
        calls.append(given)
        if len(calls) == 6:  # two programs, two under the first adapter, one under the second
            raise error
        return make_one(*given)

    monkeypatch.setattr(context, "_loaded_program", interrupted)
    programs = [context.program("block"), context.program("block")]
    context.apply(two[0])
    with pytest.raises(error):
        context.apply(two[1])
    for program in programs:
        np.testing.assert_array_equal(ran(program), made.fresh(CHANGED))


def test_runs_see_one_adapter_and_never_a_mix(made: Made, two: tuple[Path, Path]) -> None:
    context = Context(made.context)
    program = context.program("block")
    wanted = [made.fresh(), made.fresh(CHANGED), made.fresh(OTHER)]
    stop, seen, wrong = threading.Event(), set(), []

    def work() -> None:
        while not stop.is_set():
            found = ran(program)
            which = next((i for i, w in enumerate(wanted) if np.array_equal(found, w)), None)
            if which is None:
                wrong.append(found)
                return
            seen.add(which)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    adapters = [Adapter(path) for path in two]
    for i in range(200):
        if i % 3 == 2:
            context.remove_adapters()
        else:
            context.apply(adapters[i % 3])
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert seen


def parts(seed: int, second: int) -> bytes:
    """A product, an op that stays with the CPU, another product; two graphs."""
    made = [np.random.default_rng(n).standard_normal((4, 4)).astype(np.float32) for n in (seed, second)]
    nodes = [
        node("MatMul", ["x", "w1"], ["a"], name="first"),
        node("Relu", ["a"], ["b"], name="relu"),
        node("Compress", ["b", "keep"], ["c"], name="compress", axis=0),
        node("MatMul", ["c", "w2"], ["d"], name="second"),
        node("Neg", ["d"], ["y"], name="neg"),
    ]
    constants = {"w1": made[0], "w2": made[1], "keep": np.array([True, True])}
    return model(nodes, {"x": (FLOAT, [2, 4])}, {"y": (FLOAT, [2, 4])}, constants, between={"c": (FLOAT, [2, 4])})


def test_only_the_graphs_that_change_are_in_it(tmp_path: Path) -> None:
    base, context = tmp_path / "n.onnx", tmp_path / "n.bin"
    base.write_bytes(parts(0, 1))
    made = compile(base, context, request=ContextRequest(allow_partial=True, updatable=("w*",)))
    assert [(g.name, g.updatable) for g in made.info.graphs] == [("n_0", ("w1",)), ("n_1", ("w2",))]
    second = make_adapter(context, base, parts(0, 2))
    assert [(g.name, g.tensors) for g in second.graphs] == [("n_1", ("w2",))]
    both = make_adapter(context, base, parts(3, 2))
    assert [g.name for g in both.graphs] == ["n_0", "n_1"]
    opened = Context(context)
    programs = opened.programs()
    opened.apply(both)
    want = compile(parts(3, 2), request=ContextRequest(allow_partial=True, graph_names=("n",)))
    for name, given in (("n_0", "x"), ("n_1", "c")):
        x = {given: np.random.default_rng(5).standard_normal((2, 4)).astype(np.float32)}
        for out, array in want.program(name).run(x).items():
            np.testing.assert_array_equal(programs[name].run(x)[out], array)
    opened.apply(second, ["n_1"])
    assert {n: a.where for n, a in opened.adapters.items()} == {"n_0": both.where, "n_1": second.where}
    opened.remove_adapters("n_0")
    assert list(opened.adapters) == ["n_1"]
    with pytest.raises(CallError, match="does nothing to graph 'n_0'; it is for n_1"):
        opened.apply(second, ["n_0"])


# -- qnn.lora_config --------------------------------------------------------------------------------------------------


def run_options(config: Path | str) -> Any:
    chosen = hexforge.RunOptions()
    chosen.add_run_config_entry("qnn.lora_config", str(config))
    return chosen


@pytest.fixture(scope="module")
def wrapped(made: Made) -> Path:
    return wrap(made.context, made.folder / "wrapped")[0]


def test_a_session_switches_by_run_option(made: Made, two: tuple[Path, Path], wrapped: Path) -> None:
    opened = session(wrapped)
    (base,) = opened.run(None, inputs())
    np.testing.assert_array_equal(base, made.fresh())
    restore = made.folder / "restore_session.bin"
    make_adapter(made.context, output=restore)
    config = made.folder / "lora.txt"
    for file, changed in ((two[0], CHANGED), (two[1], OTHER), (restore, None), (Path(two[0].name), CHANGED)):
        config.write_text(f"block;{file}\n")
        (found,) = opened.run(None, inputs(), run_options(config))
        np.testing.assert_array_equal(found, made.fresh(changed))
        np.testing.assert_array_equal(opened.run(None, inputs())[0], found)  # it stays, as in the EP
    np.testing.assert_array_equal(session(wrapped).run(None, inputs())[0], base)  # another session is another context


def test_config_files_that_are_wrong(made: Made, two: tuple[Path, Path], wrapped: Path, tmp_path: Path) -> None:
    opened = session(wrapped)
    (base,) = opened.run(None, inputs())
    config = tmp_path / "lora.txt"
    cases: list[tuple[bytes, type[Exception], str]] = [
        (b"", FormatError, "names no graph"),
        (b"block\n", FormatError, "line 1 is not"),
        (b"\nblock;\n", FormatError, "line 2 is not"),
        (b"block;\xff\xfe", FormatError, "not a text"),
        (f"block;{two[0]}\nblock;{two[1]}".encode(), FormatError, "line 2 names graph 'block' again"),
        (f"net;{two[0]}".encode(), CallError, "names graph 'net'; the context model has block"),
        (b"block;nothing.bin", CallError, "nothing.bin: the adapter cannot be read"),
        (f"block;{made.context}".encode(), FormatError, "is no adapter"),
    ]
    for text, kind, message in cases:
        config.write_bytes(text)
        with pytest.raises(kind, match=message):
            opened.run(None, inputs(), run_options(config))
    with pytest.raises(CallError, match="no such file"):
        opened.run(None, inputs(), run_options(tmp_path / "none.txt"))
    with pytest.raises(CallError, match="adapters are for context models"):
        session(made.model).run(None, inputs(), run_options(config))
    np.testing.assert_array_equal(opened.run(None, inputs())[0], base)


def test_runs_with_other_adapters_at_the_same_time(made: Made, two: tuple[Path, Path], wrapped: Path) -> None:
    opened = session(wrapped)
    wanted = [made.fresh(CHANGED), made.fresh(OTHER)]
    wrong: list[int] = []

    def work(which: int) -> None:
        config = made.folder / f"thread{which}.txt"
        config.write_text(f"block;{two[which]}")
        for _ in range(30):
            if not np.array_equal(opened.run(None, inputs(), run_options(config))[0], wanted[which]):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, "a run had another adapter than it asked for"


def test_a_name_that_no_file_can_have_is_only_not_there(tmp_path: Path) -> None:
    config = tmp_path / "lora.txt"
    config.write_text(f"g;{'+' * 5000}")
    (found,) = read_config(config)
    assert found == ("g", tmp_path / ("+" * 5000))


def test_paths_of_a_config_lead_from_here_or_from_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there = tmp_path / "there"
    there.mkdir()
    config = there / "lora.txt"
    config.write_text("\ufeffa ; x.bin\r\n\r\nb;y.bin")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "y.bin").write_bytes(b"")
    assert read_config(config) == [("a", there / "x.bin"), ("b", Path("y.bin"))]
