# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command, FileKind, Hook

_COMMAND = "hexforge.addons.profiler.command"
_MODEL = {"profile": f"{_COMMAND}:profile_model"}

ADDON = Addon(
    "profiler",
    "What runs of a model do on a chip or on this computer: profiles, traces, pages, and the files of profiling_level.",
    commands=(
        Command(
            "profile",
            "hexforge.addons.profiler.command:profile",
            "Profile a model on a chip: report, trace, tables and a page that says why it takes its time.",
            (
                'hexforge profile model.onnx --soc "Galaxy S24" -o profile/',
                "hexforge profile after.onnx --compare before.onnx --level linting -o profile/",
                "hexforge profile model.onnx --co-running other.onnx:high --priority low",
            ),
            is_about_chips=True,
        ),
    ),
    files=(
        FileKind(
            "a profiling log",
            "`hexforge profile` makes a page of it, `hexforge diff` compares two",
            start=rb"HXFPROF\n",
            does={"profile": f"{_COMMAND}:read_log"},
        ),
    ),
    does={
        "a context": _MODEL,
        "an ONNX model with compiled graphs": _MODEL,
        "an ONNX model without compiled graphs": _MODEL,
        "no ONNX model, or is cut off or damaged": _MODEL,
    },
    needs=("device", "tuning"),
    hooks={
        Hook.PROFILE_SESSION: "hexforge.addons.profiler.recording.session_profile:ProfiledSession",
        Hook.WRITE_DUMPS: "hexforge.addons.profiler.recording.dump_files:write_dumps",
    },
)
