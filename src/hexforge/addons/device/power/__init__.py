# SPDX-License-Identifier: Apache-2.0
"""Power as state: votes by power config ids, profiles, idle states and timers."""
