# SPDX-License-Identifier: Apache-2.0
"""Writing a bundle of a checkpoint: ONNX graphs for several new tokens and for one, weights once, a context."""

from __future__ import annotations

import operator
import os
import pydoc_data.topics
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hexforge.addons.llm.bundle import (
    BUNDLE,
    PAST,
    PRESENT,
    Bundle,
    BundlePart,
    adapted_file,
    checksum,
    graph_name,
    read_bundle,
)
from hexforge.addons.llm.checkpoints.checkpoint import TOKENIZER_FILES, Checkpoint
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder, observed_ranges
from hexforge.addons.llm.checkpoints.open_checkpoint import open_checkpoint
from hexforge.addons.llm.checkpoints.peft_adapter import read_adapter
from hexforge.addons.llm.exporting.low_rank_branches import PATTERN, LowRankBranches
from hexforge.addons.llm.exporting.precision import BundlePrecision, precision_named
from hexforge.addons.llm.exporting.scaled_checkpoint import ScaledCheckpoint, require_free_weights, searched_scales
from hexforge.addons.llm.exporting.weight_rounding import InputCorrelations
from hexforge.addons.llm.genai_config import GENAI_CONFIG, DecoderStage, genai_config
from hexforge.addons.llm.shape import read_settings
from hexforge.addons.llm.text_tokens import TOKENIZER, TextTokens
from hexforge.analysis.requests import CHIPS
from hexforge.chips.soc import DEFAULT_SOC
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.container import json_bytes
from hexforge.formats.files import write_atomically
from hexforge.request_fields import option, spelled

if TYPE_CHECKING:
    from hexforge.addons.llm.exporting.decoder_graph import DecoderGraph

WEIGHTS, OPEN_MODEL = "weights{}.bin", "model{}.onnx"
FACTORS, COMPILED_ADAPTER = "factors.{}{}.bin", "adapter.{}{}.bin"
"""Of each adapter: its factors for the ONNX models, and what it changes of a context."""
MOST_PART_BYTES = int(3.75 * (1 << 30))
"""HTP's sessions address so much of weights at once; a larger model is split (published)."""
CALIBRATION_TOKENS, CALIBRATION_LENGTH = 2048, 256
MOST_CONTEXT = 1 << 17


def _new_tokens(text: str) -> tuple[int, ...]:
    """The new tokens of each graph, as the command line gives them."""
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        raise CallError(f"--ar {text}: give numbers with commas between, such as 128,1") from None


def _adapter_folders(texts: list[str] | None) -> dict[str, str | Path]:
    """LoRA adapters by name, as the command line gives them."""
    folders: dict[str, str | Path] = {}
    for text in texts or ():
        name, _, folder = text.partition("=")
        if not folder or name in folders:
            raise CallError(f"--adapter {text}: give NAME=FOLDER, each name once")
        folders[name] = folder
    return folders


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What a bundle is to be."""

    soc: str = field(
        default=DEFAULT_SOC, metadata=spelled(CHIPS, "--soc", given="", read=lambda name: name or DEFAULT_SOC)
    )
    context: int = option(4096, "Tokens that the caches hold.", min=2)
    tokens: tuple[int, ...] = option(
        (128, 1), "New tokens of each graph, 1 among them.", "--ar", kind=str, given="128,1", read=_new_tokens
    )
    """New tokens of each graph (AR-128 and AR-1)."""
    precision: str = option("w8a16", "float, w8a16, w4a16 (blocks of 32), w4a16_lpbq or w4a16_channel.")
    native: bool = option(False, "Caches as the matrix unit reads them.", "--native-kv")
    """Caches as HTP's matrix unit reads them."""
    compiled: bool = option(
        True, "ONNX models alone, nothing compiled.", "--no-context", kind=bool, given=False, read=operator.not_
    )
    """Compile the graphs into a context, too."""
    calibration: Path | None = option(None, "A text for ranges of activations.", exists=True)
    """A text that ranges of activations are taken from; None: of Python's language reference."""
    part_bytes: int = MOST_PART_BYTES
    """Weights of one part at most."""
    compensated: bool = False
    """Round weights such that later ones make up for the errors of earlier ones, over the calibration text (GPTQ)."""
    scaled: bool = False
    """Scale channels before weights are rounded, so that those that are large in that text lose less (AWQ)."""
    adapters: Mapping[str, str | Path] = field(
        default_factory=dict,
        metadata=spelled(
            "A LoRA adapter as PEFT writes it; several times.", "--adapter", kind=list[str], given=None,
            read=_adapter_folders, metavar="NAME=FOLDER",
        ),
    )  # fmt: skip
    """LoRA adapters by name: folders as PEFT writes them."""


