# SPDX-License-Identifier: Apache-2.0
"""`hexforge devices`: the OpenCL devices that the gpu backend can run on."""

from __future__ import annotations

from hexforge.cli.arguments import Json
from hexforge.cli.screen import console, print_json, result_table
from hexforge.results import Column, Key, record, select

DEVICES = (
    Column("gpu_device", key="device", of=lambda row: row[0]),
    Column("name", of=lambda row: row[1].name),
    Column("kind", of=lambda row: row[1].kind),
    Key("vendor", of=lambda row: row[1].vendor),
    Column("driver", of=lambda row: row[1].driver, leaves=2),
    Column("units", key="compute_units", of=lambda row: row[1].units, leaves=1),
    Column("memory", "bytes", key="memory_bytes", of=lambda row: row[1].memory_bytes),
    Key("largest_buffer_bytes", of=lambda row: row[1].most_bytes),
    Key("local_bytes", of=lambda row: row[1].local_bytes),
    Column("float16", key="float16_math", of=lambda row: row[1].half_math,
           text=lambda row: "computed" if row[1].half_math else "stored"),
    Column("extensions", of=lambda row: row[1].extensions, text=lambda row: ", ".join(row[1].extensions), leaves=3),
    Column("", key="chosen", of=lambda row: row[2], text=lambda row: "runs" if row[2] else ""),
)  # fmt: skip
"""What is said of a device, of its number and of whether it runs graphs."""
SHOWN = "device name kind compute_units memory_bytes float16_math driver extensions chosen"


def devices(as_json: Json = False) -> None:
    """List the OpenCL devices that the gpu backend can run on: name, driver, memory, extensions."""
    from hexforge.addons.gpu.device import choose
    from hexforge.addons.gpu.device import devices as opencl_devices

    chosen = choose()
    rows = [(number, device, device is chosen) for number, device in enumerate(opencl_devices())]
    if as_json:
        print_json([record(row, DEVICES) for row in rows])
    else:
        console().print(result_table("OpenCL devices", select(DEVICES, SHOWN), rows, whole=True))
