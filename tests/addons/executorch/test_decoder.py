# SPDX-License-Identifier: Apache-2.0
"""Decoders in .pte files: attention over caches, a token at a time and several, and qnn_llama_runner over it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import hexforge.ops  # noqa: F401 - fills the table
from hexforge.addons.executorch.running.attention_sink import SinkEvictor
from hexforge.addons.executorch.running.decoder import KV, PREFILL, PteGraphs, read_decoder
from hexforge.addons.llm import LanguageModel, LlmSession
from hexforge.addons.llm.decoder_graphs import DecoderFacts
from hexforge.cli import app
from hexforge.errors import CallError, FormatError
from hexforge.ir import Array, DType, Graph, Role, TensorType
from tests.addons.executorch.pte_files import Plan, Tensor, context_blob, pte
from tests.addons.llm.test_llama2c_tokens import WORDS
from tests.addons.llm.test_llama2c_tokens import path as tokenizer  # noqa: F401 - a fixture

WIDE, VOCABULARY, CONTEXT = 4, len(WORDS), 12
RANDOM = np.random.default_rng(0)
WORD, HEAD = (
    RANDOM.standard_normal((VOCABULARY, WIDE), np.float32),
    RANDOM.standard_normal((WIDE, VOCABULARY), np.float32),
)
FACTS = {
    "get_vocab_size": VOCABULARY, "get_max_context_len": CONTEXT, "get_n_layers": 1, "get_kv_io_bit_width": 32,
    "get_eos_id": 2,
}  # fmt: skip


def decoder_graph(name: str, count: int, local: bool) -> Graph:
    """Logits of words that look back: one head whose keys, values and queries are the words themselves.

    `local`: what a second mask leaves of the words before is added.
    """
    made, room = Graph(name), CONTEXT - count
    real, whole = DType.FLOAT32, DType.INT32

    def given(number: int, type: DType, *shape: int) -> object:
        return made.value(f"input_{number}_x@0", TensorType(type, shape), Role.APP_WRITE)

    tokens = given(0, whole, 1, count)
    masks = [given(1 + i, real, 1, 1, count, CONTEXT) for i in range(1 + local)]
    position = given(2 + local, whole, 1, count)
    keys, values = given(3 + local, real, 1, 1, WIDE, room), given(4 + local, real, 1, 1, room, WIDE)

    def put(op: str, reads: list[object], *shape: int, out: str = "", **params: object) -> object:
        role = Role.APP_READ if out else Role.NATIVE
        value = made.value(out or made.unique("t"), TensorType(real, shape), role)
        made.node(op, reads, [value], **params)  # type: ignore[arg-type]
        return value

    words = put("Gather", [made.static(WORD), tokens], 1, count, WIDE, axis=0)
    row = put("Reshape", [words], 1, 1, count, WIDE)
    new = put("Transpose", [row], 1, 1, WIDE, count, perm=(0, 1, 3, 2))
    # positions take part, so that none of the inputs is unused
    at = made.value("at", TensorType(real, (1, count)))
    made.node("Cast", [position], [at])  # type: ignore[list-item]
    here = put("Reshape", [at], 1, 1, count, 1)
    all_keys = put("Concat", [keys, new], 1, 1, WIDE, CONTEXT, axis=3)
    all_values = put("Concat", [values, row], 1, 1, CONTEXT, WIDE, axis=2)
    seen, scores = here, put("MatMul", [row, all_keys], 1, 1, count, CONTEXT)
    for mask in masks:
        masked = put("ElementWiseAdd", [scores, mask], 1, 1, count, CONTEXT)
        shares = put("Softmax", [masked], 1, 1, count, CONTEXT, axis=3)
        looked = put("MatMul", [shares, all_values], 1, 1, count, WIDE)
        seen = put("ElementWiseAdd", [looked, seen], 1, 1, count, WIDE)
    flat = put("Reshape", [seen], 1, count, WIDE)
    put("MatMul", [flat, made.static(HEAD)], 1, count, VOCABULARY, out="output_logits@0")
    put("Reshape", [new], 1, 1, WIDE, count, out="output_keys@0")
    put("Reshape", [row], 1, 1, count, WIDE, out="output_values@0")
    return made


def method(name: str, count: int, local: bool = False) -> Plan:
    room = CONTEXT - count
    values = [
        Tensor(np.int32, (1, count)), *[Tensor(np.float32, (1, 1, count, CONTEXT))] * (1 + local),
        Tensor(np.int32, (1, count)), Tensor(np.float32, (1, 1, WIDE, room)), Tensor(np.float32, (1, 1, room, WIDE)),
        Tensor(np.float32, (1, count, VOCABULARY)), Tensor(np.float32, (1, 1, WIDE, count)),
        Tensor(np.float32, (1, 1, count, WIDE)),
    ]  # fmt: skip
    data = context_blob(decoder_graph(name, count, local))
    numbers = [*range(len(values))]
    calls = [("delegate", 0, numbers)]
    return Plan(values, numbers[:-3], numbers[-3:], calls, delegates=[("QnnBackend", data)], name=name)


def constant(name: str, number: float) -> Plan:
    return Plan([number], [], [0], [], name=name)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decoder") / "hybrid_llama_qnn.pte"
    facts = [constant(name, number) for name, number in FACTS.items()]
    path.write_bytes(pte(method(KV, 1), method(PREFILL, 4), *facts))
    return path


def expected(tokens: list[int], window: int = 0) -> Array:
    """Logits behind the last token, by numpy."""
    seen = np.full(WIDE, len(tokens) - 1, np.float32)
    for words in (WORD[tokens], *([WORD[tokens[-window:]]] if window else [])):
        scores = words[-1] @ words.T
        shares = np.exp(scores - scores.max())
        seen += shares / shares.sum() @ words
    result: Array = seen @ HEAD
    return result


SINK, EVICTS = 2, 3


def evictor(context: int = CONTEXT) -> Plan:
    """The caches without rows 2 to 4: those behind move up, and zeros follow."""
    room = context - 1
    made, shapes = Graph(KV), {"keys": ((1, 1, WIDE, room), 3), "values": ((1, 1, room, WIDE), 2)}
    for number, (name, (shape, axis)) in enumerate(shapes.items()):
        whole = made.value(f"input_{number}_{name}@0", TensorType(DType.FLOAT32, shape), Role.APP_WRITE)
        parts = []
        for start, end in ((0, SINK), (SINK + EVICTS, room)):
            sizes = tuple(end - start if i == axis else n for i, n in enumerate(shape))
            ranges = np.array([(start, end, 1) if i == axis else (0, n, 1) for i, n in enumerate(shape)], np.int32)
            parts.append(made.value(made.unique("part"), TensorType(DType.FLOAT32, sizes)))
            made.node("StridedSlice", [whole], [parts[-1]], ranges=ranges)
        parts.append(made.static(np.zeros([EVICTS if i == axis else n for i, n in enumerate(shape)], np.float32)))
        given = made.value(f"output_{name}@0", TensorType(DType.FLOAT32, shape), Role.APP_READ)
        made.node("Concat", parts, [given], axis=axis)
    values = [Tensor(np.float32, shape) for shape, _ in (*shapes.values(), *shapes.values())]
    calls = [("delegate", 0, [*range(4)])]
    return Plan(values, [0, 1], [2, 3], calls, delegates=[("QnnBackend", context_blob(made))], name=KV)


def evictor_file(path: Path, **facts: int) -> Path:
    said = {"get_sink_size": SINK, "get_eviction_batch_size": EVICTS, "get_max_context_len": CONTEXT, **facts}
    path.write_bytes(pte(evictor(), *(constant(name, number) for name, number in said.items())))
    return path


def opened(path: Path, several: bool = True, evictor: SinkEvictor | None = None) -> LlmSession:
    """A session over a decoder, without an end where tokens are evicted."""
    decoder = read_decoder(path)
    room, ends = decoder.context if evictor is None else 1000, tuple(decoder.end_tokens)
    facts = DecoderFacts(decoder.folder, decoder.name, room, decoder.vocabulary, decoder.layers, ends)
    return LanguageModel(facts, PteGraphs(decoder, several, evictor)).session()


@pytest.mark.parametrize("several", [False, True])
def test_logits_are_those_of_the_whole_sequence(file: Path, several: bool) -> None:
    """Prompts of any length, in pieces of four or one by one, up to the end of the context."""
    tokens = [5, 9, 2, 7, 1, 3, 3, 260, 8, 262, 11, 4]
    session = opened(file, several)
    for start, end in ((0, 6), (6, 7), (7, 12)):
        logits = session.feed(tokens[start:end], all_logits=True)
        np.testing.assert_allclose(logits[-1], expected(tokens[:end]), atol=0.15)  # float16 of numbers up to 30
        assert len(logits) == end - start
    session.rewind(7)
    np.testing.assert_allclose(session.feed(tokens[7:]), expected(tokens), atol=0.15)
    with pytest.raises(CallError, match="12 tokens and 1 more do not fit the context of 12"):
        session.feed([1])


@pytest.mark.parametrize("several", [False, True])
def test_local_layers_see_a_window(several: bool, tmp_path: Path) -> None:
    """Two masks: the second leaves out what is farther back than get_sliding_window, across pieces of a prompt too."""
    window, tokens = 3, [5, 9, 2, 7, 1, 3, 3, 260, 8, 262, 11, 4]
    facts = [constant(name, number) for name, number in FACTS.items()]
    methods = method(KV, 1, local=True), method(PREFILL, 4, local=True)
    (tmp_path / "two.pte").write_bytes(pte(*methods, *facts, constant("get_sliding_window", window)))
    session = opened(tmp_path / "two.pte", several)
    for start, end in ((0, 6), (6, 7), (7, 12)):
        np.testing.assert_allclose(session.feed(tokens[start:end]), expected(tokens[:end], window), atol=0.15)
    (tmp_path / "two.pte").write_bytes(pte(*methods, *facts))
    with pytest.raises(FormatError, match="has no get_sliding_window"):
        read_decoder(tmp_path / "two.pte")
    (tmp_path / "two.pte").write_bytes(pte(*methods, *facts, constant("get_sliding_window", 0)))
    with pytest.raises(FormatError, match="a window is of one token or more"):
        read_decoder(tmp_path / "two.pte")


@pytest.mark.parametrize("several", [False, True])
def test_a_sequence_goes_on_where_tokens_are_evicted(file: Path, several: bool, tmp_path: Path) -> None:
    """Behind the sink, the oldest tokens go when the caches are full, as if they had never been."""
    decoder = read_decoder(file)
    evicts = SinkEvictor(evictor_file(tmp_path / "attention_sink_evictor.pte"), decoder)
    tokens = [5, 9, 2, 7, 1, 3, 3, 260, 8, 262, 11, 4, 12, 13, 14, 15, 6, 21, 22, 23]
    session, kept = opened(file, several, evicts), list[int]()
    for token in tokens:
        if len(kept) == CONTEXT - 1:
            del kept[SINK : SINK + EVICTS]
        kept.append(token)
        np.testing.assert_allclose(session.feed([token]), expected(kept), atol=0.15)
    assert session.tokens == tokens
    if several:  # a piece of four needs room for four more
        session.feed([1, 2, 4])
        while len(kept) > CONTEXT - 8:
            del kept[SINK : SINK + EVICTS]
        kept += [1, 2, 4]
        np.testing.assert_allclose(session.feed([7]), expected([*kept, 7]), atol=0.15)
    for facts, words in (({"get_max_context_len": 16}, "a context of 16"), ({"get_sink_size": 9}, "keeps 9 tokens")):
        with pytest.raises(FormatError, match=words):
            SinkEvictor(evictor_file(tmp_path / "other.pte", **facts), decoder)
    with pytest.raises(FormatError, match="has no get_sink_size"):
        SinkEvictor(file, decoder)


def test_one_method_for_several_tokens(
    tokenizer: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lookahead's kv_forward takes several; a single token goes through it, and its caches have fewer rows."""
    facts = [constant(name, number) for name, number in FACTS.items()]
    (tmp_path / "wide.pte").write_bytes(pte(method(KV, 4), *facts))
    session = opened(tmp_path / "wide.pte")
    tokens = [5, 9, 2, 7, 1, 3, 3, 260, 8]
    np.testing.assert_allclose(session.feed(tokens[:5]), expected(tokens[:5]), atol=0.15)
    for end in range(6, 10):
        np.testing.assert_allclose(session.feed(tokens[end - 1 : end]), expected(tokens[:end]), atol=0.15)
    with pytest.raises(CallError, match=r"9 tokens were before, the caches have 8 rows; .*--max_seq_len"):
        session.feed([1])
    monkeypatch.chdir(tmp_path)
    flags = ["--model_path", "wide.pte", "--tokenizer_path", str(tokenizer), "--prompt", "ab", "--seq_len", "12"]
    given = CliRunner().invoke(app, ["llm", "llama-runner", *flags, "--eval_mode", "2"])
    assert given.exit_code == 0, given.output
    assert "Sequence length (10 tokens) reached!" in given.stderr


