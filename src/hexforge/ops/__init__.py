# SPDX-License-Identifier: Apache-2.0
"""The QNN op set, one module per family. Importing this package fills the op table."""

import importlib
import pkgutil

from hexforge.ir import Work, table

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)

BUILT_IN = tuple(table())
"""QNN's own ops, by name: what op packages declare later is not among them."""


def of_kind(*kinds: Work) -> frozenset[str]:
    """The names of QNN's own ops that are one of these kinds of work; an op of a package is judged by itself."""
    return frozenset(op.name for op in BUILT_IN if op.kind in kinds)
