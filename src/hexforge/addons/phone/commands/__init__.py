# SPDX-License-Identifier: Apache-2.0
"""`hexforge phone`: virtual phones, and the adb that deployment scripts find on PATH."""

from __future__ import annotations

from hexforge.addons.phone.commands.measure import measure
from hexforge.addons.phone.commands.perf_test import perf_test
from hexforge.addons.phone.commands.run_model import run_model
from hexforge.addons.phone.commands.virtual_phones import add, env, list_all, path, plug, remove, unplug
from hexforge.cli.request_options import CommandGroup

phone = CommandGroup(
    no_args_is_help=True,
    add_completion=False,
    help="Virtual phones with an adb of their own: deployment scripts push, run and pull there as they are.",
)
for _command in (add, remove, plug, unplug, path, env):
    phone.command()(_command)
phone.command("list")(list_all)
phone.command()(measure)
phone.command("perf-test", hidden=True)(perf_test)
phone.command("run-model", hidden=True)(run_model)
