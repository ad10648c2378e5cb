# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from dataclasses import replace

from hexforge.addon import Addon, Command, FileKind, Hook

_COMMANDS, _GRAPHS = "hexforge.addons.executorch.pte_commands", "hexforge.addons.executorch.running.pte_graphs"
_LOG = FileKind(
    "a log of a run by ExecuTorch (etdump)",
    "`hexforge compare MODEL --dump FOLDER` compares the tensors of the folder it is in",
    does={"tensors": "hexforge.addons.executorch.formats.etdump:logged_arrays"},
)

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
    files=(
        FileKind(
            "an ExecuTorch program (.pte)",
            "`hexforge info` says what is in it, `hexforge check` where its operators run",
            start=rb".{4}ET\d\d",
            does={
                "check": f"{_COMMANDS}:check_pte",
                "show": f"{_COMMANDS}:show_pte",
                "info": f"{_COMMANDS}:print_pte",
                "run": f"{_COMMANDS}:run_pte",
                "estimate": f"{_GRAPHS}:timed_method",
                "profile": f"{_COMMANDS}:profile_pte",
                "advise": f"{_COMMANDS}:advise_on_pte",
                "compare --dump": f"{_COMMANDS}:compare_pte_with_dump",
                "diff": f"{_COMMANDS}:side_of_pte",
            },
            is_compiled=True,
        ),
        FileKind(
            "a bundled program of ExecuTorch (test cases around a .pte)",
            "take the program out of it",
            start=rb".{4}BP08",
        ),
        FileKind("a .ptd, which holds tensors of a program", "give the program itself, a .pte", start=rb".{4}FT01"),
        replace(_LOG, start=rb".{8}ED00"),
        replace(_LOG, suffixes=(".etdp",)),
    ),
    hooks={Hook.PROGRAM_GRAPHS: f"{_GRAPHS}:graphs_of_program"},
    needs=("device", "diagnosis", "profiler", "qnn_graphs", "saver", "tuning"),
    packages=("executorch", "torch"),
    extra="executorch",
)
