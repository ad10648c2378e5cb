# SPDX-License-Identifier: Apache-2.0
"""Simulated time: its error against measured latencies, and the speed of the simulated device."""
