# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command

_SIDES = "hexforge.addons.diagnosis.sides"
_MODEL = {
    "diff": f"{_SIDES}:side_of_model",
    "compare --dump": "hexforge.addons.diagnosis.dump_comparison:compare_model_with_dump",
}

ADDON = Addon(
    "diagnosis",
    "What a log means, what changed between two files and why it is slower, and the first op that a device computes "
    "otherwise.",
    commands=(
        Command(
            "whatif",
            "hexforge.addons.diagnosis.whatif_command:whatif",
            "Switch one thing that a chip may compute otherwise, and search the input that shows it most, op by op.",
            (
                "hexforge whatif model.onnx --switch fold_relu",
                "hexforge whatif model.onnx --switch float_order --range -4:4 --tries 500 --save-input worst.npz",
            ),
        ),
        Command(
            "diff",
            "hexforge.addons.diagnosis.diff_command:diff",
            "Say what changed from one context, model, profile or estimate to another, by layer, and why it is slower.",
            (
                "hexforge diff before.bin after.bin",
                "hexforge diff model.onnx model.qdq.onnx --soc SM8650 --report page.html",
                "hexforge diff before.json after.json --json",
            ),
        ),
        Command(
            "explain",
            "hexforge.addons.diagnosis.explain_command:explain",
            "Say what a code or a log of QNN means, why, what would work, and what the model or context shows of it.",
            (
                "hexforge explain 5005",
                "hexforge explain 0x3ea 'graph requires estimated allocation of 2347229 KB, limit is 2097152 KB'",
                "hexforge explain device.log --model model.onnx --soc SM8650",
                "hexforge explain - --json",
            ),
            takes_numbers=True,
        ),
    ),
    does={
        "a context": {"diff": f"{_SIDES}:side_of_contexts"},
        "an ONNX model with compiled graphs": {"diff": f"{_SIDES}:side_of_contexts"},
        "an ONNX model without compiled graphs": _MODEL,
        "no ONNX model, or is cut off or damaged": _MODEL,
        "a profiling log": {"diff": f"{_SIDES}:side_of_log"},
        "a JSON file": {"diff": f"{_SIDES}:side_of_estimate"},
        "a text file": {"diff": f"{_SIDES}:side_of_reports"},
    },
    needs=("profiler",),
)
