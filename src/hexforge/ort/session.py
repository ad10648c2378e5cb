# SPDX-License-Identifier: Apache-2.0
"""InferenceSession: onnxruntime's session, with QNNExecutionProvider on this computer."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime

from hexforge.errors import CallError
from hexforge.ir import Graph
from hexforge.options import did_you_mean
from hexforge.ort.errors import raises_onnxruntime_errors
from hexforge.ort.on_chip import OnChipSession, chip_of_sessions
from hexforge.ort.options.compatibility import ProviderNotMadeError
from hexforge.ort.options.providers import providers_of_call, uses_qnn
from hexforge.ort.options.session_options import SessionOptions, is_session_options, requested_providers
from hexforge.ort.qnn_session import QnnSession
from hexforge.runtime.contexts.context_model import Report
from hexforge.runtime.cpu_part import CPU, QNN
from hexforge.runtime.stages import PlacedNode, Stage

_LOG = logging.getLogger("hexforge")
_KEYWORDS = ("enable_fallback", "read_config_from_model", "disabled_optimizers")


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """onnxruntime's InferenceSession; with QNNExecutionProvider it is a `QnnSession` as well: hexforge runs the model.

    Without that provider it is onnxruntime's own session and does what that does.
    """

    saved: Report | None = None
    """The context that was written (ep.context_enable=1), and its sizes."""

    @raises_onnxruntime_errors
    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **kwargs: Any,
    ) -> None:
        if sess_options is not None and not is_session_options(sess_options):
            raise CallError(f"sess_options is a {type(sess_options).__name__}; give a SessionOptions")
        for name in kwargs:
            if name not in _KEYWORDS:
                raise CallError(f"InferenceSession has no argument {name!r}{did_you_mean(name, _KEYWORDS)}")
        wanted = providers_of_call(providers, provider_options) or dict(requested_providers(sess_options))
        if uses_qnn(wanted):
            if not isinstance(self, QnnSession):
                own = type(self)
                self.__class__ = _WithQnn if own is InferenceSession else type(own.__name__, (own, _WithQnn), {})
            assert isinstance(self, QnnSession)
            try:
                self.load(path_or_bytes, sess_options, wanted)
            except ProviderNotMadeError as error:
                _LOG.warning("%s is not made: %s; falling back to %s", QNN, error, CPU)
                wanted, providers, provider_options = {CPU: {}}, [CPU], None
            else:
                return
        if type(self) is _WithQnn:
            self.__class__ = InferenceSession
        if QNN in wanted:  # after the CPU, which takes every node
            providers, provider_options = [(name, o) for name, o in wanted.items() if name != QNN], None
        if isinstance(sess_options, SessionOptions):
            sess_options.hand_over()
        super().__init__(path_or_bytes, sess_options, providers, provider_options, **kwargs)
        if chip_of_sessions() and type(self) is InferenceSession:
            self.__class__ = _OnChip
            assert isinstance(self, _OnChip)
            self.begin(path_or_bytes, 0 if sess_options is None else sess_options.intra_op_num_threads)

    @property
    def notes(self) -> tuple[str, ...]:
        """Options that were given and have no effect, each with the reason; and that numbers of a run overflowed."""
        return ()

    @property
    def placements(self) -> tuple[PlacedNode, ...]:
        """Every node of the model: where it runs, why not on the backend, which QNN ops it became."""
        raise self._not_placed()

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The QNN graphs, in the order they run."""
        raise self._not_placed()

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The parts the model runs in, in order."""
        raise self._not_placed()

    def _not_placed(self) -> CallError:
        return CallError(f"the session has no {QNN}; give it in `providers` to see where nodes are placed")

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session anew with other providers."""
        if uses_qnn(providers_of_call(providers, provider_options)):
            source = self._model_path or self._model_bytes
            self.__init__(source, self._sess_options_initial, providers, provider_options)  # type: ignore[misc]
        else:
            super().set_providers(providers, provider_options)


class _OnChip(OnChipSession, InferenceSession):
    """What an InferenceSession becomes where the command names a chip and the session none."""


class _WithQnn(QnnSession, InferenceSession):
    """What an InferenceSession becomes where it is given QNNExecutionProvider."""
