# SPDX-License-Identifier: Apache-2.0
"""What is generated into docs/."""