def test_the_runner(file: Path, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    flags = ["--model_path", str(file), "--tokenizer_path", str(tokenizer), "--prompt", "ab", "--seq_len", "9"]
    said = {}
    for mode in ("0", "1"):
        given = CliRunner().invoke(app, ["llm", "llama-runner", *flags, "--eval_mode", mode, "--soc", "SM8650"])
        assert given.exit_code == 0, given.output
        line = next(line for line in given.stdout.splitlines() if line.startswith("PyTorchObserver "))
        said[mode] = json.loads(line.removeprefix("PyTorchObserver "))
        assert (said[mode]["prompt_tokens"], said[mode]["generated_tokens"]) == (2, 7)
        assert Path("outputs.txt").read_text().startswith("ab")
        assert float(Path("inference_speed.txt").read_text()) > 0
    endless = ["--attention_sink_rope_path", str(evictor_file(tmp_path / "sink.pte")), "--seq_len", "30"]
    given = CliRunner().invoke(app, ["llm", "llama-runner", *flags, *endless, "--soc", "SM8650"])
    assert given.exit_code == 0, given.output
    assert "Prompt Tokens: 2    Generated Tokens: 28" in given.stderr
    dumped = ["--dump_logits_path", "logits.raw"]
    assert CliRunner().invoke(app, ["llm", "llama-runner", *flags, *dumped]).exit_code == 0
    logits = np.fromfile("logits.raw", np.float32).reshape(-1, VOCABULARY)
    np.testing.assert_allclose(logits[1], expected([1, 264]), atol=0.15)


def test_files_that_are_no_decoder(tmp_path: Path) -> None:
    facts = [constant(name, number) for name, number in FACTS.items()]
    for plans, words in (
        ([method("forward", 1), *facts], "not kv_forward"),
        ([method(KV, 1), *facts[1:]], "has no get_vocab_size"),
        ([method(KV, 1), *facts[:2], constant("get_n_layers", 3), *facts[3:]], "a decoder of 3 layers"),
        ([method(KV, 1), facts[0], constant("get_max_context_len", 99), *facts[2:]], "a context of 99"),
    ):
        (tmp_path / "model.pte").write_bytes(pte(*plans))
        with pytest.raises((CallError, FormatError), match=words):
            read_decoder(tmp_path / "model.pte")
