# SPDX-License-Identifier: Apache-2.0
"""How long people wait for what is no inference: start, commands, estimates, calibration, profiling."""
