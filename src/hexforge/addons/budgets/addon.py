# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command

ADDON = Addon(
    "budgets",
    "Budgets of latency, placement, quality and size that models and scenarios are held to, for CI.",
    commands=(
        Command(
            "gate",
            "hexforge.addons.budgets.gate_command:gate",
            "Check models against a budget of latency, placement, quality and size; exit code 1 where one is over it.",
            (
                "hexforge gate budget.yaml",
                "hexforge gate budget.yaml --baseline main.json --junit gate.xml --markdown comment.md",
            ),
            is_about_chips=True,
        ),
        Command(
            "history",
            "hexforge.addons.budgets.history_command:history",
            "Say how latency, size and quality of models moved over commits, out of a store of gates and sweeps.",
            ("hexforge history figures/ --report history.html", "hexforge history s3://team/figures --last 20 --json"),
        ),
    ),
    needs=("device",),
)