def export(
    source: str | Path | Checkpoint,
    folder: str | Path,
    request: ExportRequest | None = None,
    *,
    random_seed: int | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Bundle:
    """Write a bundle of a checkpoint into a folder, whole or not at all; `say` is told what is being done."""
    request = request or ExportRequest()
    checkpoint = source if isinstance(source, Checkpoint) else open_checkpoint(source, random_seed=random_seed)
    precision = precision_named(request.precision)
    _require(request, checkpoint, precision)
    at = Path(folder)
    if at.exists() and (not at.is_dir() or (any(at.iterdir()) and not (at / BUNDLE).is_file())):
        raise CallError(f"{at}: is there already and no bundle; give another folder")
    if checkpoint.folder is not None and at.exists() and at.samefile(checkpoint.folder):
        raise CallError(f"{at}: is the checkpoint itself; give another folder")
    staged = at.parent / f".{at.name}.{os.getpid()}.part"
    try:
        staged.mkdir(parents=True)
        _exported(checkpoint, staged, request, precision, say)
        if at.exists():
            shutil.rmtree(at)
        staged.rename(at)
    except OSError as error:
        raise CallError(f"{at}: cannot be written: {error.strerror or error}") from None
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return read_bundle(at)


def _require(request: ExportRequest, checkpoint: Checkpoint, precision: BundlePrecision) -> None:
    """CallError or UnsupportedError for a request that no bundle can meet."""
    sizes = request.tokens
    if 1 not in sizes or len(set(sizes)) != len(sizes) or not all(1 <= n <= request.context for n in sizes):
        raise CallError(f"--ar {','.join(map(str, sizes))}: give different numbers up to the context, 1 among them")
    longest = min(checkpoint.architecture.positions, MOST_CONTEXT)
    if not 2 <= request.context <= longest:
        raise CallError(f"--context {request.context}: the model was made for 2 to {longest} tokens")
    if (request.compensated or request.scaled) and not precision.quantized:
        raise CallError("floats are not rounded to integers; export with --precision w8a16 or w4a16 to do it well")
    if request.scaled or request.compensated:
        require_free_weights(checkpoint, precision)
    if request.native and not precision.quantized:
        raise UnsupportedError("native caches are 8-bit; export with --precision w8a16 or w4a16")
    if request.native and not request.compiled:
        raise CallError("native caches are a matter of the compiled context; leave out --no-context")


def _exported(
    checkpoint: Checkpoint, folder: Path, request: ExportRequest, precision: BundlePrecision, say: Callable[[str], None]
) -> None:
    shape = checkpoint.architecture.shape
    copied, ends = _copy_texts(checkpoint, folder), _ends(checkpoint)
    graph = _calibrated(checkpoint, request, precision, say)
    parts: list[BundlePart] = []
    stages: list[DecoderStage] = []
    split = _split(graph.checkpoint, precision, request.part_bytes)
    for index, (first, last) in enumerate(split, 1):
        say(f"graphs of layers {first} to {last - 1} of {shape.layers}")
        part, stage = _write_part(graph, folder, request, f".{index}" if len(split) > 1 else "", first, last)
        parts.append(part)
        stages += stage
    for part in parts if request.compiled else ():
        say(f"{part.context}: the graphs compiled for {request.soc}")
        _compile(folder, part, request)
        for name, file in ((name, file) for name, file in part.adapters.items() if file):
            say(f"{file}: the adapter {name} compiled for {part.context}")
            _compile_adapter(folder, part, name)
    if stages:
        write_atomically(folder / GENAI_CONFIG, json_bytes(genai_config(graph.checkpoint, request.context, stages)))
    large = [p for p in sorted(folder.iterdir()) if p.suffix in (".bin", ".onnx")]
    bundle = Bundle(
        folder, shape.name, request.context, shape.vocab, shape.layers, ends, precision.name, shape.kv_heads,
        shape.head_dim, request.soc, request.native, keys_transposed=request.native, parts=tuple(parts),
        sizes={p.name: p.stat().st_size for p in large}, checksums={name: checksum(folder / name) for name in copied},
    )  # fmt: skip
    write_atomically(folder / BUNDLE, json_bytes(bundle.write()))


def _calibrated(
    checkpoint: Checkpoint, request: ExportRequest, precision: BundlePrecision, say: Callable[[str], None]
) -> DecoderGraph:
    """What writes the graphs, with everything that follows from a calibration text."""
    from hexforge.addons.llm.exporting.decoder_graph import DecoderGraph

    adapters = [read_adapter(name, at, checkpoint.architecture) for name, at in request.adapters.items()]
    texts = _calibration(checkpoint, request) if precision.quantized else []
    if request.scaled:
        say("scales of inputs, over calibration text")
        first_sight = InputCorrelations()
        FloatDecoder(checkpoint).states(texts, first_sight.observe)
        scales = searched_scales(checkpoint, precision, first_sight)
        checkpoint, adapters = ScaledCheckpoint(checkpoint, scales), [scales.scaled(each) for each in adapters]
    branches = LowRankBranches(checkpoint, adapters)
    ranges = {}
    correlations = InputCorrelations() if request.compensated else None
    if precision.quantized:
        say("ranges of activations, over calibration text")
        seen = {} if correlations is None else {"also": correlations.observe}
        ranges = branches.widened(observed_ranges(checkpoint, texts, **seen), texts)
    return DecoderGraph(checkpoint, precision, ranges, branches, correlations)


def _write_part(
    graph: DecoderGraph, folder: Path, request: ExportRequest, number: str, first: int, last: int
) -> tuple[BundlePart, list[DecoderStage]]:
    """The models of some layers and their weights; and the model for onnxruntime-genai, where there is one."""
    import onnx

    from hexforge.addons.llm.exporting.decoder_graph import GraphRequest
    from hexforge.addons.llm.exporting.weight_file import WeightFile

    names: dict[int, str] = {}
    stages: list[DecoderStage] = []
    adapters = tuple(graph.branches.adapters)
    with ExitStack() as open_files:
        files = {
            adapter: open_files.enter_context(closing(WeightFile(folder / file.format(number))))
            for adapter, file in {"": WEIGHTS, **{name: FACTORS.format(name, "{}") for name in adapters}}.items()
        }
        for tokens in sorted(request.tokens, reverse=True):
            names[tokens] = f"{graph_name(tokens)}{number}.onnx"
            for adapter in files:
                wanted = GraphRequest(tokens, request.context, first, last, request.native, adapter)
                onnx.save(graph.model(wanted, files), folder / adapted_file(names[tokens], adapter))
        for adapter in () if request.native else files:
            wanted = GraphRequest("sequence_length", request.context, first, last, adapter=adapter)
            model, file = graph.model(wanted, files), OPEN_MODEL.format(number)
            onnx.save(model, folder / adapted_file(file, adapter))
            if not adapter:
                names_of = ([v.name for v in values] for values in (model.graph.input, model.graph.output))
                stages.append(DecoderStage(file, *names_of))
    compiled = {
        name: COMPILED_ADAPTER.format(name, number)
        if request.compiled and graph.branches.changed(name, first, last)
        else ""
        for name in adapters
    }
    context = f"context{number}.bin" if request.compiled else ""
    return BundlePart(first, last, names, context, compiled), stages


def _ends(checkpoint: Checkpoint) -> tuple[int, ...]:
    """Tokens after which an answer ends: the config's, and those of generation_config.json."""
    ends = set(checkpoint.architecture.end_tokens)
    if checkpoint.folder is not None and (checkpoint.folder / "generation_config.json").is_file():
        at = checkpoint.folder / "generation_config.json"
        more = read_settings(at).get("eos_token_id")
        more = more if isinstance(more, list) else [] if more is None else [more]
        if wrong := [t for t in more if type(t) is not int or not 0 <= t < checkpoint.architecture.shape.vocab]:
            raise FormatError(f"{at}: eos_token_id {wrong[0]!r} is no token of the model's vocabulary")
        ends |= set(more)
    return tuple(sorted(ends))


def _copy_texts(checkpoint: Checkpoint, folder: Path) -> list[str]:
    """config.json and the tokenizer's files; the names of what was written."""
    write_atomically(folder / "config.json", json_bytes(dict(checkpoint.config)))
    written = ["config.json"]
    for name in TOKENIZER_FILES if checkpoint.folder is not None else ():
        assert checkpoint.folder is not None
        if (checkpoint.folder / name).is_file():
            shutil.copyfile(checkpoint.folder / name, folder / name)
            written.append(name)
    if TOKENIZER in written:
        TextTokens.of_folder(folder, checkpoint.architecture.shape.vocab)
    return written


def _calibration(checkpoint: Checkpoint, request: ExportRequest) -> list[list[int]]:
    """Texts as tokens; random tokens where there is no tokenizer."""
    shape, folder = checkpoint.architecture.shape, checkpoint.folder
    if folder is None or not (folder / TOKENIZER).is_file():
        if request.calibration is not None:
            raise CallError(f"{request.calibration}: a calibration text needs the model's {TOKENIZER}")
        drawn = np.random.default_rng(0).integers(0, shape.vocab, CALIBRATION_LENGTH)
        return [[int(token) for token in drawn]]
    if request.calibration is not None:
        text = request.calibration.read_text(encoding="utf-8", errors="replace")
    else:
        text = "\n".join(text for _, text in sorted(pydoc_data.topics.topics.items()))[: 8 * CALIBRATION_TOKENS]
    tokens = TextTokens.of_folder(folder, shape.vocab).encode(text)[:CALIBRATION_TOKENS]
    length = min(CALIBRATION_LENGTH, request.context)
    rows = [tokens[start : start + length] for start in range(0, len(tokens), length)]
    if not rows:
        raise CallError(f"{request.calibration}: has no text")
    return rows


def _split(checkpoint: Checkpoint, precision: BundlePrecision, most: int) -> list[tuple[int, int]]:
    """Layers of each part, such that its weights are few enough; embedding and head count with the ends."""
    shape = checkpoint.architecture.shape
    each = (precision.weight_bits or 32) / 8 + (4 / precision.block if precision.block else 0)
    layer = shape.layer_parameters / shape.layers * each
    table = shape.head_parameters * (2 if precision.quantized else 4)
    head = shape.head_parameters * each
    parts: list[tuple[int, int]] = []
    first, used = 0, float(table)
    for index in range(shape.layers):
        more = layer + (head if index + 1 == shape.layers else 0)
        if used + more > most and index > first:
            parts.append((first, index))
            first, used = index, 0.0
        used += more
    return [*parts, (first, shape.layers)]


def _compile(folder: Path, part: BundlePart, request: ExportRequest) -> None:
    import hexforge

    caches = [name.format(layer, kind) for layer in range(part.first, part.last) for kind in ("key", "value")
              for name in (PAST, PRESENT)]  # fmt: skip
    names = {tokens: graph_name(tokens) for tokens in part.graphs}
    native = {
        name: [c for c in caches if tokens % 32 == 0 or c.startswith(PAST.partition(".")[0])]
        for tokens, name in names.items()
    }
    sources: Sequence[Path] = [folder / file for file in part.graphs.values()]
    wanted = hexforge.ContextRequest(
        graph_names=tuple(names.values()), weight_sharing=len(names) > 1, native=native if request.native else {},
        updatable=(PATTERN,) if any(part.adapters.values()) else (),
    )  # fmt: skip
    hexforge.compile(sources, folder / part.context, request.soc, wanted)


def _compile_adapter(folder: Path, part: BundlePart, name: str) -> None:
    """One file with what an adapter changes of all graphs of a part."""
    from hexforge.addons.adapters.making import make_adapter_of_models

    pairs = [(folder / file, folder / adapted_file(file, name)) for file in part.graphs.values()]
    make_adapter_of_models(folder / part.context, pairs, folder / part.adapters[name])
