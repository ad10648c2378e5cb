# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command

ADDON = Addon(
    "executorch",
    "ExecuTorch's Qualcomm backend, and .pte programs in every command.",
    commands=(
        Command(
            "executor-runner",
            "hexforge.addons.executorch.runner_command:executor_runner",
            "Run a .pte over files of inputs, with the flags of ExecuTorch's qnn_executor_runner.",
            (
                "hexforge executor-runner --model_path model.pte --input_list_path input_list.txt",
                "hexforge executor-runner --model_path model.pte --profile_level 2 --etdump_path etdump.etdp",
            ),
        ),
    ),
    needs=("device", "saver"),
    packages=("executorch", "torch"),
    extra="executorch",
)
