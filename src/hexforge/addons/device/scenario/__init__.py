# SPDX-License-Identifier: Apache-2.0
"""Scenarios: what happens on a device, written as JSON, played under the clock; and plans, which are searched for."""
