# SPDX-License-Identifier: Apache-2.0
"""How profiles are recorded: from a chip's timeline, from kernels' real times, and by a session while it runs."""
