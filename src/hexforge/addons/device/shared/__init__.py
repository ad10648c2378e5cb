# SPDX-License-Identifier: Apache-2.0
"""Shared devices: one simulated device for several programs, served on a Unix socket or on the loopback."""
