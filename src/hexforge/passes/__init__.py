# SPDX-License-Identifier: Apache-2.0
"""Neutral rewrites: a graph in, the same numbers out, with less to do."""

from hexforge.passes.channel_last import channel_last
from hexforge.passes.clean import clean, fold
from hexforge.passes.rewrite import Observe, Pass, run

NEUTRAL: tuple[Pass, ...] = (clean, fold, channel_last, fold, clean)
"""The passes every backend's graph goes through, in order."""

__all__ = ["NEUTRAL", "Observe", "Pass", "run"]
