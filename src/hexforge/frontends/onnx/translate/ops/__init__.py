# SPDX-License-Identifier: Apache-2.0
"""Translators from ONNX ops to QNN ops, one module per family. Importing this package fills the registry."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
