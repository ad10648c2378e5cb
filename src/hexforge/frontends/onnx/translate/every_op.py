# SPDX-License-Identifier: Apache-2.0
"""Imports the translators of every family of ops, which fills the registry."""

import importlib
import pkgutil

from hexforge.frontends.onnx import translate

for _module in pkgutil.walk_packages(translate.__path__, f"{translate.__name__}."):
    importlib.import_module(_module.name)
