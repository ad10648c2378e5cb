# SPDX-License-Identifier: Apache-2.0
"""VendorSession: a model in the package's own session: what it placed, and what its emulator computes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hexforge.addons.vendor.process import VendorProcess
from hexforge.chips.soc import require_chip
from hexforge.errors import CallError, PackageError
from hexforge.ir import Array

EP = "QNNExecutionProvider"
_QUIET = 3
_NUMBERS = itertools.count()


@dataclass(frozen=True, slots=True)
class VendorOptions:
    """What a session of the package is made with."""

    soc: str = ""
    provider_options: Mapping[str, str] = field(default_factory=dict)
    """Options of the QNN provider by their own names; those of the chip come by `soc`."""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Entries of the session's config, such as ep.context_enable."""

    def options(self) -> dict[str, str]:
        """The provider options, with the chip's number."""
        given = dict(self.provider_options)
        if self.soc:
            given["soc_model"] = str(require_chip(self.soc).soc_model)
        return given


@dataclass(frozen=True, slots=True)
class VendorPlacement:
    """Which nodes each provider got, as the session says it."""

    nodes: Mapping[str, Sequence[Sequence[str]]]
    """provider -> [op type, name] of its nodes, after onnxruntime's own rewriting."""

    @property
    def taken(self) -> tuple[tuple[str, str], ...]:
        """Op type and name of each node that the package's provider took."""
        return tuple((op, name) for op, name in self.nodes.get(EP, ()))

    @property
    def left(self) -> tuple[tuple[str, str], ...]:
        """Op type and name of each node that went elsewhere, the CPU."""
        return tuple((op, name) for provider, rows in self.nodes.items() if provider != EP for op, name in rows)

    @property
    def whole(self) -> bool:
        """True where no node was left to the CPU."""
        return bool(self.taken) and not self.left


class VendorSession:
    """A model that the package has taken; it lives as long as its process."""

    def __init__(
        self,
        process: VendorProcess,
        model: Path | bytes,
        options: VendorOptions = VendorOptions(),  # noqa: B008 - it is frozen
        name: str = "",
    ) -> None:
        self._process, self._number = process, next(_NUMBERS)
        path = model if isinstance(model, Path) else process.scratch / f"model{self._number}.onnx"
        if isinstance(model, bytes):
            path.write_bytes(model)
        self.name = name or path.name
        try:
            answer = process.ask(
                "open", self.name, number=self._number, model=str(path.resolve()), provider_options=options.options(),
                entries=dict(options.entries), log_level=_QUIET,
            )  # fmt: skip
        finally:
            if isinstance(model, bytes):
                path.unlink(missing_ok=True)
        self.placement = VendorPlacement(answer["nodes"])
        self.seconds: float = answer["seconds"]
        """How long the package took to take it."""
        self.inputs: list[tuple[str, str, list[Any]]] = [(n, t, s) for n, t, s in answer["inputs"]]
        self.outputs: list[tuple[str, str, list[Any]]] = [(n, t, s) for n, t, s in answer["outputs"]]
        self.last_run_s = 0.0
        """How long the last run took in the package's process, without what travelled."""

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Outputs by name for inputs by name, on the package's emulator."""
        known = {name for name, _, _ in self.inputs}
        if missing := sorted(known - set(feeds)):
            raise CallError(f"{self.name}: the input {missing[0]!r} is missing")
        names, number = [name for name in feeds if name in known], next(_NUMBERS)
        into, out = (self._process.scratch / f"{kind}{number}.npz" for kind in ("feeds", "outputs"))
        try:
            np.savez(into, allow_pickle=False, **{f"a{i}": feeds[n] for i, n in enumerate(names)})
            answer = self._process.ask(
                "run", self.name, number=self._number, names=names, feeds=str(into), outputs=str(out)
            )
            self.last_run_s = answer["seconds"]
            with np.load(out, allow_pickle=False) as file:
                return {name: file[f"a{i}"] for i, name in enumerate(answer["names"])}
        except OSError as error:
            raise PackageError(f"{self.name}: arrays cannot be handed over: {error.strerror or error}") from None
        finally:
            into.unlink(missing_ok=True)
            out.unlink(missing_ok=True)

    def run_steadily(self, feeds: Mapping[str, Array]) -> tuple[dict[str, Array], tuple[str, ...]]:
        """Outputs that two runs give alike, and the names of those that were other ones in some run.

        The package's emulator is not quite steady; of three runs the middle number counts, right or not.
        """
        runs = [self.run(feeds), self.run(feeds)]
        outputs, unsteady = dict(runs[0]), []
        for name in outputs:
            if np.array_equal(runs[0][name], runs[1][name], equal_nan=outputs[name].dtype.kind == "f"):
                continue
            unsteady.append(name)
            if len(runs) == 2:
                runs.append(self.run(feeds))
            outputs[name] = np.sort(np.stack([run[name] for run in runs]), axis=0)[1]
        return outputs, tuple(unsteady)

    def close(self) -> None:
        """Let the package forget it."""
        if self._process.running:
            self._process.ask("close", self.name, number=self._number)
