# SPDX-License-Identifier: Apache-2.0
"""How long language models take on a chip: a model of a few physical terms, fitted to measured rows."""
