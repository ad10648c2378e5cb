# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon

ADDON = Addon(
    "qnn_graphs",
    "Graphs that are handed over as QNN ops, by ExecuTorch, by C programs and by recordings.",
    rules={"executorch": "hexforge.addons.qnn_graphs.library_limits:RULES"},
)
