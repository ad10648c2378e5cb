# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command, FileKind, Hook

ADDON = Addon(
    "saver",
    "QNN's Saver: records the calls of a backend, runs a recording again and finds its smallest part that fails.",
    commands=(
        Command(
            "replay",
            "hexforge.addons.saver.replay_command:replay",
            "Run a recording of the Saver again and compare what comes out; find the smallest part that fails.",
            (
                "hexforge replay saver_output",
                "hexforge replay saver_output --backend htp --against cpu --minimise smallest",
            ),
        ),
    ),
    files=(
        FileKind(
            "a recording of the Saver",
            "`hexforge replay FOLDER` runs it again",
            members=("saver_output.c", "params.bin"),
            is_folder=True,
        ),
    ),
    needs=("qnn_graphs",),
    hooks={Hook.RECORD_CALLS: "hexforge.addons.saver.recorder:recorded_backend"},
)
