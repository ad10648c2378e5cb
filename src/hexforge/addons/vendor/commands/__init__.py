# SPDX-License-Identifier: Apache-2.0
"""Commands about deploying: Qualcomm's package, folders to ship, and their proof."""
