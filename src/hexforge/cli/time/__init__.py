# SPDX-License-Identifier: Apache-2.0
"""Commands about how long a model takes."""
