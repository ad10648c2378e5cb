# SPDX-License-Identifier: Apache-2.0
"""What this add-on adds."""

from hexforge.addon import Addon, Command, Hook

ADDON = Addon(
    "gpu",
    "QNN's GPU backend on this computer's OpenCL device.",
    commands=(
        Command(
            "devices",
            "hexforge.addons.gpu.devices_command:devices",
            "List the OpenCL devices that the gpu backend can run on: name, driver, memory, extensions.",
            ("hexforge devices", "hexforge devices --json"),
        ),
    ),
    backends={"gpu": "hexforge.addons.gpu.backend:GpuBackend"},
    backend_options={"gpu": "hexforge.addons.gpu.config:GpuConfig"},
    rules={"gpu": "hexforge.addons.gpu.support:RULES"},
    hooks={Hook.OPENCL_DEVICES: "hexforge.addons.gpu.device:devices"},
    packages=("pyopencl",),
    extra="gpu",
)
