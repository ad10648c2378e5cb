# SPDX-License-Identifier: Apache-2.0
"""The QNN op set, one module per family. Importing this package fills the op table."""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
