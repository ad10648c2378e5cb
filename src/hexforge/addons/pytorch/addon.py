# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from dataclasses import replace

from hexforge.addon import Addon, FileKind, Hook

_PROGRAM = FileKind(
    "an exported program of torch (.pt2)",
    "`hexforge check` says where its nodes run, `hexforge convert` makes an ONNX model of it",
    start=rb"PK\x03\x04",
    as_onnx="hexforge.addons.pytorch.export:onnx_of_file",
    compare="hexforge.addons.pytorch.export:compare",
)

ADDON = Addon(
    "pytorch",
    "Exported programs of torch (.pt2) in every command, and modules of torch in Python.",
    files=(
        replace(_PROGRAM, suffixes=(".pt2",)),
        replace(_PROGRAM, members=("*serialized_exported_program.json",)),
        replace(_PROGRAM, members=("*archive_format",)),
    ),
    hooks={Hook.ONNX_OF_PROGRAM: "hexforge.addons.pytorch.export:onnx_of_program"},
    packages=("torch", "onnxscript"),
)
