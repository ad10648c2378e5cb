# SPDX-License-Identifier: Apache-2.0
"""Machine: the properties of a device that decide how kernels are written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """The properties of a device that decide how kernels are written; equal machines get the same kernels."""

    is_processor: bool
    units: int
    local_bytes: int
    most_items: int = 256
    """Work-items of a work-group at most."""
    half_math: bool = False
    """Whether it computes in float16 (cl_khr_fp16)."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Neighbours that a work-item takes at once, best first."""
        return (8, 4, 1) if self.is_processor else (4, 1)

    @property
    def local(self) -> int:
        """Work-items of a work-group where nothing else decides."""
        return 64 if self.is_processor else 128

    @property
    def row_group(self) -> int:
        """Work-items that share a row."""
        return 1 if self.is_processor else 256
