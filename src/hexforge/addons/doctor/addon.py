# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command, Hook

ADDON = Addon(
    "doctor",
    "Says what would stop an NPU session, of folders, apps, phones, logs and this machine.",
    commands=(
        Command(
            "doctor",
            "hexforge.addons.doctor.commands:doctor",
            "Say what would stop the NPU session of a folder, an app, a log, a phone or this machine, and what to do.",
            (
                "hexforge doctor app-release.apk",
                'hexforge doctor shipped/ --soc "Galaxy S24"',
                "hexforge doctor logcat.txt --json",
                "hexforge doctor --device -s R5CX",
                "hexforge doctor --machine",
            ),
        ),
        Command(
            "versions",
            "hexforge.addons.doctor.commands:versions",
            "List which package stands on which QAIRT and onnxruntime, and what reads whose contexts.",
            ("hexforge versions", "hexforge versions android --json"),
        ),
    ),
    hooks={Hook.EXAMINE_FOLDER: "hexforge.addons.doctor.examination:findings_of_folder"},
    needs=("phone", "diagnosis"),
)
