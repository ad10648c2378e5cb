"""Plan: what every tensor of a float ONNX model becomes. Calibration and rules make it, refinement betters it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Protocol, runtime_checkable

from hexforge.ir import Array, DType, Encoding

Feeds = Mapping[str, Array]
"""One sample: the model's inputs by name."""


@runtime_checkable
class Samples(Protocol):
    """Calibration or evaluation data. Each iteration starts anew and yields the samples in the same order."""

    def __iter__(self) -> Iterator[Feeds]: ...

    def __len__(self) -> int: ...


class Runner(Protocol):
    """Runs one model on samples: onnxruntime's CPU provider for float models, a session on the emulator for QDQ."""

    def __call__(self, feeds: Feeds, /) -> dict[str, Array]:
        """Outputs by name."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """A fixed-point type: how the integers of a tensor are stored and what they mean."""

    dtype: DType
    encoding: Encoding


@dataclass(slots=True)
class Plan:
    """How a model is quantized, by ONNX tensor and node names. What is not in it stays as it is."""

    tensors: dict[str, Fixed] = field(default_factory=dict)
    """Activations and constants that become fixed point."""
    converts: dict[tuple[str, str], Fixed] = field(default_factory=dict)
    """(tensor, node that reads it): the type that node reads instead, where regions of different precision meet."""
    integers: dict[str, Array] = field(default_factory=dict)
    """Constants whose integers were chosen otherwise than by rounding to the nearest."""
    constants: dict[str, Array] = field(default_factory=dict)
    """Float constants that were changed before quantizing (equalized weights, corrected biases)."""
    floats: dict[str, str] = field(default_factory=dict)
    """Nodes left in float, with why."""

    def copied(self) -> Plan:
        """A plan of its own with the same entries."""
        return Plan(*(dict(getattr(self, part.name)) for part in fields(self)))
