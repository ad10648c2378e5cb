# SPDX-License-Identifier: Apache-2.0
"""Models in files: loading, contexts, adapters and recordings."""
