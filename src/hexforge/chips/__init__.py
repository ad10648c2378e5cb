# SPDX-License-Identifier: Apache-2.0
"""Chips: what a chip is and how it is driven, as plain data. No backend is needed to read it."""
