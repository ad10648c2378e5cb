# SPDX-License-Identifier: Apache-2.0
"""Writing: a model in another opset, and whether a file that was written loads."""
