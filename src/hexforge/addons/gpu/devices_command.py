# SPDX-License-Identifier: Apache-2.0
"""`hexforge devices`: the OpenCL devices that the gpu backend can run on."""

from __future__ import annotations

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, table


def devices(as_json: Json = False) -> None:
    """List the OpenCL devices that the gpu backend can run on: name, driver, memory, extensions."""
    from hexforge.addons.gpu.device import choose
    from hexforge.addons.gpu.device import devices as opencl_devices

    every = opencl_devices()
    chosen = choose()
    if as_json:
        print_json(
            [
                {
                    "device": i,
                    "name": d.name,
                    "kind": d.kind,
                    "vendor": d.vendor,
                    "driver": d.driver,
                    "compute_units": d.units,
                    "memory_bytes": d.memory_bytes,
                    "largest_buffer_bytes": d.most_bytes,
                    "local_bytes": d.local_bytes,
                    "float16_math": d.half_math,
                    "extensions": list(d.extensions),
                    "chosen": d is chosen,
                }
                for i, d in enumerate(every)
            ]
        )
        return
    columns = ("gpu_device", "name", "kind", "units", "memory", "float16", "driver", "extensions", "")
    cells = [
        (
            str(i), d.name, d.kind, str(d.units), f"{d.memory_bytes / (1 << 30):.1f} GiB",
            "computed" if d.half_math else "stored", d.driver, ", ".join(d.extensions), "runs" if d is chosen else "",
        )
        for i, d in enumerate(every)
    ]  # fmt: skip
    console().print(table("OpenCL devices", columns, cells, optional=("extensions", "driver", "units"), whole=True))
