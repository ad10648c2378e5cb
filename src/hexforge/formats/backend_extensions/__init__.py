# SPDX-License-Identifier: Apache-2.0
"""Backend extensions: the JSON config files that QNN's tools read, as checked records."""

from hexforge.formats.backend_extensions.reading import Config as Config
from hexforge.formats.backend_extensions.reading import load as load
from hexforge.formats.backend_extensions.reading import load_htp as load_htp
from hexforge.formats.backend_extensions.reading import schema as schema
