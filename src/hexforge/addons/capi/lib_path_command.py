# SPDX-License-Identifier: Apache-2.0
"""`hexforge lib-path`: where the libraries and headers of QNN's C API lie."""

from __future__ import annotations

from hexforge.request_fields import option


def lib_path(include: bool = option(False, "The folder of the headers instead.")) -> None:
    """Print the folder of libQnnHtp.so and its siblings: QNN's C API, for programs that load it."""
    from hexforge.addons.capi import library
    from hexforge.cli.say import say

    say(str(library.include_path() if include else library.lib_path()))
