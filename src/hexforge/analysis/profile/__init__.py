# SPDX-License-Identifier: Apache-2.0
"""Profiles: how they are made, from a chip's timeline or from kernels' real times, and what is seen in them."""
