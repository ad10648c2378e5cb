# SPDX-License-Identifier: Apache-2.0
"""Commands that make one file of another, and judge what was made."""
