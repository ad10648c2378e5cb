# SPDX-License-Identifier: Apache-2.0
"""The installed package as a user has it."""
