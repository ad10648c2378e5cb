# SPDX-License-Identifier: Apache-2.0
"""Files as objects: bytes are checked, nothing is computed."""
