# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command

ADDON = Addon(
    "phone",
    "Virtual phones with an adb of their own, a shell and the runners that scripts call.",
    commands=(
        Command(
            "phone",
            "hexforge.addons.phone.phone_commands:phone",
            "Virtual phones with an adb of their own: deployment scripts push, run and pull there as they are.",
            (
                "hexforge phone add emulated-1 --soc SM8650",
                "hexforge phone env",
                "hexforge phone list",
                "hexforge phone unplug emulated-1",
                "hexforge phone serve",
                "hexforge phone measure model.onnx --phone emulated-1 --add-to measured.csv",
            ),
        ),
        Command(
            "sdk-root",
            "hexforge.addons.phone.phone_commands:sdk_root",
            "Print a folder for QNN_SDK_ROOT: tools, libraries and headers of hexforge where "
            "scripts look for the SDK's.",
            ("hexforge sdk-root", "hexforge sdk-root --executorch-build"),
        ),
    ),
)
