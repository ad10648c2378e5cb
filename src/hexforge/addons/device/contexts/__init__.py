# SPDX-License-Identifier: Apache-2.0
"""Contexts on a device: what they are made with, created, grouped, switched, executed, freed."""
