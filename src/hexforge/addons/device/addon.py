# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command, Hook

ADDON = Addon(
    "device",
    "The simulated device that contexts share, its scenarios, a device that programs share, and plans.",
    commands=(
        Command(
            "device",
            "hexforge.addons.device.shared.commands:device",
            "Play a scenario on a simulated device (device SCRIPT.json), or serve one that several programs share.",
            (
                "hexforge device scenario.json --report page.html --log events.jsonl",
                "hexforge device scenario.json --json",
                "hexforge device serve --soc SM8650",
                "hexforge device status",
                "hexforge device fault ssr",
                "hexforge device stop",
            ),
        ),
        Command(
            "plan",
            "hexforge.addons.device.scenario.plan_command:plan",
            "Find how contexts that run together are best loaded, shared and driven on a "
            "chip, and prove it by playing.",
            (
                "hexforge plan detector.bin speech.bin --workload work.yaml -o plan/",
                "hexforge plan --workload work.yaml --for ram --frames 2000 --json",
            ),
        ),
    ),
    hooks={
        Hook.RUN_ON_DEVICE: "hexforge.addons.device.sessions:SimulatedRuns",
        Hook.ATTACH_TO_DEVICE: "hexforge.addons.device.sessions:attached_runs",
        Hook.RUN_TOGETHER: "hexforge.addons.device.scheduling.concurrent:simulate_estimates",
        Hook.PLACE_CONTEXTS: "hexforge.addons.device.placed_contexts:on_device",
        Hook.SHARED_BUFFER: "hexforge.addons.device.memory:SharedBuffer",
    },
    packages=("ortools",),
    extra="plan",
)
