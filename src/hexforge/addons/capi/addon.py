# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command

ADDON = Addon(
    "capi",
    "QNN's C API: libQnnHtp.so and its siblings for programs in C and C++, and what checks their calls.",
    commands=(
        Command(
            "op-package",
            "hexforge.addons.capi.op_package_command:op_package",
            "Op packages: compile one, look at one.",
            (
                "hexforge op-package build swish.cpp -o libswish.so",
                "hexforge op-package show Swish:libswish.so:swish_package",
            ),
        ),
        Command(
            "lib-path",
            "hexforge.addons.capi.library:print_lib_path",
            "Print the folder of libQnnHtp.so and its siblings: QNN's C API, for programs that load it.",
            ("hexforge lib-path", "hexforge lib-path --include"),
        ),
        Command(
            "abi-probe",
            "hexforge.addons.capi.abi_probe_command:abi_probe",
            "Print the program in C that learns the layout of an SDK's headers, run it, or compare what it said.",
            (
                "hexforge abi-probe -o probe.c",
                "hexforge abi-probe --include $QNN_SDK_ROOT/include/QNN -o passport.json",
                "hexforge abi-probe --passport passport.json",
            ),
        ),
        Command(
            "trace",
            "hexforge.addons.capi.trace_command:trace",
            "Run any program on hexforge's QNN libraries, and report every misuse of their API.",
            ("hexforge trace ./program --its-own-flag", "hexforge trace --json -o recording python script.py"),
            is_program=True,
        ),
    ),
    needs=("device", "qnn_graphs", "saver"),
)
