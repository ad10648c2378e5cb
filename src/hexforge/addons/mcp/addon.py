# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command

ADDON = Addon(
    "mcp",
    "Commands as tools of the Model Context Protocol, for agents.",
    commands=(
        Command(
            "mcp",
            "hexforge.addons.mcp.command:mcp",
            "Serve hexforge's commands to an agent as tools of the Model Context Protocol.",
            ("hexforge mcp models/", "hexforge mcp models/ pages/ --http 8765"),
        ),
    ),
    packages=("mcp",),
    extra="mcp",
)
