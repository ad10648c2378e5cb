# SPDX-License-Identifier: Apache-2.0
"""What plugs into the core: each folder is an add-on, and its addon.py declares what it adds."""
