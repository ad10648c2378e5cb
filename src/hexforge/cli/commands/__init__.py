# SPDX-License-Identifier: Apache-2.0
"""The core's commands that look at a file, run it, time it, judge it, or make another file of it."""
