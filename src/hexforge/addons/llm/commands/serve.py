# SPDX-License-Identifier: Apache-2.0
"""`hexforge llm serve`: a bundle behind an HTTP endpoint that speaks as OpenAI's does."""

from __future__ import annotations

import secrets
import socket

from hexforge.addons.llm.commands.bundle_to_run import BundleToRun
from hexforge.cli.arguments import Soc
from hexforge.cli.say import say
from hexforge.errors import CallError
from hexforge.request_fields import option


def serve(
    model: BundleToRun,
    port: int = option(8080, "The port, on this machine's own address.", min=1, max=65535),
    token: str = option("", "What clients must show; one is made if left out.", envvar="HEXFORGE_LLM_TOKEN"),
    together: int = option(8, "Answers at a time; others wait.", min=1, max=64),
    at_device_speed: bool = option(False, "Give tokens as fast as the chip is estimated to."),
    soc: Soc = "",
) -> None:
    """Serve a bundle on this machine as OpenAI's API: streams, stop texts, seeds, many clients."""
    from hexforge.addons.llm.serve_answers import device_pace
    from hexforge.addons.llm.serve_app import serve as served

    _refuse_a_taken_port(port)
    key = token or secrets.token_urlsafe(24)
    loaded = model.loaded()
    loaded.prepare_adapters()
    pace = device_pace(loaded.bundle, soc) if at_device_speed else None
    say(f"{loaded.bundle.name} at http://127.0.0.1:{port}/v1" + ("" if token else f" with the token {key}"))
    served(loaded, key, port=port, together=together, pace=pace)


def _refuse_a_taken_port(port: int) -> None:
    """CallError where nothing can be served at a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise CallError(f"--port {port}: {error.strerror}; give another") from None
