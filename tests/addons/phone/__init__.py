# SPDX-License-Identifier: Apache-2.0
"""The virtual phone."""
