# SPDX-License-Identifier: Apache-2.0
"""GpuConfig: the options of the gpu backend, spelled after QNN's GPU graph config and ExecuTorch's GPU compile spec."""

from __future__ import annotations

from dataclasses import dataclass

from hexforge.options import OptionTable, choice, flag, text


@dataclass(frozen=True, slots=True)
class GpuConfig(OptionTable):
    """The device that graphs run on, and how."""

    gpu_device: str = text(
        "the OpenCL device of the gpu backend, by number or part of its name as `hexforge devices` lists them; empty: "
        "the environment's HEXFORGE_GPU_DEVICE, else the first GPU",
        provider=True,
    )
    gpu_precision: str = choice(
        "user_provided fp32 fp16 hybrid",
        "floats as the model has them, fp32, fp16 (in half where the device can), or fp16 computed in fp32",
        provider=True,
        compile_spec="precision",
    )
    gpu_ops: str = choice(
        "qnn any", "take the ops that QNN's GPU has, or any op that the backend has a kernel for", provider=True
    )
    gpu_use_memory_optimizations: bool = flag(
        True,
        "tensors that are never alive together share memory",
        provider=True,
        compile_spec="use_memory_optimizations",
    )
    gpu_use_node_optimizations: bool = flag(
        True, "chains of nodes run as one kernel", provider=True, compile_spec="use_node_optimizations"
    )
    gpu_use_queue_recording: bool = flag(
        True, "kernels are recorded once, not set up at every run", provider=True, compile_spec="use_queue_recording"
    )
    gpu_use_weight_sharing: bool = flag(
        True, "programs on one device share equal weights", provider=True, compile_spec="use_weight_sharing"
    )
    gpu_tuning: bool = flag(
        False, "measure which tiles are fastest on the device, and remember it; numbers stay the same", provider=True
    )

    @classmethod
    def title(cls) -> str:
        """What one of the options is called in messages."""
        return "option of the gpu backend"

    def half(self, is_half: bool) -> bool:
        """Whether a float tensor is stored in float16."""
        return is_half if self.gpu_precision == "user_provided" else self.gpu_precision in ("fp16", "hybrid")
