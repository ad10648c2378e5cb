# SPDX-License-Identifier: Apache-2.0
"""Translators from ONNX ops to QNN ops, one module per family. Importing this package fills the registry."""

import importlib
import pkgutil

for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
