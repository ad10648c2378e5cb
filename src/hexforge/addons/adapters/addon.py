# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command

ADDON = Addon(
    "adapters",
    "LoRA adapters of compiled contexts, made of models or of low-rank weights; every session applies them.",
    commands=(
        Command(
            "lora",
            "hexforge.addons.adapters.command:lora",
            "LoRA adapters for a compiled context: make them, look at them.",
            (
                "hexforge lora make model.bin --base base.onnx --adapted tuned.onnx -o tuned.adapter",
                "hexforge lora info tuned.adapter",
            ),
        ),
    ),
)
