# SPDX-License-Identifier: Apache-2.0
"""Arguments that say how the NPU prepares a graph."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from typer import Option

_QNN_NAMES = {
    "slc": "slc_alloc_enable",
    "fold_relu_off": "fold_relu_activation_into_conv_off",
    "short_depth_conv_off": "short_depth_conv_on_hmx_off",
}
"""What QNN calls an option that has a shorter name here."""


@dataclass(frozen=True, slots=True)
class GraphArguments:
    """What the command line says of preparing graphs."""

    vtcm_size: Annotated[int, Option(min=0, help="Vector memory in bytes (v81 and newer), by 64 KB.")] = 0
    dlbc: Annotated[bool, Option("--dlbc", help="Compress activations on their way to DRAM.")] = False
    dlbc_weights: Annotated[
        bool, Option("--dlbc-weights", help="Compress weights in DRAM; graphs then share none.")
    ] = False
    weights_packing: Annotated[
        bool, Option("--weights-packing", help="8-bit weights of 4-bit range lie packed (quantized models).")
    ] = False
    slc: Annotated[bool, Option("--slc", help="Spill into the system level cache (slc_alloc_enable).")] = False
    fold_relu_off: Annotated[
        bool, Option("--fold-relu-off", help="Activations after convolutions stay ops of their own.")
    ] = False
    short_depth_conv_off: Annotated[
        bool, Option("--short-depth-conv-off", help="Convolutions of short depth run on HVX.")
    ] = False

    def by_qnn_names(self) -> dict[str, Any]:
        """The arguments by the names that QNN has for them."""
        return {_QNN_NAMES.get(name, name): value for name, value in asdict(self).items()}

    def settings(self) -> dict[str, str]:
        """What was asked for, as options of the backend."""
        return {name: str(int(value)) for name, value in self.by_qnn_names().items() if value}
