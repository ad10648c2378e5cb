# SPDX-License-Identifier: Apache-2.0
"""What ExecuTorch's compile specs ask of the backends."""

from __future__ import annotations

import pytest

from hexforge.addons.executorch.compile_spec import _settings
from hexforge.addons.executorch.formats.qnn_options import GpuOptions, QnnOptions


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        (
            QnnOptions("htp", 57),
            {"soc_model": "57", "fold_relu_activation_into_conv_off": "1", "short_depth_conv_on_hmx_off": "1",
             "dlbc": "0", "slc_alloc_enable": "0"},
        ),
        (
            QnnOptions("htp", 69, use_conv_hmx=True, use_fold_relu=True, use_dlbc=True, use_slc_allocator=True),
            {"soc_model": "69", "fold_relu_activation_into_conv_off": "0", "short_depth_conv_on_hmx_off": "0",
             "dlbc": "1", "slc_alloc_enable": "1"},
        ),
        (
            QnnOptions("gpu", 57, gpu=GpuOptions("hybrid", use_node_optimizations=True)),
            {"gpu_precision": "hybrid", "gpu_use_memory_optimizations": "0", "gpu_use_node_optimizations": "1",
             "gpu_use_queue_recording": "0", "gpu_use_weight_sharing": "0"},
        ),
    ],
)  # fmt: skip
def test_a_compile_spec_is_options_of_its_backend(spec: QnnOptions, settings: dict[str, str]) -> None:
    assert _settings(spec) == settings
