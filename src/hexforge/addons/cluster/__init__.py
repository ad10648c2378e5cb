# SPDX-License-Identifier: Apache-2.0
"""Many models on many chips, on one computer or over a Ray cluster."""
