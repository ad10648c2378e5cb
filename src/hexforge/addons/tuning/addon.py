# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command, Hook

_ADVISE = {"advise": "hexforge.addons.tuning.advice.command:advise_on_model"}

ADDON = Addon(
    "tuning",
    "Models made fast on a chip: rewrites that gain, the best mix of precisions, and the whole way in one command.",
    commands=(
        Command(
            "optimize",
            "hexforge.addons.tuning.optimize_command:optimize",
            "Make a model fast on a chip: fix shapes, rewrite, find the best precisions, quantize, compile, explain.",
            (
                'hexforge optimize model.onnx --data samples/ --soc "Galaxy S24"',
                "hexforge optimize model.onnx --data samples/ --labels labels.csv --metric top1 -o fast/",
            ),
            is_about_chips=True,
            gives="hexforge.addons.tuning.optimize:OptimizeResult",
        ),
        Command(
            "advise",
            "hexforge.addons.tuning.advice.command:advise",
            "Say what would make a model faster on a chip: each idea tried by rewriting the model and simulating it "
            "again.",
            (
                'hexforge advise model.onnx --soc "8 Gen 3" --precision w8a8',
                "hexforge advise model.onnx --precision w8a8 --apply faster.onnx",
            ),
            is_about_chips=True,
        ),
        Command(
            "search",
            "hexforge.addons.tuning.search_command:search",
            "Find the mix of two precisions that meets a quality at the lowest latency on a chip.",
            (
                'hexforge search model.onnx --data samples/ --soc "8 Gen 3" -o best.qdq.onnx --state search.json',
                "hexforge search model.onnx --data samples/ --metric top1 --labels labels.csv --target 0.75",
            ),
            is_about_chips=True,
        ),
        Command(
            "demo",
            "hexforge.addons.tuning.demo_command:demo",
            "Check the built-in night-shot model, run it on new pictures, and make it fast on a chip, with a page.",
            ("hexforge demo", 'hexforge demo --soc "X Elite"'),
        ),
    ),
    hooks={Hook.MEND_REFUSALS: "hexforge.addons.tuning.mending:mend"},
    does={"an ONNX model without compiled graphs": _ADVISE, "no ONNX model, or is cut off or damaged": _ADVISE},
)
