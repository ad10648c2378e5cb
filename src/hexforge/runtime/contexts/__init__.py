# SPDX-License-Identifier: Apache-2.0
"""Contexts: compiled models as files: made, opened, shared, adapted, described."""
