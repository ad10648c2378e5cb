# SPDX-License-Identifier: Apache-2.0
"""OnnxCheckpoint: a decoder that onnxruntime-genai's builder or optimum exported, as a checkpoint.

Its weights are found by the names of its nodes, and what it computes by its config.json, or by genai_config.json and
the nodes themselves. Names may say anything, so the model is run over some tokens with onnxruntime, and refused where
the numbers are not those of the weights that were read.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hexforge.addons.llm.checkpoints.architecture import architecture_of_config, fused_rows
from hexforge.addons.llm.checkpoints.checkpoint import INDEX, WHOLE, Checkpoint
from hexforge.addons.llm.checkpoints.decoder_architecture import decoder_architecture
from hexforge.addons.llm.checkpoints.decoder_constants import BlockCodes, DecoderConstants, number
from hexforge.addons.llm.checkpoints.float_decoder import FloatDecoder
from hexforge.addons.llm.genai_config import GENAI_CONFIG, genai_settings
from hexforge.addons.llm.onnx_decoder import read_onnx_decoder
from hexforge.addons.llm.onnx_graphs import CPU_ALONE, open_onnx_graphs
from hexforge.addons.llm.shape import CONFIG, read_settings
from hexforge.errors import CallError, FormatError, UnsupportedError
from hexforge.formats.json_text import read_json
from hexforge.ir import Array
from hexforge.model.reader import read

DECODERS = ("model.onnx", "decoder_model_merged.onnx", "onnx/model.onnx", "onnx/decoder_model_merged.onnx")
"""Where an exported decoder lies in its folder, where no genai_config.json says it."""
CHECKED_TOKENS = 24
NEAR = {"FLOAT": 1e-3, "FLOAT16": 0.03, "BFLOAT16": 0.1}
"""The root of the mean square by which logits may differ, as a share of theirs, by the type of a model."""
NEAR_IN_8_BITS = 0.15
"""The same where MatMulNBits may round what it reads to 8 bits (accuracy_level 4)."""


def find_decoder(source: Path) -> Path | None:
    """The ONNX decoder of a folder, or the file itself; None where there is none or the folder has safetensors."""
    if source.suffix == ".onnx":
        if not source.is_file():
            raise CallError(f"{source}: no such file")
        return source
    if any((source / name).is_file() for name in (INDEX, WHOLE)):
        return None
    if (source / GENAI_CONFIG).is_file():
        _, decoder = genai_settings(read_json(source / GENAI_CONFIG), source / GENAI_CONFIG)
        if "pipeline" in decoder:
            raise UnsupportedError(f"{source / GENAI_CONFIG}: a decoder in several stages is not read")
        name = decoder.get("filename")
        if not isinstance(name, str) or Path(name).name != name or not (source / name).is_file():
            raise FormatError(f"{source / GENAI_CONFIG}: decoder.filename is {name!r}, which is no file of the folder")
        return source / name
    return next((source / name for name in DECODERS if (source / name).is_file()), None)


class OnnxCheckpoint(Checkpoint):
    """The weights of an ONNX decoder with past and present keys and values."""

    def __init__(self, path: Path) -> None:
        self.path = path
        model = read(path, fold=False)
        graph = model.ir.graph
        self._constants = DecoderConstants(graph, str(path))
        folder = next((at for at in (path.parent, path.parent.parent) if _described(at)), None)
        if folder is None:
            raise CallError(f"{path}: has neither {GENAI_CONFIG} nor {CONFIG} beside it, which say what it is")
        self._neighbours = False
        if (folder / CONFIG).is_file():
            config = read_settings(folder / CONFIG)
            arch = architecture_of_config(config, folder.name, str(folder / CONFIG))
        else:
            settings = genai_settings(read_json(folder / GENAI_CONFIG), folder / GENAI_CONFIG)
            arch, config, self._neighbours = decoder_architecture(*settings, graph, self._constants, folder.name)
        super().__init__(arch, config, folder)
        if self._constants.layers() != arch.shape.layers:
            raise FormatError(
                f"{path}: has {self._constants.layers()} layers, and its settings say {arch.shape.layers}"
            )
        self._check(_tolerance(self._constants, str(graph.outputs[0].dtype)))

    def codes(self, name: str, layer: int | None, bits: int, block: int) -> tuple[Array, Array] | None:
        """The stored integers, where they are symmetric ones of these bits and blocks."""
        codes = self._matrix(name, layer)
        if not isinstance(codes, BlockCodes) or (codes.bits, codes.block) != (bits, block):
            return None
        if codes.integers.shape[1] % block or (codes.zeros != 1 << bits - 1).any() or not (codes.scales > 0).all():
            return None
        centred = (codes.integers.astype(np.int16) - (1 << bits - 1)).astype(np.int8)
        return np.ascontiguousarray(centred.T), np.ascontiguousarray(codes.scales.T, np.float32)

    def _stored(self, name: str, layer: int | None) -> Array:
        constants = self._constants
        if name.endswith("_bias") and layer is not None:
            what = name.removesuffix("_bias")
            module, rows = self._rows(what, layer)
            if constants.has(layer, self._module(what), "addend"):
                module, rows = self._module(what), slice(None)
            return self._halved(what, constants.bias(layer, module)[rows])
        if "norm" in name:
            norm = constants.norm(layer, self._module(name)) - np.float32(self.architecture.norm_offset)
            return self._halved(name, norm) if name in ("query_norm", "key_norm") else norm
        matrix = self._matrix(name, layer)
        return matrix.real if isinstance(matrix, BlockCodes) else matrix

    def _matrix(self, name: str, layer: int | None) -> Array | BlockCodes:
        """A matrix [outputs, inputs] with halves of heads that turn together, as transformers has them."""
        module, rows = self._rows(name, layer)
        matrix = self._constants.matrix(layer, module)
        if isinstance(matrix, BlockCodes):
            parts = (self._halved(name, part[rows]) for part in (matrix.integers, matrix.scales, matrix.zeros))
            integers, scales, zeros = parts
            return BlockCodes(integers, scales, zeros, matrix.block, matrix.bits)
        return self._halved(name, matrix[rows])

    def _module(self, name: str) -> str:
        """The module that has a weight of its own."""
        return self._kinds[name].transformers.split(".")[-2]

    def _rows(self, name: str, layer: int | None) -> tuple[str, slice]:
        """The module that holds a matrix or a bias, and which of its rows they are."""
        module = self._module(name)
        if layer is None or self._constants.has(layer, module) or name in ("output", "down"):
            return module, slice(None)
        start, end, where = fused_rows(self.architecture.shape, name)
        return where.rpartition(".")[2], slice(start, end)

    def _halved(self, name: str, array: Array) -> Array:
        """Rows of queries and keys in the order of halves, where the model turns neighbours."""
        if not self._neighbours or name not in ("query", "key", "query_norm", "key_norm"):
            return array
        size, turning = self.architecture.shape.head_dim, self.architecture.rotation.size
        order = np.r_[np.arange(0, turning, 2), np.arange(1, turning, 2), np.arange(turning, size)]
        heads: Array = array.reshape(-1, size, *array.shape[1:])[:, order]
        return heads.reshape(array.shape)

    def _check(self, near: float) -> None:
        """UnsupportedError where the model itself computes other logits than the weights that were read of it."""
        shape = self.architecture.shape
        count = min(CHECKED_TOKENS, self.architecture.positions)
        tokens = [int(token) for token in np.random.default_rng(0).integers(0, shape.vocab, count)]
        graphs = open_onnx_graphs(read_onnx_decoder(self.path, self.path, count, needs_caches=False), CPU_ALONE)
        expected, _ = graphs.run(count, tokens, 0, graphs.empty_caches(), False)
        assert expected is not None
        given = FloatDecoder(self).logits([tokens])[0]
        if expected.shape[-1] != shape.vocab:
            raise FormatError(
                f"{self.path}: gives {expected.shape[-1]} logits, and its embedding has {shape.vocab} rows"
            )
        given = given[-len(expected) :]  # some models give those of the last token alone
        apart = float(np.sqrt(np.square(given - expected).mean() / max(float(np.square(expected).mean()), 1e-30)))
        if not apart <= near:
            raise UnsupportedError(
                f"{self.path}: computes something that is not read of it: logits of its weights in a "
                f"{self.architecture.family} differ by {apart:.1%} from its own; export the checkpoint it was made of"
            )


def _described(folder: Path) -> bool:
    return any((folder / name).is_file() for name in (GENAI_CONFIG, CONFIG))


def _tolerance(constants: DecoderConstants, kind: str) -> float:
    products = [module.product for module in constants.modules.values() if module.product is not None]
    rounded = any(node.op_type == "MatMulNBits" and number(node, "accuracy_level", 0) == 4 for node in products)
    return NEAR_IN_8_BITS if rounded else NEAR.get(kind.rpartition(".")[2], NEAR["FLOAT"])
