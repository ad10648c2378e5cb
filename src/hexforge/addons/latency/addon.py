# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command

ADDON = Addon(
    "latency",
    "What fits the time model to measured latencies.",
    commands=(
        Command(
            "calibrate",
            "hexforge.addons.latency.calibrate_command:calibrate",
            "Fit what makes a chip to times that were measured on a device; `estimate "
            "--costs` reads the file it writes.",
            ("hexforge calibrate measured.csv --soc SM8650 -o costs.json",),
        ),
    ),
    packages=("scipy",),
    extra="latency",
)
