# SPDX-License-Identifier: Apache-2.0
"""An exported program as a .pte, by ExecuTorch's own front end, for those who only want to know its time."""

from __future__ import annotations

from typing import Any

from hexforge.executorch.stand_in import enable


def export_to_pte(program: Any, soc: str = "SM8650") -> bytes:
    """The .pte of an exported program: float16 where it is float, quantized where it has Q and DQ nodes."""
    enable()
    from executorch.backends.qualcomm.serialization.qc_schema import QcomChipset
    from executorch.backends.qualcomm.utils.utils import (
        generate_htp_compiler_spec,
        generate_qnn_executorch_compiler_spec,
        to_edge_transform_and_lower_to_qnn,
    )

    quantized = any("quantized_decomposed" in str(node.target) for node in program.graph.nodes)
    spec = generate_qnn_executorch_compiler_spec(
        soc_model=QcomChipset[soc], backend_options=generate_htp_compiler_spec(use_fp16=not quantized)
    )
    inputs, _ = program.example_inputs
    edge = to_edge_transform_and_lower_to_qnn(program.module(), inputs, spec)
    return bytes(edge.to_executorch().buffer)
