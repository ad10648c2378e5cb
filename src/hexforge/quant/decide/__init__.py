# SPDX-License-Identifier: Apache-2.0
"""Which tensor gets which encoding, by a recipe."""
